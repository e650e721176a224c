"""What the API server in memory and a real one must answer alike: both are asked the same.

``tests/day/test_api_server.py`` asks the one, ``tests/cluster/test_kube_contract.py`` the other.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from provisioner.kube.client import KubeClient, Patch, patch_status
from provisioner.kube.resources import ATTACHMENTS, CLAIMS
from provisioner.kube.wire import Listing
from provisioner.model.attachment import Attachment
from provisioner.model.errors import KubeError

FINALIZER = "ebs-provisioner.io/test"

EXPECTED = {
    "created twice": "OBJECT_EXISTS",
    "listed by its name": "itself alone, at the newest version",
    "listed by a name that nothing has": "nothing, at the newest version",
    "claims of a namespace that is not there": "nothing, at the newest version",
    "patched at an old version": "CONFLICT",
    "patched as another object": "REJECTED",
    "patched without a change": "same version",
    "status patched with a spec": "node-1, attached True",
    "patched with a status": "attached True",
    "deleted as another object": "CONFLICT",
    "deleted": "being deleted, held by ebs-provisioner.io/test",
    "a second finalizer, strategically": "ebs-provisioner.io/test, ebs-provisioner.io/test-2",
    "read after the last finalizer": "OBJECT_NOT_FOUND",
    "patched after it": "OBJECT_NOT_FOUND",
    "deleted after it": "OBJECT_NOT_FOUND",
}


async def answers(client: KubeClient, name: str) -> dict[str, str]:
    """What happens to a VolumeAttachment of this name, that nobody else looks at."""
    body = {
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {
            "attacher": "nobody.example.com",
            "nodeName": "node-1",
            "source": {"persistentVolumeName": name},
        },
    }
    first = await client.create(ATTACHMENTS, body)
    found = {"created twice": await _refusal(client.create(ATTACHMENTS, body))}
    found["listed by its name"] = await _listed(client, name, first)
    found["listed by a name that nothing has"] = await _listed(client, f"{name}-none", first)
    claims = await client.list(CLAIMS, namespace=f"{name}-none", most=1)
    found["claims of a namespace that is not there"] = _told(claims, first)
    changed = await _patch(client, name, {"metadata": {"annotations": {"a": "1"}}})
    old = {"metadata": {"resourceVersion": first.metadata.resource_version}}
    found["patched at an old version"] = await _refusal(_patch(client, name, old))
    other: dict[str, Any] = {"metadata": {"uid": "0c5a1b2e-7f00-4a7e-9d61-3b1f00000001"}}
    found["patched as another object"] = await _refusal(_patch(client, name, other))
    same = await _patch(client, name, {"metadata": {"annotations": {"a": "1"}}})
    is_same = same.metadata.resource_version == changed.metadata.resource_version
    found["patched without a change"] = "same version" if is_same else "another version"
    found |= await _of_status(client, same)
    found |= await _of_the_end(client, name)
    return found


async def _listed(client: KubeClient, name: str, made: Attachment) -> str:
    return _told(
        await client.list(ATTACHMENTS, field_selector=f"metadata.name={name}", most=1), made
    )


def _told(found: Listing[Any], made: Attachment) -> str:
    what = "nothing"
    if found.items:
        what = "itself alone" if found.items == [made] and found.is_all else "others"
    is_newest = int(found.resource_version) >= int(made.metadata.resource_version)
    return f"{what}, at {'the newest' if is_newest else 'an older'} version"


async def _of_status(client: KubeClient, seen: Attachment) -> dict[str, str]:
    status = {"attached": True}
    done = await patch_status(client, ATTACHMENTS, seen, status)
    body = {"spec": {"nodeName": "node-2"}, "status": status}
    kept = await client.patch(ATTACHMENTS, seen.name, body, kind=Patch.MERGE, subresource="status")
    after = await _patch(client, seen.name, {"status": {"attached": False}})
    return {
        "status patched with a spec": f"{kept.spec.node_name}, attached {done.attached}",
        "patched with a status": f"attached {after.attached}",
    }


async def _of_the_end(client: KubeClient, name: str) -> dict[str, str]:
    two = {"metadata": {"finalizers": [f"{FINALIZER}-2"]}}
    held = await client.patch(ATTACHMENTS, name, two, kind=Patch.STRATEGIC)
    found = {"a second finalizer, strategically": ", ".join(sorted(held.finalizers))}
    await _drop(client, name, f"{FINALIZER}-2")
    elsewhere = client.delete(ATTACHMENTS, name, uid="0c5a1b2e-7f00-4a7e-9d61-3b1f00000001")
    found["deleted as another object"] = await _refusal(elsewhere)
    await client.delete(ATTACHMENTS, name)
    seen = await client.get(ATTACHMENTS, name)
    state = "being deleted" if seen.deleting else "not deleted"
    found["deleted"] = f"{state}, held by {', '.join(seen.finalizers)}"
    await _drop(client, name, FINALIZER)
    found["read after the last finalizer"] = await _refusal(client.get(ATTACHMENTS, name))
    found["patched after it"] = await _refusal(_patch(client, name, {}))
    found["deleted after it"] = await _refusal(client.delete(ATTACHMENTS, name))
    return found


async def _patch(client: KubeClient, name: str, body: dict[str, Any]) -> Attachment:
    return await client.patch(ATTACHMENTS, name, body, kind=Patch.MERGE)


async def _drop(client: KubeClient, name: str, finalizer: str) -> None:
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}}
    await client.patch(ATTACHMENTS, name, body, kind=Patch.STRATEGIC)


async def _refusal(asked: Awaitable[object]) -> str:
    try:
        await asked
    except KubeError as error:
        return error.reason.name
    return "not refused"
