"""Detach: take a volume off its instance, and let go of the object once EC2 has confirmed it."""

from dataclasses import replace
from typing import assert_never

import structlog

from provisioner import clock
from provisioner.controller.attaching import detach_rules as rules
from provisioner.controller.attaching.detach_rules import Release
from provisioner.controller.attaching.rules import (
    Call,
    Detach,
    Kind,
    Target,
    Wait,
)
from provisioner.controller.attaching.state import (
    CHECK_AGAIN,
    AttachmentRecord,
    AttachmentState,
    NoLongerWantedError,
    asked_to_detach,
)
from provisioner.controller.shared.services import Services
from provisioner.model.attachment import NODE_ID, Attachment, attachment_name
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, SETTLED, Later, Next, Settled
from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.model.ids import is_instance_id
from provisioner.model.persistent_volume import finalizer_of_attacher

_GONE = (Reason.VOLUME_NOT_FOUND, Reason.INSTANCE_NOT_FOUND)

log = structlog.get_logger(__name__)


class Detacher:
    """Steps of attachments that are being deleted, and of attaches that got stuck."""

    def __init__(
        self, services: Services, state: AttachmentState, record: AttachmentRecord
    ) -> None:
        self._driver = services.settings.driver
        self._caches = services.caches
        self._ec2 = services.instances
        self._state = state
        self._record = record
        self._before_us: set[str] = set()
        self._took_over_s = 0.0

    def take_over(self) -> None:
        """Note the attachments for which another process may have a call in flight."""
        self._took_over_s = clock.now_s()
        self._before_us = {each.uid for each in self._caches.attachments.values()}

    def forget(self, attachment: Attachment) -> None:
        """Its object is gone; sooner it might come back, with a restore of etcd."""
        if clock.now_s() >= self._took_over_s + CONSISTENCY_S:
            self._before_us.discard(attachment.uid)

    def never_attached(self, attachment: Attachment, target: Target) -> None:
        """No AttachVolume was sent for it: what EC2 shows decides, as after a refused detach.

        So hundreds of them that are deleted at once do not wait for the quota of DetachVolume.
        """
        now = self._caches.attachments.get(attachment.name)
        if now is not None and now.uid == attachment.uid:
            self._state.calls[now.uid] = Call(Kind.DETACH, target, clock.now_s(), refused=True)

    async def advance(self, attachment: Attachment) -> Next:
        """Make one pass over an attachment that is being deleted."""
        if finalizer_of_attacher(self._driver) not in attachment.finalizers:
            return SETTLED
        before_us = attachment.uid in self._before_us
        late_s = self._took_over_s + CONSISTENCY_S if before_us else 0.0
        target = await self._target(attachment)
        if not target.volume_id:  # the instance is gone, or has no such volume
            if clock.now_s() < late_s:
                return CHECK_AGAIN
            await self._release(attachment, target)
            return SETTLED
        if await self._is_kept(attachment, target):
            return await self._leave(attachment, target)
        # DetachVolume's reply tells the name too, but may be lost, or was an earlier process's.
        self._ec2.devices.leaving(target.instance_id, target.volume_id, attachment.device)
        step = rules.next_detach_step(
            attachment,
            target,
            driver=self._driver,
            view=self._state.view(attachment, target.volume_id),
            now_s=clock.now_s(),
            look_first=before_us,
            attach_may_be_under_way_until_s=late_s,
        )
        match step:
            case Settled():
                return SETTLED
            case Detach(target=target):
                return await self.send(attachment, target)
            case Wait(volume_id=volume_id, message=message):
                error = StorageError(Reason.VOLUME_IN_USE, message) if message else None
                self._state.watch(attachment, volume_id)
                await self._record.tell(attachment, self._state.trouble_with(volume_id) or error)
                return CHECK_AGAIN
            case Release():
                await self._release(attachment, target)
                return SETTLED
            case _:
                assert_never(step)

    async def _target(self, attachment: Attachment) -> Target:
        """What to detach from which instance; no volume id if the instance no longer has it."""
        pv_name = attachment.spec.source.persistent_volume_name
        is_recorded = bool(attachment.annotations.get(NODE_ID))
        node_name = attachment.spec.node_name
        volume_id, instance_id = rules.target_to_detach(
            attachment,
            driver=self._driver,
            persistent_volume=await self._caches.persistent_volume(pv_name) if pv_name else None,
            # A CSINode that is gone would be asked for in each pass, also of a thousand nodes.
            csi_node=None if is_recorded else await self._caches.csi_node(node_name),
        )
        if not instance_id:
            raise StorageError(
                Reason.OBJECT_NOT_FOUND,
                f"the instance to detach from is unknown: node {attachment.spec.node_name} has no "
                "CSINode entry and the VolumeAttachment has no instance recorded; remove the "
                "finalizer of the VolumeAttachment only once EC2 shows the volume detached "
                f"(aws ec2 describe-volumes --volume-ids {volume_id or 'VOLUME'})",
            )
        if not volume_id and not is_instance_id(instance_id):
            raise StorageError(
                Reason.NOT_SUPPORTED,
                f"the volume to detach from {instance_id[:100]!r} is unknown: its PersistentVolume "
                "is gone, and this is not an EC2 instance; remove the finalizer of the "
                "VolumeAttachment only once EC2 shows the volume detached "
                "(aws ec2 describe-volumes)",
            )
        if not volume_id:
            volume_id = await self._volume_by_name(attachment, instance_id)
        return Target(volume_id, instance_id)

    async def _volume_by_name(self, attachment: Attachment, instance_id: str) -> str:
        """Find the volume of an attachment whose persistent volume was removed by force.

        The name of an attachment is a hash of the volume's id.
        """
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

    async def send(self, attachment: Attachment, target: Target) -> Later:
        """Call DetachVolume once."""
        last = self._state.calls.get(attachment.uid)
        after_attach = last is not None and last.kind is Kind.ATTACH
        uncertain = after_attach and last is not None and last.uncertain
        call = Call(Kind.DETACH, target, clock.now_s(), uncertain=uncertain)
        self._state.calls[attachment.uid] = call
        try:
            await self._ec2.detach(
                target.volume_id,
                target.instance_id,
                gate=lambda: self._still_wanted(attachment, target),
            )
        except NoLongerWantedError:
            self._state.restore(attachment, last)
            return AGAIN
        except StorageError as error:
            if error.reason in _GONE and attachment.deleting:
                await self._release(attachment, target)
                return CHECK_AGAIN
            if error.reason in (Reason.NOT_ATTACHED, *_GONE):
                # Right after an attach EC2 may not know of it yet: what it shows later decides.
                call = replace(call, refused=True, uncertain=uncertain or after_attach)
            elif error.outcome is Outcome.UNKNOWN:
                call = replace(call, uncertain=True)
            else:
                self._state.restore(attachment, last)
                raise
        # Not when it began to wait for the limiter, which can take minutes.
        self._state.calls[attachment.uid] = replace(call, sent_at_s=clock.now_s())
        self._state.watch(attachment, target.volume_id, asked_to_detach(target))
        return CHECK_AGAIN

    def _still_wanted(self, attachment: Attachment, target: Target) -> None:
        """The last check, once the limiter has granted the call."""
        seen = self._state.view(attachment, target.volume_id).seen
        if not rules.is_still_wanted(
            attachment,
            self._caches.attachments.get(attachment.name),
            seen.on(target.instance_id) if seen is not None else None,
        ):
            raise NoLongerWantedError

    async def _is_kept(self, attachment: Attachment, target: Target) -> bool:
        """See ``detach_rules.is_kept``; a cache may show one that is gone, and is not enough."""
        of_volume = self._state.of_volume
        if not rules.is_kept(attachment, target, of_volume(target.volume_id)):
            return False
        await self._caches.certain(self._caches.attachments)
        return rules.is_kept(attachment, target, of_volume(target.volume_id))

    async def _leave(self, attachment: Attachment, target: Target) -> Settled:
        """Let go of the object alone; see ``detach_rules.is_kept``."""
        await self._record.let_go(attachment)
        log.info("kept the volume for another attachment", instance=target.instance_id)
        return SETTLED

    async def _release(self, attachment: Attachment, target: Target) -> None:
        self._ec2.release(target.instance_id, target.volume_id)
        # Removing the finalizer ends the object; the watch may show that before the reply comes.
        took_s = self._state.age_s(attachment)
        await self._record.let_go(attachment)
        self._state.finish(attachment, "detach", took_s)
        log.info("volume detached", instance=target.instance_id)
