"""Attach: from a VolumeAttachment to a volume on an instance.

Level-triggered: a look observes, sends at most one call and ends; the watcher or an informer wakes
it. So a deletion interrupts a waiting attach, and a restart goes on where EC2 stands.
"""

from dataclasses import replace
from functools import partial
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner.clock import now_s
from provisioner.controller.attaching import rules
from provisioner.controller.attaching.detach import LOOK_AGAIN_S, Detacher, NoLongerWantedError
from provisioner.controller.attaching.initialization import DataWaits
from provisioner.controller.attaching.state import AttachmentMemory
from provisioner.controller.attaching.record import AttachmentRecord
from provisioner.controller.attaching.rules import Call, Kind, Target
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.attachments import Attachments
from provisioner.ec2.limiter import Turn
from provisioner.ec2.watcher import VolumeWatcher
from provisioner.kube.client import KubeClient
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import PODS
from provisioner.metrics import Metrics
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.errors import OUTAGE, Outcome, Reason, StorageError
from provisioner.model.names import VOLUME_ID
from provisioner.model.node import CsiNode
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.pod import naming_volumes

_NOT_BEFORE_S = 1.0  # most attachments take 1 to 4 s (aws-ebs-csi-driver)
_PATIENCE_S = 30.0
# What ends in EC2, of which no event tells.
_PASSES = frozenset({Reason.INSTANCE_FULL, Reason.INSTANCE_STATE, Reason.VOLUME_STATE})

log = structlog.get_logger(__name__)


class Attacher:
    """The flow of attachments; keys are their names, memory is by UID."""

    def __init__(
        self,
        *,
        driver: str,
        client: KubeClient,
        caches: Caches,
        attachments: Attachments,
        watcher: VolumeWatcher,
        data: DataWaits,
        unclaimed: UnclaimedTags,
        metrics: Metrics,
    ) -> None:
        self._driver = driver
        self._client = client
        self._caches = caches
        self._unclaimed = unclaimed
        self._ec2 = attachments
        self._turns: dict[str, Turn] = {}  # by UID: an AttachVolume that waits for the limiter
        self.queue = KeyedQueue("attach", self.reconcile, metrics, soon=OUTAGE | _PASSES)
        self._memory = AttachmentMemory(
            caches=caches,
            watcher=watcher,
            data=data,
            unclaimed=unclaimed,
            metrics=metrics,
            wake=self.queue.add,
        )
        self._record = AttachmentRecord(driver=driver, client=client, caches=caches)
        self.detacher = Detacher(
            driver=driver,
            caches=caches,
            attachments=attachments,
            memory=self._memory,
            record=self._record,
        )

    def subscribe(self) -> None:
        """Have attachments looked at when they change."""
        self._caches.attachments.subscribe(self._changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)
        self._caches.csi_nodes.subscribe(self._registration_changed)

    def _changed(self, old: Attachment | None, new: Attachment | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._memory.forget(old)
            self._leave_turn(old)
            # Removed by force, nobody has let go of the device's name. Should the volume still be
            # there, EC2 shows the name as taken.
            recorded = old.annotations
            self._ec2.release(recorded.get(NODE_ID, ""), recorded.get(VOLUME_ID, ""))
        if new is not None and new.spec.attacher == self._driver and rules.is_new(old, new):
            if new.deleting:
                self._leave_turn(new)
            self.queue.add(new.name)

    def _leave_turn(self, attachment: Attachment) -> None:
        """Its attach may have minutes to wait; it was not sent, so there is nothing to undo."""
        turn = self._turns.get(attachment.uid)
        if turn is not None:
            turn.leave(NoLongerWantedError())

    def _persistent_volume_changed(
        self, old: PersistentVolume | None, new: PersistentVolume | None
    ) -> None:
        """An attachment whose object was not there yet, or was force-removed and came back."""
        if old is None and new is not None:
            for attachment in self._caches.attachments.keyed("persistent_volume", new.name):
                self._changed(None, attachment)

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        """The node plugin has registered, or under another instance: its attachments can go on."""
        before = old.driver(self._driver) if old is not None else None
        after = new.driver(self._driver) if new is not None else None
        if new is None or after is None or (before and before.node_id == after.node_id):
            return
        for attachment in self._caches.attachments.keyed("node", new.name):
            self._changed(None, attachment)

    async def reconcile(self, name: str) -> float | None:
        """Move one attachment a step on; seconds until the next look, None once settled."""
        attachment = self._caches.attachments.get(name)
        if attachment is None or attachment.spec.attacher != self._driver:
            return None
        self._name_in_logs(attachment)
        self._memory.begin(attachment)
        try:
            if attachment.deleting:
                return await self.detacher.advance(attachment)
            if attachment.attached:
                self._memory.forget(attachment)
                return None
            if self._memory.still_waits(attachment):
                return LOOK_AGAIN_S
            return await self._attach(attachment)
        except StorageError as error:
            if attachment.uid not in self._memory.calls:
                self._memory.let_others_go(attachment)
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

    async def _attach(self, attachment: Attachment) -> float | None:
        pv_name = attachment.spec.source.persistent_volume_name
        persistent_volume = await self._caches.persistent_volume(pv_name) if pv_name else None
        target = rules.target_to_attach(
            attachment,
            driver=self._driver,
            persistent_volume=persistent_volume,
            node=await self._caches.node(attachment.spec.node_name),
            csi_node=await self._caches.csi_node(attachment.spec.node_name),
        )
        if isinstance(target, rules.Refuse):
            raise StorageError(target.reason, target.message)
        if not pv_name and attachment.uid not in self._memory.calls:
            await self._refuse_strangers(attachment.spec.node_name, target.volume_id)
        prepared = False
        while True:
            view = self._memory.view(attachment, target.volume_id)
            step = rules.next_attach_step(
                attachment, target, persistent_volume, driver=self._driver, view=view, now_s=now_s()
            )
            step = self._memory.checked(attachment, target, persistent_volume, step)
            match step:
                case rules.Prepare() if not prepared:
                    if persistent_volume is not None and step.hold_persistent_volume:
                        persistent_volume = await self._record.hold(persistent_volume)
                    attachment = await self._record.prepare(attachment, target)
                    prepared = True
                case rules.Prepare():
                    raise _taken_out(attachment)
                case rules.Attach():
                    waits_s = await self._send_attach(attachment, target)
                    if waits_s > 0:
                        return waits_s
                case rules.Attached() if self._memory.waits(attachment, persistent_volume, view):
                    return LOOK_AGAIN_S
                case rules.Attached():
                    await self._attached(attachment, step)
                    return None
                case _:
                    return await self._wait(attachment, step)

    async def _refuse_strangers(self, node_name: str, volume_id: str) -> None:
        """Nobody gets another tenant's volume by naming its id in a pod."""
        holders = rules.holders_of(self._caches.persistent_volumes.keyed("volume", volume_id))
        if not holders:
            return
        on_node = f"spec.nodeName={node_name}"
        pods = await self._client.list(PODS, field_selector=on_node, keep=naming_volumes)
        refusal = rules.strangers_use(volume_id, node_name, holders, pods.items)
        if refusal is not None:
            raise StorageError(refusal.reason, refusal.message)

    async def _send_attach(self, attachment: Attachment, target: Target) -> float:
        """Call AttachVolume once; 0 when the world was only looked at, else seconds to wait."""
        instance = await self._ec2.instance(target.instance_id)
        there_already = target.volume_id in instance.devices.values()
        device = self._ec2.devices.reserve(target.instance_id, target.volume_id, instance.devices)
        last = self._memory.calls.get(attachment.uid)
        taken = rules.taken_before(last, target)
        if taken > 1:
            log.warning("EC2 drops an attachment that it took; trying again", taken=taken)
        call = Call(Kind.ATTACH, target, now_s(), uncertain=True, taken=taken)
        # Before the send: if we are cut off, it may have been.
        self._memory.calls[attachment.uid] = call
        if not there_already:
            try:
                await self._attach_in_turn(attachment, target, device)
            except NoLongerWantedError:
                self._memory.restore(attachment, last)
                if last is None:
                    self.detacher.never_attached(attachment, target)
                return LOOK_AGAIN_S  # what has changed has woken it too
            except StorageError as error:
                if error.reason is not Reason.VOLUME_IN_USE and error.outcome is Outcome.NOTHING:
                    self._memory.restore(attachment, last)
                    return self._after_refusal(attachment, target, device, error)
            else:
                call = replace(call, uncertain=False, taken=taken + 1)
            # The wait for its turn can take minutes, and says nothing about EC2.
            self._memory.calls[attachment.uid] = replace(call, sent_at_s=now_s())
        self._memory.watch(attachment, target.volume_id, _NOT_BEFORE_S)
        return LOOK_AGAIN_S

    async def _attach_in_turn(self, attachment: Attachment, target: Target, device: str) -> None:
        """Wait for the limiter, then call; the object's deletion ends the wait."""
        turn = self._turns[attachment.uid] = Turn()
        try:
            # Not if it went while the instance was looked at.
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
        """The last look before a call: raises NoLongerWantedError if the wish is gone."""
        now = self._caches.attachments.get(attachment.name)
        if now is None or now.uid != attachment.uid or now.deleting:
            raise NoLongerWantedError

    def _after_refusal(
        self, attachment: Attachment, target: Target, device: str, error: StorageError
    ) -> float:
        """Seconds until the next try of an attach that EC2 refused for certain; or its error."""
        if error.reason is Reason.DEVICE_IN_USE:
            self._ec2.devices.mark_bad(target.instance_id, device)
            return 0.0  # the next look takes another name
        if error.reason is Reason.VOLUME_STATE and self._memory.age_s(attachment) < _PATIENCE_S:
            return 1.0  # it is being made, or is leaving another instance
        raise error

    async def _attached(self, attachment: Attachment, found: rules.Attached) -> None:
        await self._record.attached(attachment, found)
        self._memory.finish(attachment, "attach", self._memory.age_s(attachment))
        log.info("volume attached", instance=found.target.instance_id, device=found.device)

    async def _wait(self, attachment: Attachment, step: rules.Waiting) -> float | None:
        match step:
            case rules.Refuse(reason=reason, message=message):
                raise StorageError(reason, message)
            case rules.Detach(target=target):
                return await self.detacher.send(attachment, target)
            case rules.Untag(volume_id=volume_id):
                await self._record.tell(attachment, self._unclaimed.trouble_with(volume_id))
                wake = partial(self.queue.add, attachment.name)
                self._unclaimed.remove(volume_id, wake, who=attachment.uid)
                self._memory.watch(attachment, volume_id)
                return None
            case rules.Wait(volume_id=volume_id, message=message):
                error = StorageError(Reason.VOLUME_STATE, message) if message else None
                self._memory.watch(attachment, volume_id)
                await self._record.tell(attachment, self._memory.trouble_with(volume_id) or error)
                return LOOK_AGAIN_S
            case _:
                assert_never(step)


def _taken_out(attachment: Attachment) -> StorageError:
    """What to say when somebody undoes what was written to hold an attachment."""
    return StorageError(
        Reason.CONFLICT,
        f"the finalizer or the annotations that were written to VolumeAttachment {attachment.name}"
        " or its PersistentVolume were taken out again at once; look for the webhook that does so",
    )
