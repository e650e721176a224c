"""csi-sanity, the Kubernetes project's tests of CSI drivers, against the real node plugin."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.sandbox.binaries import ensure_binaries
from provisioner.sandbox.programs import SANITY
from tests.node import privileged

# Each with what csi-sanity says of it; any other skip is a failure.
_HEALTH = "NodeGet{}Health not supported"
SKIPPED = {
    # That ReadWriteOncePod is kept is seen to by the scheduler and the kubelet (node/csi/service.py).
    (
        "NodePublishVolume with single node multi writer capability should fail when volume with "
        "single node single writer access mode is already mounted at a different target path"
    ): "Service does not have single node multi writer capability",
    # Optional calls that kubelet 1.36 does not know: the names are not in its binary.
    "NodeGetVolumeHealth should fail when no volume id is provided": _HEALTH.format("Volume"),
    "NodeGetVolumeHealth should return health for a valid volume": _HEALTH.format("Volume"),
    "NodeGetStorageHealth should return appropriate response": _HEALTH.format("Storage"),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sanity-") as name:
        yield Path(name)


def specs(report: Path) -> list[dict[str, Any]]:
    (suite,) = json.loads(report.read_text())
    kept: list[dict[str, Any]] = [
        {
            "text": " ".join([*each["ContainerHierarchyTexts"][1:], each["LeafNodeText"]]),
            "service": each["ContainerHierarchyTexts"][0],
            "state": each["State"],
            "why": each.get("Failure", {}).get("Message", ""),
        }
        for each in suite["SpecReports"]
        if each["LeafNodeType"] == "It"
    ]
    return kept


@pytest.mark.skipif(privileged.lacks() != "", reason=privileged.lacks())
@pytest.mark.parametrize("access", ["mount", "block"])
def test_csi_sanity_passes_for_identity_and_node(folder: Path, access: str) -> None:
    sanity = ensure_binaries(programs=SANITY) / "csi-sanity"
    run = privileged.run("sanity_world", str(folder), str(sanity), access)

    sys.stdout.write(run.stderr[-20_000:])  # for whoever reads of a failure
    ran = [
        each
        for each in specs(folder / "report.json")
        if each["service"].startswith(("Node Service", "Identity Service"))
    ]
    assert {each["text"]: each["why"] for each in ran if each["state"] == "failed"} == {}
    assert {each["text"]: each["why"] for each in ran if each["state"] == "skipped"} == SKIPPED
    assert sum(each["state"] == "passed" for each in ran) > 25
    assert {each["state"] for each in ran} == {"passed", "skipped"}
    assert run.returncode == 0, "something is left over; it says what above"
