"""Detach: take a volume off its instance, and let go of the object once EC2 has confirmed it."""

from dataclasses import replace
from typing import assert_never

import structlog

from provisioner import clock
from provisioner.controller.attaching import rules
from provisioner.controller.attaching.state import AttachmentMemory
from provisioner.controller.attaching.record import AttachmentRecord
from provisioner.controller.attaching.rules import (
    Call,
    Detach,
    Kind,
    Nothing,
    Release,
    Target,
    Wait,
)
from provisioner.controller.shared.caches import Caches
from provisioner.ec2.attachments import Attachments
from provisioner.model.attachment import Attachment, attachment_name
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.model.ids import is_instance_id
from provisioner.model.persistent_volume import finalizer_of_attacher

LOOK_AGAIN_S = 10.0
_NOT_BEFORE_S = 1.0  # most detachments take 1 to 4 s (aws-ebs-csi-driver)
_GONE = (Reason.VOLUME_NOT_FOUND, Reason.INSTANCE_NOT_FOUND)

log = structlog.get_logger(__name__)


class NoLongerWantedError(Exception):
    """A call was not sent: while it waited for its turn, what it was for has changed."""


class Detacher:
    """Steps of attachments that are being deleted, and of attaches that got stuck."""

    def __init__(
        self,
        *,
        driver: str,
        caches: Caches,
        attachments: Attachments,
        memory: AttachmentMemory,
        record: AttachmentRecord,
    ) -> None:
        self._driver = driver
        self._caches = caches
        self._ec2 = attachments
        self._memory = memory
        self._record = record
        self._before_us: frozenset[str] = frozenset()
        self._took_over_s = 0.0

    def take_over(self) -> None:
        """Note which attachments another process may have a call under way for."""
        self._took_over_s = clock.now_s()
        self._before_us = frozenset(a.uid for a in self._caches.attachments.values())

    def never_attached(self, attachment: Attachment, target: Target) -> None:
        """No AttachVolume was sent for it: looks at EC2 decide, as after a refused detach.

        So hundreds of them that are deleted at once do not wait for the quota of DetachVolume.
        """
        now = self._caches.attachments.get(attachment.name)
        if now is not None and now.uid == attachment.uid:
            self._memory.calls[now.uid] = Call(Kind.DETACH, target, clock.now_s(), refused=True)

    async def advance(self, attachment: Attachment) -> float | None:
        """One step; seconds until the next look, None once settled."""
        if finalizer_of_attacher(self._driver) not in attachment.finalizers:
            return None
        before_us = attachment.uid in self._before_us
        late_s = self._took_over_s + CONSISTENCY_S if before_us else 0.0
        target = await self._target(attachment)
        if not target.volume_id:  # the instance is gone, or has no such volume
            if clock.now_s() < late_s:
                return LOOK_AGAIN_S
            await self._release(attachment, target)
            return None
        step = rules.next_detach_step(
            attachment,
            target,
            driver=self._driver,
            view=self._memory.view(attachment, target.volume_id),
            now_s=clock.now_s(),
            look_first=before_us,
            attach_may_be_under_way_until_s=late_s,
        )
        match step:
            case Nothing():
                return None
            case Detach(target=target):
                return await self.send(attachment, target)
            case Wait(volume_id=volume_id, message=message):
                error = StorageError(Reason.VOLUME_IN_USE, message) if message else None
                self._memory.watch(attachment, volume_id)
                await self._record.tell(attachment, self._memory.trouble_with(volume_id) or error)
                return LOOK_AGAIN_S
            case Release():
                await self._release(attachment, target)
                return None
            case _:
                assert_never(step)

    async def _target(self, attachment: Attachment) -> Target:
        """What to take off where; without a volume id when the instance no longer has it."""
        pv_name = attachment.spec.source.persistent_volume_name
        volume_id, instance_id = rules.target_to_detach(
            attachment,
            driver=self._driver,
            persistent_volume=await self._caches.persistent_volume(pv_name) if pv_name else None,
            csi_node=await self._caches.csi_node(attachment.spec.node_name),
        )
        if not instance_id:
            raise StorageError(
                Reason.OBJECT_NOT_FOUND,
                f"cannot tell from which instance to detach: node {attachment.spec.node_name} has "
                "no CSINode entry and nothing was recorded; check the volume in EC2, then remove "
                "the attachment's finalizer",
            )
        if not volume_id and not is_instance_id(instance_id):
            raise StorageError(
                Reason.NOT_SUPPORTED,
                f"cannot tell which volume to detach from {instance_id[:100]!r}, which is no EC2 "
                "instance: its PersistentVolume is gone; look for the volume in EC2, then remove "
                "the attachment's finalizer",
            )
        if not volume_id:
            volume_id = await self._volume_by_name(attachment, instance_id)
        return Target(volume_id, instance_id)

    async def _volume_by_name(self, attachment: Attachment, instance_id: str) -> str:
        """Its persistent volume was removed by force, but its name is a hash of the handle."""
        try:
            instance = await self._ec2.instance(instance_id)
        except StorageError as error:
            if error.reason is Reason.INSTANCE_NOT_FOUND:
                return ""
            raise
        node = attachment.spec.node_name
        return next(
            (
                volume_id
                for volume_id in instance.devices.values()
                if attachment_name(volume_id, self._driver, node) == attachment.name
            ),
            "",
        )

    async def send(self, attachment: Attachment, target: Target) -> float:
        """Call DetachVolume once; seconds until the next look."""
        last = self._memory.calls.get(attachment.uid)
        after_attach = last is not None and last.kind is Kind.ATTACH
        uncertain = after_attach and last is not None and last.uncertain
        call = Call(Kind.DETACH, target, clock.now_s(), uncertain=uncertain)
        self._memory.calls[attachment.uid] = call
        try:
            await self._ec2.detach(
                target.volume_id,
                target.instance_id,
                gate=lambda: self._still_wanted(attachment, target),
            )
        except NoLongerWantedError:
            self._memory.restore(attachment, last)
            return 0.0
        except StorageError as error:
            if error.reason in _GONE and attachment.deleting:
                await self._release(attachment, target)
                return LOOK_AGAIN_S
            if error.reason in (Reason.NOT_ATTACHED, *_GONE):
                # Right after an attach EC2 may not know of it yet: then the looks decide.
                call = replace(call, refused=True, uncertain=uncertain or after_attach)
            elif error.outcome is Outcome.UNKNOWN:
                call = replace(call, uncertain=True)
            else:
                self._memory.restore(attachment, last)
                raise
        # The wait for its turn can take minutes, and says nothing about EC2.
        self._memory.calls[attachment.uid] = replace(call, sent_at_s=clock.now_s())
        self._memory.watch(attachment, target.volume_id, _NOT_BEFORE_S)
        return LOOK_AGAIN_S

    def _still_wanted(self, attachment: Attachment, target: Target) -> None:
        """The last look, once the limiter has granted the call."""
        seen = self._memory.view(attachment, target.volume_id).seen
        if not rules.is_still_wanted(
            attachment,
            self._caches.attachments.get(attachment.name),
            seen.on(target.instance_id) if seen is not None else None,
        ):
            raise NoLongerWantedError

    async def _release(self, attachment: Attachment, target: Target) -> None:
        self._ec2.release(target.instance_id, target.volume_id)
        # Letting go ends the object, and word of that may come before its answer.
        took_s = self._memory.age_s(attachment)
        await self._record.let_go(attachment)
        self._memory.finish(attachment, "detach", took_s)
        log.info("volume detached", instance=target.instance_id)
