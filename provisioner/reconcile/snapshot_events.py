"""What people are told of a snapshot: Events, and ``status.error`` of its content.

The reasons are those of external-snapshotter 8.6, so that alerts on them go on working. It tells
only the content, which hardly anybody looks at, so we tell the VolumeSnapshot as well.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from provisioner.decide import snapshot_content as bodies
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.kube.resources import SNAPSHOT_CONTENTS, VOLUME_SNAPSHOTS
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.volume_snapshot import VolumeSnapshotContent
from provisioner.reconcile.snapshot_content import ContentWriter

CREATE = ("SnapshotCreationFailed", "Failed to create snapshot")
CHECK = ("SnapshotContentCheckandUpdateFailed", "Failed to check and update snapshot content")
DELETE = ("SnapshotDeleteError", "Failed to delete snapshot")
# Events live for an hour: a wait that is told once is silent afterwards.
_TELL_AGAIN = timedelta(minutes=30)
_WAITS = "SnapshotCreationWaits"

log = structlog.get_logger(__name__)


class SnapshotEvents:
    """Tells; remembers what it said last of each content, so that no wait is told too often."""

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
        self._said: dict[str, tuple[str, datetime]] = {}

    async def failed(
        self, content: VolumeSnapshotContent, error: StorageError, what: tuple[str, str]
    ) -> None:
        """A Warning; it is in the status too, unless the content is on its way out."""
        if error.reason is Reason.NOT_LEADING or isinstance(error, KubeError):
            return
        reason, prefix = what
        text = f"{prefix}: {error.reason}: {error.message}"
        self._is_said(content, text)
        self._record(content, text, reason=reason, warning=True)
        status = bodies.failed(content, text, self._now())
        if status is None or what is DELETE:
            return
        try:
            await self._writer.write_status(content, status, guarded=False)
        except KubeError as unwritten:  # the next failure writes it
            log.info("cannot write a failure to the content", error=unwritten.message)

    def warn(self, content: VolumeSnapshotContent, error: StorageError) -> None:
        """A Warning about what does not hold the snapshot up; told once in half an hour."""
        text = f"{error.reason}: {error.message}"
        if error.reason is not Reason.NOT_LEADING and not self._is_said(content, text):
            self._record(content, text, reason=CHECK[0], warning=True)

    def waits(self, content: VolumeSnapshotContent, why: str, *, about: str) -> None:
        """A Normal event: it goes on by itself; told once in half an hour ``about`` one thing."""
        if not self._is_said(content, about):
            self._record(content, why, reason=_WAITS, warning=False)

    def forget(self, uid: str) -> None:
        """The snapshot is ready, or its content gone."""
        self._said.pop(uid, None)

    def _is_said(self, content: VolumeSnapshotContent, text: str) -> bool:
        """Whether people have just been told this; noted as told now if not."""
        said, at = self._said.get(content.uid, ("", self._now()))
        if said == text and self._now() - at < _TELL_AGAIN:
            return True
        self._said[content.uid] = text, self._now()
        return False

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
