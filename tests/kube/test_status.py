"""What a write of a status says about the object that was seen, and what an odd object is called."""

from __future__ import annotations

from typing import Any, cast

import pytest

from provisioner.kube.client import KubeClient, patch_status
from provisioner.kube.resources import CLAIMS
from provisioner.kube.wire import decode_object
from provisioner.model.errors import KubeError
from tests.builders import UID, a_claim


class Client:
    """Keeps what it is to write."""

    body: Any = None

    async def patch(self, _: Any, __: str, body: Any, **___: Any) -> None:
        self.body = body


async def written(**given: Any) -> dict[str, Any]:
    client = Client()
    await patch_status(cast("KubeClient", client), CLAIMS, a_claim(), {}, **given)
    metadata: dict[str, Any] = client.body["metadata"]
    return metadata


async def test_a_status_is_written_only_while_its_object_is_as_it_was_seen():
    assert await written() == {
        "uid": UID,
        "resourceVersion": a_claim().metadata.resource_version,
    }


async def test_where_that_does_not_matter_only_another_object_is_refused():
    assert await written(guarded=False) == {"uid": UID}


@pytest.mark.parametrize(
    ("metadata", "name"), [(b'{"name":"data","namespace":"shop"}', "shop/data"), (b"{}", "without")]
)
def test_an_object_that_cannot_be_read_is_told_by_its_name(metadata: bytes, name: str):
    with pytest.raises(KubeError, match=f"cannot read PersistentVolumeClaim {name}"):
        decode_object(CLAIMS, b'{"metadata":' + metadata + b',"spec":7}')
