"""Writing the status of an object: only while it is as it was seen, unless that does not matter."""

from collections.abc import Mapping
from typing import Any

from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import Resource, T


async def patch_status(
    client: KubeClient,
    resource: Resource[T],
    obj: T,
    status: Mapping[str, Any],
    *,
    annotations: Mapping[str, str | None] | None = None,
    kind: Patch = Patch.MERGE,
    guarded: bool = True,
) -> T:
    """Patch ``status`` of the very object that was seen; the answer is the object afterwards.

    Lists are replaced whole by ``Patch.MERGE``. ``Patch.STRATEGIC``, for kinds that are no custom
    resources, merges conditions by their type, so that those of others stay; one is removed by
    ``{"type": ..., "$patch": "delete"}``.

    ``status`` and ``annotations`` are what changes; None removes. Not ``guarded``, only another
    object under its name is refused.

    Raises:
        KubeError: CONFLICT when it has changed: look again, and tell nobody.
    """
    meta = obj.metadata
    metadata: dict[str, Any] = {"uid": meta.uid}
    if guarded:
        metadata["resourceVersion"] = meta.resource_version
    if annotations:
        metadata["annotations"] = dict(annotations)
    return await client.patch(
        resource,
        meta.name,
        {"metadata": metadata, "status": dict(status)},
        kind=kind,
        namespace=meta.namespace,
        subresource="status",
    )
