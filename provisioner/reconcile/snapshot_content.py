"""What we write to a VolumeSnapshotContent; each answer goes into the cache at once.

A custom resource takes JSON merge patches: they replace a list whole, so the finalizers and the
status are written only to the object as it was seen; an annotation is merged by its key.
"""

from collections.abc import Mapping
from typing import Any

from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import SNAPSHOT_CONTENTS
from provisioner.model.volume_snapshot import (
    BEING_CREATED,
    CONTENT_FINALIZER,
    WISHES,
    YES,
    VolumeSnapshotContent,
)
from provisioner.reconcile.caches import Caches


class ContentWriter:
    """Writes; every method raises KubeError, CONFLICT when the content has changed meanwhile."""

    def __init__(self, client: KubeClient, caches: Caches) -> None:
        self._client = client
        self._caches = caches

    async def announce(
        self, content: VolumeSnapshotContent, annotations: Mapping[str, str]
    ) -> VolumeSnapshotContent:
        """Say that EC2 is about to be asked for a snapshot, and see that the content stays.

        ``annotations`` say what is to be done with the snapshot then.

        snapshot-controller adds the finalizer as well, but in a sync of its own: a content that
        is deleted before that would go, and leave its snapshot to nobody.
        """
        written = {**annotations, BEING_CREATED: YES}
        metadata: dict[str, Any] = {"uid": content.uid, "annotations": written}
        if CONTENT_FINALIZER not in content.finalizers:
            finalizers = [*content.finalizers, CONTENT_FINALIZER]
            metadata |= {**_as_seen(content), "finalizers": finalizers}
        return await self._patch(content, metadata)

    async def withdraw(self, content: VolumeSnapshotContent) -> VolumeSnapshotContent:
        """Say that it is known what came of the request."""
        annotations = {BEING_CREATED: None}
        return await self._patch(content, {"uid": content.uid, "annotations": annotations})

    async def grant(self, content: VolumeSnapshotContent) -> VolumeSnapshotContent:
        """Say that EC2 has done all that its class asks for."""
        return await self._patch(content, {"uid": content.uid, "annotations": {WISHES: None}})

    async def release(self, content: VolumeSnapshotContent) -> VolumeSnapshotContent:
        """Take our finalizer off, nobody else's."""
        others = [each for each in content.finalizers if each != CONTENT_FINALIZER]
        return await self._patch(content, {**_as_seen(content), "finalizers": others})

    async def write_status(
        self, content: VolumeSnapshotContent, status: Mapping[str, Any], *, guarded: bool = True
    ) -> VolumeSnapshotContent:
        """Change fields of the status; None takes one away.

        ``guarded``: only if nobody has written anything since. snapshot-controller writes much in
        the first second, which does not matter to a word about a failure.
        """
        changed = await self._client.patch(
            SNAPSHOT_CONTENTS,
            content.name,
            {
                "metadata": _as_seen(content) if guarded else {"uid": content.uid},
                "status": dict(status),
            },
            kind=Patch.MERGE,
            subresource="status",
        )
        self._caches.contents.observe(changed)
        return changed

    async def refresh(self, name: str) -> VolumeSnapshotContent:
        """Take in what the API server has."""
        live = await self._client.get(SNAPSHOT_CONTENTS, name)
        self._caches.contents.observe(live)
        return live

    async def _patch(
        self, content: VolumeSnapshotContent, metadata: Mapping[str, Any]
    ) -> VolumeSnapshotContent:
        changed = await self._client.patch(
            SNAPSHOT_CONTENTS, content.name, {"metadata": metadata}, kind=Patch.MERGE
        )
        self._caches.contents.observe(changed)
        return changed


def _as_seen(content: VolumeSnapshotContent) -> dict[str, str]:
    return {"uid": content.uid, "resourceVersion": content.metadata.resource_version}
