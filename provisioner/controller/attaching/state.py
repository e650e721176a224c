"""The state of attachments: what this process remembers, and what it writes to their objects."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import structlog

from provisioner import clock
from provisioner.controller.attaching.initialization import DataWaits
from provisioner.controller.attaching.rules import (
    Attach,
    Attached,
    AttachStep,
    Call,
    Rival,
    Target,
    View,
)
from provisioner.controller.shared.services import Services
from provisioner.ec2.look_rules import Asked
from provisioner.kube.client import Patch
from provisioner.kube.resources import ATTACHMENTS, PERSISTENT_VOLUMES
from provisioner.model.attachment import NODE_ID, Attachment, attachment_metadata
from provisioner.model.decision import Later
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Reason, StorageError
from provisioner.model.names import VOLUME_ID
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.volume import AttachmentState as Ec2State
from provisioner.model.volume import Volume

# What EC2 does is seen by a watcher, which wakes the attachment at once; this is for its deadlines.
CHECK_AGAIN = Later(10.0)
# gRPC codes, which kubelet and the volume controller read in attachError.errorCode.
_NOT_FOUND, _RESOURCE_EXHAUSTED, _INTERNAL = 5, 8, 13
_CODES = {
    Reason.INSTANCE_FULL: _RESOURCE_EXHAUSTED,
    Reason.VOLUME_NOT_FOUND: _NOT_FOUND,
    Reason.INSTANCE_NOT_FOUND: _NOT_FOUND,
    Reason.OBJECT_NOT_FOUND: _NOT_FOUND,
}

log = structlog.get_logger(__name__)


def asked_to_attach(target: Target) -> Asked[Volume]:
    """What AttachVolume was asked for; most of them take 1 to 4 s (aws-ebs-csi-driver)."""

    def is_attached(seen: Volume) -> bool:
        there = seen.on(target.instance_id)
        return there is not None and there.state is Ec2State.ATTACHED

    return Asked("an attachment", 1.0, is_attached)


def asked_to_detach(target: Target) -> Asked[Volume]:
    """What DetachVolume was asked for; it takes about as long."""
    return Asked("a detachment", 1.0, lambda seen: seen.on(target.instance_id) is None)


class NoLongerWantedError(Exception):
    """A call was not sent: while it waited for its turn, what it was for has changed."""


class AttachmentState:
    """What this process knows of attachments that their objects do not say.

    By UID, so that a late result never reaches an attachment that was recreated under its name.

    Attributes:
        calls: the last EC2 call for each attachment, until EC2 has been seen to agree.
    """

    def __init__(self, services: Services, wake: Callable[[str], None]) -> None:
        """Remember nothing yet; ``wake`` has an attachment (by name) examined again."""
        self._caches = services.caches
        self._watcher = services.watcher
        self._unclaimed = services.unclaimed
        self._metrics = services.metrics
        self._data = DataWaits(services)
        self._wake = wake
        self._began_s: dict[str, float] = {}
        self._watched: dict[str, str] = {}
        # Those that may get their volume attached, and those that may be reported as attached:
        # other attachments of the same volume have to know.
        self._going: set[str] = set()
        self._may_be_reported: set[str] = set()
        self.calls: dict[str, Call] = {}

    def begin(self, attachment: Attachment) -> None:
        """Note when an attachment was first examined."""
        self._began_s.setdefault(attachment.uid, clock.now_s())

    def has_begun(self, attachment: Attachment) -> bool:
        """Whether it was examined, and something of it may be remembered."""
        return attachment.uid in self._began_s

    def age_s(self, attachment: Attachment) -> float:
        """Seconds since it was first examined; 0 if it never was or its object is gone."""
        began_s = self._began_s.get(attachment.uid)
        return clock.now_s() - began_s if began_s is not None else 0.0

    def view(self, attachment: Attachment, volume_id: str) -> View:
        """What is known now; a description from before the last call proves nothing about it."""
        call = self.calls.get(attachment.uid)
        sighting = self._watcher.sighting(volume_id)
        if sighting is not None and call is not None and sighting.at_s <= call.sent_at_s:
            sighting = None
        seen = sighting.found if sighting is not None else None
        missing = sighting is not None and seen is None
        return View(
            call=call,
            seen=seen,
            missing_for_s=sighting.missing_for_s if sighting is not None and missing else None,
            unclaimed=self._unclaimed.is_tagged(volume_id),
            may_be_reported=attachment.uid in self._may_be_reported,
        )

    def restore(self, attachment: Attachment, call: Call | None) -> None:
        """A call was certainly refused, or not sent: what was known before still holds."""
        self.calls.pop(attachment.uid, None)
        if call is not None:
            self.calls[attachment.uid] = call

    # -- other attachments of the volume

    def note_step(self, attachment: Attachment, step: AttachStep) -> None:
        """Note what is done next, for the other attachments of the volume.

        Nothing may be awaited between the decision and this: of two at once the first one goes on.
        """
        if isinstance(step, Attach):
            self._going.add(attachment.uid)
        if isinstance(step, Attached):
            self._may_be_reported.add(attachment.uid)

    def rivals(self, attachment: Attachment, target: Target) -> list[Rival]:
        """The other attachments of its volume."""
        name, known = attachment.spec.source.persistent_volume_name, self._caches.attachments
        # An attachment of another controller has no volume recorded.
        same = known.keyed("persistent_volume", name) if name else ()
        return [
            Rival(
                each.annotations.get(NODE_ID, ""),
                may_be_reported=each.attached or each.uid in self._may_be_reported,
                is_going=each.uid in self._going,
                # Not one that another controller may report at any moment.
                is_younger=VOLUME_ID in each.annotations and _age(attachment) < _age(each),
            )
            for each in (*known.keyed("volume", target.volume_id), *same)
            if each.uid != attachment.uid
        ]

    def of_volume(self, volume_id: str) -> list[Attachment]:
        """All attachments of a volume, also by another attacher, which does not record it."""
        known, named = self._caches.attachments, self._caches.persistent_volumes
        by_name = (
            known.keyed("persistent_volume", each.name) for each in named.keyed("volume", volume_id)
        )
        return [*known.keyed("volume", volume_id), *chain.from_iterable(by_name)]

    def let_others_go(self, attachment: Attachment) -> None:
        """EC2 is asked nothing for it: another attachment of its volume may go first."""
        self._going.discard(attachment.uid)
        self._may_be_reported.discard(attachment.uid)

    # -- waiting

    def watch(
        self, attachment: Attachment, volume_id: str, asked: Asked[Volume] | None = None
    ) -> None:
        """Have the attachment woken when EC2 describes its volume again."""
        now = self._caches.attachments.get(attachment.name)
        if now is None or now.uid != attachment.uid:
            self.forget(attachment)  # removed by force meanwhile: nothing would end the watch
            return
        self._watched[attachment.uid] = volume_id
        self._watcher.watch(
            volume_id,
            f"attach {attachment.uid}",
            lambda: self._wake(attachment.name),
            asked=asked,
        )

    def trouble_with(self, volume_id: str) -> StorageError | None:
        """Why EC2 cannot be asked about a volume."""
        return self._watcher.trouble_with(volume_id)

    def waits_for_data(self, attachment: Attachment) -> bool:
        """Whether its volume is attached, as far as is known, and lacks some of its data."""
        return self._data.is_waiting(attachment, clock.now_s())

    def lacks_data(
        self, attachment: Attachment, persistent_volume: PersistentVolume | None, view: View
    ) -> bool:
        """Whether an attached volume is to have all of its data first; it is woken then.

        Until then EC2 is not asked about the volume itself: it can take hours.
        """
        waits = self._data.holds_back(
            attachment,
            persistent_volume,
            view,
            now_s=clock.now_s(),
            wake=lambda: self._wake(attachment.name),
        )
        if waits:
            self._unwatch(attachment)
        return waits

    # -- the end

    def finish(self, attachment: Attachment, flow: str, took_s: float) -> None:
        """An attach or a detach is done: count it, and forget."""
        self._metrics.flow_seconds.labels(flow).observe(took_s)
        self.forget(attachment)

    def forget(self, attachment: Attachment) -> None:
        """Remember nothing of it."""
        self._data.forget(attachment)
        self.let_others_go(attachment)
        self.calls.pop(attachment.uid, None)
        self._began_s.pop(attachment.uid, None)
        self._unwatch(attachment)

    def _unwatch(self, attachment: Attachment) -> None:
        volume_id = self._watched.pop(attachment.uid, None)
        if volume_id is not None:
            self._watcher.forget(volume_id, f"attach {attachment.uid}")


class AttachmentRecord:
    """Writes to VolumeAttachments, and to PersistentVolumes what holds them meanwhile."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._caches = services.caches
        self._finalizer = finalizer_of_attacher(services.settings.driver)

    async def hold(self, persistent_volume: PersistentVolume) -> PersistentVolume:
        """Hold a persistent volume for as long as it may be attached."""
        patch = {"metadata": {"uid": persistent_volume.uid, "finalizers": [self._finalizer]}}
        held = await self._client.patch(
            PERSISTENT_VOLUMES, persistent_volume.name, patch, kind=Patch.STRATEGIC
        )
        self._caches.persistent_volumes.observe(held)
        return held

    async def prepare(self, attachment: Attachment, target: Target) -> Attachment:
        """Hold an attachment, and note what goes where, before EC2 is asked."""
        patch = {
            "metadata": {
                "uid": attachment.uid,
                "finalizers": [self._finalizer],
                "annotations": {NODE_ID: target.instance_id, VOLUME_ID: target.volume_id},
            }
        }
        prepared = await self._client.patch(
            ATTACHMENTS, attachment.name, patch, kind=Patch.STRATEGIC
        )
        self._caches.attachments.observe(prepared)
        return prepared

    async def attached(self, attachment: Attachment, found: Attached) -> None:
        """Report that the volume is attached, and under which name."""
        name = attachment.spec.source.persistent_volume_name or ""
        persistent_volume = self._caches.persistent_volumes.get(name)
        metadata = attachment_metadata(
            *(found.device, found.target.instance_id, found.made_from),
            multi_attach=found.multi_attach,
            read_only=persistent_volume is not None and persistent_volume.is_only_read,
        )
        status = {"attached": True, "attachmentMetadata": metadata, "attachError": None}
        await self._patch_status(attachment, status)

    async def let_go(self, attachment: Attachment) -> None:
        """Release the object: the finalizer first, or the status would start another detach."""
        remove = {"$deleteFromPrimitiveList/finalizers": [self._finalizer]}
        patch = {"metadata": {"uid": attachment.uid, **remove}}
        try:
            left = await self._client.patch(
                ATTACHMENTS, attachment.name, patch, kind=Patch.STRATEGIC
            )
            self._caches.attachments.observe(left)
            if left.finalizers:  # another finalizer still holds the object
                gone = {"attached": False, "detachError": None, "attachmentMetadata": None}
                await self._patch_status(left, gone)
        except KubeError as error:
            if error.reason not in CHANGED_MEANWHILE:
                raise

    async def tell(self, attachment: Attachment, error: StorageError | None) -> None:
        """Write the error to the status, once; the volume controller shows it in a pod event.

        Except that another replica continues: it would make the volume controller give up its try.
        """
        if error is None or error.reason is Reason.NOT_LEADING:
            return
        field = "detachError" if attachment.deleting else "attachError"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status: dict[str, Any] = {field: {"message": error.message, "time": now}}
        if field == "attachError":
            status[field]["errorCode"] = _CODES.get(error.reason, _INTERNAL)
        before = attachment.status
        known = before and (before.detach_error if attachment.deleting else before.attach_error)
        if known and known.message == error.message:
            return
        try:
            await self._patch_status(attachment, status)
        except KubeError as failure:
            log.warning(
                "cannot write an error to the status of a VolumeAttachment",
                attachment=attachment.name,
                error=failure.message,
            )

    async def _patch_status(self, attachment: Attachment, status: dict[str, Any]) -> None:
        """Merge into ``status`` of this very attachment."""
        patch = {"metadata": {"uid": attachment.uid}, "status": status}
        changed = await self._client.patch(
            ATTACHMENTS, attachment.name, patch, kind=Patch.MERGE, subresource="status"
        )
        self._caches.attachments.observe(changed)


def _age(attachment: Attachment) -> tuple[float, str]:
    """Orders two attachments by age, the same on each pass."""
    made = attachment.metadata.creation_timestamp
    return made.timestamp() if made is not None else 0.0, attachment.name
