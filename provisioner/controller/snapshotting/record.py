"""What is written to a VolumeSnapshotContent, and what is reported: Events, ``status.error``.

A custom resource takes JSON merge patches: they replace a list whole, so the finalizers and the
status are written only to the object as it was seen; an annotation is merged by its key. Each
answer goes into the cache at once.

The reasons of events are those of external-snapshotter 8.6, so that alerts on them keep
working. It reports them only on the content, which few people look at; we also report them on the
VolumeSnapshot.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import structlog

from provisioner.controller.shared.caches import Caches
from provisioner.controller.snapshotting import content_patch_rules
from provisioner.kube.client import KubeClient, Patch, find
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.kube.resources import SNAPSHOT_CONTENTS, VOLUME_SNAPSHOTS
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.names import PENDING_SETTINGS
from provisioner.model.volume_snapshot import (
    BEING_CREATED,
    CONTENT_FINALIZER,
    YES,
    VolumeSnapshotContent,
)
from provisioner.tell_once import EVENT_AGAIN_S, TellOnce

CREATE = ("SnapshotCreationFailed", "Failed to create snapshot")
CHECK = ("SnapshotContentCheckandUpdateFailed", "Failed to check and update snapshot content")
DELETE = ("SnapshotDeleteError", "Failed to delete snapshot")
_WAITS = "SnapshotCreationWaits"

log = structlog.get_logger(__name__)


class ContentWriter:
    """Writes; every method raises KubeError, CONFLICT when the content has changed meanwhile."""

    def __init__(self, client: KubeClient, caches: Caches) -> None:
        self._client = client
        self._caches = caches

    async def announce(
        self, content: VolumeSnapshotContent, annotations: Mapping[str, str | None]
    ) -> VolumeSnapshotContent:
        """Say that EC2 is about to be asked for a snapshot, and add the finalizer.

        ``annotations`` say how the snapshot is to be prepared; None takes one away.

        snapshot-controller adds the finalizer as well, but in a sync of its own. A content that is
        deleted before that would be gone, and its snapshot would belong to nothing.
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

    async def clear_pending(self, content: VolumeSnapshotContent) -> VolumeSnapshotContent:
        """Say that EC2 has applied all settings of its class."""
        return await self._patch(
            content, {"uid": content.uid, "annotations": {PENDING_SETTINGS: None}}
        )

    async def release(self, content: VolumeSnapshotContent) -> VolumeSnapshotContent:
        """Remove our finalizer, no others."""
        others = [each for each in content.finalizers if each != CONTENT_FINALIZER]
        return await self._patch(content, {**_as_seen(content), "finalizers": others})

    async def write_status(
        self, content: VolumeSnapshotContent, status: Mapping[str, Any], *, guarded: bool = True
    ) -> VolumeSnapshotContent:
        """Change fields of the status; None takes one away.

        ``guarded``: only if the content has not changed since it was read. snapshot-controller
        writes often in the first second, which does not matter to a report of a failure.
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

    async def refresh(self, name: str) -> VolumeSnapshotContent | None:
        """Read it from the API server into the cache; None: there is none of that name."""
        live = await find(self._client, SNAPSHOT_CONTENTS, name)
        if live is not None:
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


class SnapshotEvents:
    """Reports, and remembers what it said last of each content, so as not to repeat it."""

    def __init__(
        self,
        recorder: EventRecorder,
        writer: ContentWriter,
        *,
        driver: str,
        now: Callable[[], datetime],
    ) -> None:
        self._recorder = recorder
        self._writer = writer
        self._component = f"csi-snapshotter {driver}"
        self._now = now
        self._said = TellOnce(lambda: now().timestamp())

    async def failed(
        self, content: VolumeSnapshotContent, error: StorageError, what: tuple[str, str]
    ) -> None:
        """A Warning; also in the status, unless the content is being deleted."""
        if error.reason is Reason.NOT_LEADING or isinstance(error, KubeError):
            return
        reason, prefix = what
        text = f"{prefix}: {error.reason}: {error.message}"
        self._is_news(content, text)
        self._record(content, text, reason=reason, warning=True)
        status = content_patch_rules.failed(content, text, self._now())
        if status is None or what is DELETE:
            return
        try:
            await self._writer.write_status(content, status, guarded=False)
        except KubeError as unwritten:  # the next failure writes it
            log.info("cannot write a failure to the content", error=unwritten.message)

    def warn(self, content: VolumeSnapshotContent, error: StorageError) -> None:
        """A Warning that does not stop the snapshot; at most once in half an hour."""
        text = f"{error.reason}: {error.message}"
        if error.reason is not Reason.NOT_LEADING and self._is_news(content, text):
            self._record(content, text, reason=CHECK[0], warning=True)

    def waits(self, content: VolumeSnapshotContent, why: str, *, about: str) -> None:
        """A Normal event about a wait; at most once in half an hour ``about`` one thing."""
        if self._is_news(content, about):
            self._record(content, why, reason=_WAITS, warning=False)

    def forget(self, uid: str) -> None:
        """The snapshot is ready, or its content is gone."""
        self._said.forget(uid)

    def _is_news(self, content: VolumeSnapshotContent, text: str) -> bool:
        return self._said.is_news(content.uid, text, again_s=EVENT_AGAIN_S)

    def _record(
        self, content: VolumeSnapshotContent, text: str, *, reason: str, warning: bool
    ) -> None:
        version = SNAPSHOT_CONTENTS.api_version
        about = [Regarding.of(content, SNAPSHOT_CONTENTS.kind, version)]
        owner = content.spec.volume_snapshot_ref
        if owner.uid:
            kind = VOLUME_SNAPSHOTS.kind
            about.append(Regarding(kind, version, owner.name, owner.namespace, owner.uid))
        for each in about:
            self._recorder.record(
                each, warning=warning, reason=reason, message=text, component=self._component
            )
