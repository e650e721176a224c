"""Attach: from a VolumeAttachment to a volume on an instance.

Level-triggered: a pass observes, sends at most one call and ends; a watcher or an informer starts
the next one. So a deletion interrupts a waiting attach, and a restart continues where EC2 stands.
"""

from dataclasses import replace
from functools import partial
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner.clock import now_s
from provisioner.controller.attaching import rules
from provisioner.controller.attaching.detach import Detacher
from provisioner.controller.attaching.rules import Call, Kind, Target
from provisioner.controller.attaching.state import (
    CHECK_AGAIN,
    AttachmentRecord,
    AttachmentState,
    NoLongerWantedError,
    asked_to_attach,
)
from provisioner.controller.shared.services import Services
from provisioner.ec2.limiter import Turn
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import PODS
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.decision import AGAIN, SETTLED, WHEN_WOKEN, Later, Next, Refuse
from provisioner.model.errors import RETRY_SOON, Outcome, Reason, StorageError
from provisioner.model.names import HELD_FOR_MOVE, VOLUME_ID
from provisioner.model.node import CsiNode
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.pod import naming_volumes

_PATIENCE_S = 30.0
# These end in EC2, and no event of Kubernetes tells when.
_PASSES = frozenset({Reason.INSTANCE_FULL, Reason.INSTANCE_STATE, Reason.VOLUME_STATE})

log = structlog.get_logger(__name__)


class Attacher:
    """The flow of attachments; keys are their names."""

    def __init__(self, services: Services) -> None:
        self._driver = services.settings.driver
        self._client = services.client
        self._caches = services.caches
        self._unclaimed = services.unclaimed
        self._ec2 = services.instances
        self._turns: dict[str, Turn] = {}  # by UID: an AttachVolume that waits for the limiter
        self.queue = KeyedQueue(
            "attach", self.reconcile, services.metrics, soon=RETRY_SOON | _PASSES
        )
        self._state = AttachmentState(services, wake=self.queue.add)
        self._record = AttachmentRecord(services)
        self.detacher = Detacher(services, self._state, self._record)

    def subscribe(self) -> None:
        """Have attachments examined when they, their volumes or their nodes change."""
        self._caches.attachments.subscribe(self._changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)
        self._caches.csi_nodes.subscribe(self._registration_changed)

    def _changed(self, old: Attachment | None, new: Attachment | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._state.forget(old)
            self.detacher.forget(old)
            self._leave_turn(old)
            # If it was removed by force, its device name is still reserved, or will be free soon.
            # Should the volume still be attached, EC2 shows the name as taken.
            at = old.annotations.get(NODE_ID, ""), old.annotations.get(VOLUME_ID, "")
            self._ec2.devices.leaving(*at, old.device)
            self._ec2.release(*at)
        is_wanted = new is not None and new.spec.attacher == self._driver and rules.is_new(old, new)
        if new is not None and is_wanted and not self._was_done_before(new):
            if new.deleting:
                self._leave_turn(new)
            self.queue.add(new.name)

    def _was_done_before(self, attachment: Attachment) -> bool:
        """Whether nothing is left to do or to forget: at the start, of nearly all of them."""
        is_done = attachment.attached and not attachment.deleting
        return is_done and not self._state.has_begun(attachment)

    def _leave_turn(self, attachment: Attachment) -> None:
        """End the wait of its AttachVolume; it was not sent, so there is nothing to undo."""
        turn = self._turns.get(attachment.uid)
        if turn is not None:
            turn.leave(NoLongerWantedError())

    def _persistent_volume_changed(
        self, old: PersistentVolume | None, new: PersistentVolume | None
    ) -> None:
        """Wake attachments whose persistent volume is new, or is not held for a move any more."""
        was_held = old is not None and HELD_FOR_MOVE in old.annotations
        if new is not None and (old is None or (was_held and HELD_FOR_MOVE not in new.annotations)):
            for attachment in self._caches.attachments.keyed("persistent_volume", new.name):
                self._changed(None, attachment)

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        """Wake the attachments of a node whose plugin has registered, or as another instance."""
        before = old.driver(self._driver) if old is not None else None
        after = new.driver(self._driver) if new is not None else None
        if new is None or after is None or (before and before.node_id == after.node_id):
            return
        for attachment in self._caches.attachments.keyed("node", new.name):
            self._changed(None, attachment)

    async def reconcile(self, name: str) -> Next:
        """Make one pass over an attachment."""
        attachment = self._caches.attachments.get(name)
        if attachment is None or attachment.spec.attacher != self._driver:
            return SETTLED
        self._name_in_logs(attachment)
        self._state.begin(attachment)
        try:
            if attachment.deleting:
                return await self.detacher.advance(attachment)
            if attachment.attached:
                self._state.forget(attachment)
                return SETTLED
            if self._state.waits_for_data(attachment):
                return CHECK_AGAIN
            return await self._attach(attachment)
        except StorageError as error:
            if attachment.uid not in self._state.calls:
                self._state.let_others_go(attachment)
            await self._record.tell(attachment, error)
            raise

    def _name_in_logs(self, attachment: Attachment) -> None:
        name = attachment.spec.source.persistent_volume_name or ""
        found = self._caches.persistent_volumes.get(name)
        holder = found.spec.claim_ref if found is not None else None
        bind_contextvars(
            claim=f"{holder.namespace}/{holder.name}" if holder is not None else "",
            persistent_volume=name,
            volume=(found and found.volume_id(self._driver))
            or attachment.annotations.get(VOLUME_ID, ""),
            node=attachment.spec.node_name,
        )

    async def _attach(self, attachment: Attachment) -> Next:
        pv_name = attachment.spec.source.persistent_volume_name
        persistent_volume = await self._caches.persistent_volume(pv_name) if pv_name else None
        target = rules.target_to_attach(
            attachment,
            driver=self._driver,
            persistent_volume=persistent_volume,
            node=await self._caches.node(attachment.spec.node_name),
            csi_node=await self._caches.csi_node(attachment.spec.node_name),
        )
        if isinstance(target, Refuse):
            raise StorageError(target.reason, target.message)
        if not pv_name and attachment.uid not in self._state.calls:
            await self._refuse_strangers(attachment.spec.node_name, target.volume_id)
        return await self._advance(attachment, target, persistent_volume)

    async def _advance(
        self, attachment: Attachment, target: Target, persistent_volume: PersistentVolume | None
    ) -> Next:
        """Take the steps that can be taken now."""
        prepared = False
        while True:
            view = self._state.view(attachment, target.volume_id)
            step = rules.next_attach_step(
                attachment,
                target,
                persistent_volume,
                driver=self._driver,
                view=view,
                now_s=now_s(),
                rivals=self._state.rivals(attachment, target),
            )
            self._state.note_step(attachment, step)
            match step:
                case rules.Prepare() if not prepared:
                    if persistent_volume is not None and step.hold_persistent_volume:
                        persistent_volume = await self._record.hold(persistent_volume)
                    attachment = await self._record.prepare(attachment, target)
                    prepared = True
                case rules.Prepare():
                    raise _taken_out(attachment)
                case rules.Attach():
                    self._refuse_held(attachment)
                    after = await self._send_attach(attachment, target)
                    if after != AGAIN:
                        return after
                case rules.Attached() if self._state.lacks_data(
                    attachment, persistent_volume, view
                ):
                    return CHECK_AGAIN
                case rules.Attached():
                    await self._attached(attachment, step)
                    return SETTLED
                case _:
                    return await self._wait(attachment, step)

    def _refuse_held(self, attachment: Attachment) -> None:
        """Look once more: the hold of a move may have come after this pass began.

        From then on it is certain that nothing is sent for an attachment that was not recorded
        before (``moving/flow.py``).
        """
        name = attachment.spec.source.persistent_volume_name or ""
        found = self._caches.persistent_volumes.get(name)
        refused = rules.held(found) if found is not None else None
        if refused is not None:
            raise StorageError(refused.reason, refused.message)

    async def _refuse_strangers(self, node_name: str, volume_id: str) -> None:
        """Refuse a volume of another tenant, which a pod names by its id."""
        holders = rules.holders_of(self._caches.persistent_volumes.keyed("volume", volume_id))
        if not holders:
            return
        on_node = f"spec.nodeName={node_name}"
        pods = await self._client.list(PODS, field_selector=on_node, keep=naming_volumes)
        refusal = rules.strangers_use(volume_id, node_name, holders, pods.items)
        if refusal is not None:
            raise StorageError(refusal.reason, refusal.message)

    async def _send_attach(self, attachment: Attachment, target: Target) -> Later:
        """Call AttachVolume once, under a device name that is free by what EC2 shows."""
        instance = await self._ec2.instance(target.instance_id)
        there_already = target.volume_id in instance.devices.values()
        device = self._ec2.devices.reserve(target.instance_id, target.volume_id, instance.devices)
        last = self._state.calls.get(attachment.uid)
        taken = rules.taken_before(last, target)
        if taken > 1:
            log.warning("EC2 accepted an attachment and dropped it; trying again", taken=taken)
        call = Call(Kind.ATTACH, target, now_s(), uncertain=True, taken=taken)
        # Noted before it is sent: if we are interrupted, it may have been sent.
        self._state.calls[attachment.uid] = call
        if not there_already:
            try:
                await self._attach_in_turn(attachment, target, device)
            except NoLongerWantedError:
                self._state.restore(attachment, last)
                if last is None:
                    self.detacher.never_attached(attachment, target)
                return CHECK_AGAIN  # the change has woken it as well
            except StorageError as error:
                if error.reason is not Reason.VOLUME_IN_USE and error.outcome is Outcome.NOTHING:
                    self._state.restore(attachment, last)
                    return self._after_refusal(attachment, target, device, error)
            else:
                call = replace(call, uncertain=False, taken=taken + 1)
            # Not when it began to wait for the limiter, which can take minutes.
            self._state.calls[attachment.uid] = replace(call, sent_at_s=now_s())
        self._state.watch(attachment, target.volume_id, asked_to_attach(target))
        return CHECK_AGAIN

    async def _attach_in_turn(self, attachment: Attachment, target: Target, device: str) -> None:
        """Wait for the limiter, then call; a deletion of the object ends the wait."""
        turn = self._turns[attachment.uid] = Turn()
        try:
            # It may have been deleted while EC2 was asked for the instance.
            self._still_wanted(attachment)
            await self._ec2.attach(
                target.volume_id,
                target.instance_id,
                device=device,
                gate=lambda: self._still_wanted(attachment),
                turn=turn,
            )
        finally:
            del self._turns[attachment.uid]

    def _still_wanted(self, attachment: Attachment) -> None:
        """The last check before a call.

        Raises:
            NoLongerWantedError: the attachment is gone or being deleted.
        """
        now = self._caches.attachments.get(attachment.name)
        if now is None or now.uid != attachment.uid or now.deleting:
            raise NoLongerWantedError

    def _after_refusal(
        self, attachment: Attachment, target: Target, device: str, error: StorageError
    ) -> Later:
        """When to try again after EC2 has certainly refused; raises the error if never."""
        if error.reason is Reason.DEVICE_IN_USE:
            self._ec2.devices.mark_bad(target.instance_id, device)
            return AGAIN  # under another name
        if error.reason is Reason.VOLUME_STATE and self._state.age_s(attachment) < _PATIENCE_S:
            return Later(1.0)  # it is being created, or is leaving another instance
        raise error

    async def _attached(self, attachment: Attachment, found: rules.Attached) -> None:
        self._ec2.devices.attached(found.target.instance_id, found.target.volume_id)
        await self._record.attached(attachment, found)
        self._state.finish(attachment, "attach", self._state.age_s(attachment))
        log.info("volume attached", instance=found.target.instance_id, device=found.device)

    async def _wait(self, attachment: Attachment, step: rules.Waiting) -> Next:
        match step:
            case Refuse(reason=reason, message=message):
                raise StorageError(reason, message)
            case rules.Detach(target=target):
                return await self.detacher.send(attachment, target)
            case rules.Untag(volume_id=volume_id):
                await self._record.tell(attachment, self._unclaimed.trouble_with(volume_id))
                wake = partial(self.queue.add, attachment.name)
                self._unclaimed.remove(volume_id, wake, who=attachment.uid)
                self._state.watch(attachment, volume_id)
                return WHEN_WOKEN
            case rules.Wait(volume_id=volume_id, message=message):
                error = StorageError(Reason.VOLUME_STATE, message) if message else None
                self._state.watch(attachment, volume_id)
                await self._record.tell(attachment, self._state.trouble_with(volume_id) or error)
                return CHECK_AGAIN
            case _:
                assert_never(step)


def _taken_out(attachment: Attachment) -> StorageError:
    return StorageError(
        Reason.CONFLICT,
        "the finalizer or the annotations that the controller wrote to VolumeAttachment "
        f"{attachment.name} or to its PersistentVolume were removed again at once; look for the "
        "webhook that removes them",
    )
