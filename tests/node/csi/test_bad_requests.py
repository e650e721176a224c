"""What is malformed ends with a clear code before any part hears of it; over a real unix socket."""

from typing import Any

import grpc
import pytest

from tests.node.caller import Caller
from tests.node.served import ID, MOUNT, TARGET, UNSTAGE, Parts

pytest_plugins = ("tests.node.served_fixtures",)

BAD = {
    "no id": {"volume_id": ""},
    "a malformed id": {"volume_id": "vol-../../etc"},
    "no path": {"staging_target_path": ""},
    "a relative path": {"staging_target_path": "some/path"},
    "a path that climbs": {"staging_target_path": "/var/lib/kubelet/pods/../../../../etc"},
    "a path of somebody else": {"staging_target_path": "/etc/kubernetes"},
    "no capability": {"volume_capability": None},
    "an unknown file system": {
        "volume_capability": {"mount": {"fs_type": "btrfs"}, "access_mode": {"mode": 1}}
    },
    "a file system for many nodes": {
        "volume_capability": {"mount": {}, "access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}}
    },
    "no access mode": {"volume_capability": {"mount": {}}},
}


@pytest.mark.parametrize("method", ["NodeStageVolume", "NodePublishVolume"])
@pytest.mark.parametrize("fields", BAD.values(), ids=BAD)
async def test_a_malformed_request_is_an_invalid_argument_and_reaches_no_part(
    call: Caller, parts: Parts, method: str, fields: dict[str, Any]
):
    target = {"target_path": TARGET} if method == "NodePublishVolume" else {}
    code, sentence = await call.failing(
        method, **({"volume_capability": MOUNT} | UNSTAGE | target | fields)
    )

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence.startswith("InvalidRequest: ")
    assert sentence.isprintable()
    assert "\n" not in sentence
    assert parts.calls == []


async def test_a_target_that_climbs_is_an_invalid_argument(call: Caller, parts: Parts):
    path = "/var/lib/kubelet/pods/../../../../etc"
    code, sentence = await call.failing("NodeUnpublishVolume", volume_id=ID, target_path=path)

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "not normalised" in sentence
    assert parts.calls == []
