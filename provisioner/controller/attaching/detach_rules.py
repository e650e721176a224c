"""Decide the next step of an attachment that is being deleted, from what was observed.

No object is released before EC2 has confirmed that the volume is off the instance. ``rules`` has
what attach and detach share.
Source: external-attacher 4.12 pkg/controller/csi_handler.go; EC2 DetachVolume.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.controller.attaching.rules import (
    SEND_AGAIN_S,
    Detach,
    Kind,
    Target,
    View,
    Wait,
    named_volume,
)
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import SETTLED, Settled
from provisioner.model.ids import is_instance_id, is_volume_id
from provisioner.model.names import VOLUME_ID
from provisioner.model.node import CsiNode
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.volume import AttachmentState, InstanceAttachment

GONE_S = 10.0  # a volume that was known and is missing for this long is gone
BUSY_S = 60.0  # a detach that takes longer is reported to the user
STALLED_S = 120.0  # a detach that EC2 accepted and that has not begun is sent again


@dataclass(frozen=True, slots=True)
class Release:
    """EC2 has confirmed that the volume is off the instance: release the object."""

    volume_id: str


DetachStep = Settled | Detach | Wait | Release


def target_to_detach(
    attachment: Attachment,
    *,
    driver: str,
    persistent_volume: PersistentVolume | None,
    csi_node: CsiNode | None,
) -> tuple[str | None, str | None]:
    """Volume id and instance id as far as they are known.

    What was recorded at attach wins: a node that was recreated under its name is another instance.
    """
    volume_id = attachment.annotations.get(VOLUME_ID) or named_volume(
        attachment, persistent_volume, driver
    )
    instance_id = attachment.annotations.get(NODE_ID)
    if not instance_id and csi_node is not None:
        registered = csi_node.driver(driver)
        instance_id = registered.node_id if registered else None
    return volume_id, instance_id


def next_detach_step(
    attachment: Attachment,
    target: Target,
    *,
    driver: str,
    view: View,
    now_s: float,
    look_first: bool,
    attach_may_be_under_way_until_s: float,
) -> DetachStep:
    """The next step of an attachment that is being deleted.

    ``look_first``: an earlier process may have requested the detach already.
    ``attach_may_be_under_way_until_s``: until then a call of an earlier process may take effect.
    """
    if finalizer_of_attacher(driver) not in attachment.finalizers:
        return SETTLED
    if not is_volume_id(target.volume_id) or not is_instance_id(target.instance_id):
        return _by_no_call(target, view)
    call = view.call
    if call is None and look_first and _may_be_leaving(target, view):
        return Wait(target.volume_id)
    if call is None or call.kind is Kind.ATTACH or call.target != target:
        return Detach(target)
    if view.missing_for_s is not None and view.missing_for_s >= GONE_S:
        return Release(target.volume_id)
    there = view.seen.on(target.instance_id) if view.seen is not None else None
    waited_s = now_s - call.sent_at_s
    if there is not None:
        again_s = SEND_AGAIN_S if call.uncertain or call.refused else STALLED_S
        leaving = there.state in (AttachmentState.DETACHING, AttachmentState.BUSY)
        return _still_there(target, waited_s) if leaving or waited_s < again_s else Detach(target)
    if view.seen is None and not call.refused:
        return Wait(target.volume_id)
    # EC2 says that it is not attached. A volume that was seen attached before is off for good. But
    # an attach that was never seen may still take effect if its reply, or the detach's, was lost.
    lost_until_s = call.sent_at_s + CONSISTENCY_S if call.uncertain else 0.0
    late_s = max(lost_until_s, attach_may_be_under_way_until_s) if not attachment.attached else 0.0
    return Release(target.volume_id) if now_s >= late_s else Wait(target.volume_id)


def is_kept(attachment: Attachment, target: Target, others: Iterable[Attachment]) -> bool:
    """Whether the volume stays on the instance, for another attachment under another handle.

    Kubernetes takes a volume whose PersistentVolumes spell its id in two ways for two volumes, and
    another attacher may have attached both. To detach one would take the disk from the other's pod.

    Args:
        attachment: which is being deleted.
        target: its volume and instance.
        others: attachments of the same volume, also to other instances.
    """
    return any(
        each.uid != attachment.uid
        and not each.deleting
        and each.attached
        and each.annotations.get(NODE_ID) == target.instance_id
        for each in others
    )


def is_still_wanted(
    asked: Attachment, now: Attachment | None, there: InstanceAttachment | None
) -> bool:
    """Whether a detach that has waited for the limiter is still to be sent.

    ``asked``: the object for which it was decided; ``now``: the one under its name now. ``there``:
    the volume on the instance, as seen since. Two things can have changed: the object was removed
    by force and recreated, or a stuck attach has succeeded.
    """
    if now is None or now.deleting:
        return True
    if asked.deleting:
        return False
    return there is None or there.state is not AttachmentState.ATTACHED


def _by_no_call(target: Target, view: View) -> Wait | Release:
    """An attachment that DetachVolume does not accept; what EC2 shows of the volume decides.

    What is not a volume is attached nowhere. To SageMaker HyperPod nodes the stock driver attaches
    volumes by SageMaker's own call, and EC2 shows these attachments without an instance: API
    VolumeAttachment (read 2026-11-22), ``instanceId`` "returns null" for what AWS manages.
    """
    if not is_volume_id(target.volume_id):
        return Release(target.volume_id)
    if view.seen is None:
        is_gone = view.missing_for_s is not None and view.missing_for_s >= GONE_S
        return Release(target.volume_id) if is_gone else Wait(target.volume_id)
    if not view.seen.on(""):
        return Release(target.volume_id)
    return Wait(
        target.volume_id,
        f"volume {target.volume_id} is attached to {target.instance_id[:100]!r}, which is not an "
        "EC2 instance, so only the service that manages it (SageMaker HyperPod) can detach it; "
        "detach it there",
    )


def _may_be_leaving(target: Target, view: View) -> bool:
    if view.seen is None:
        return view.missing_for_s is None  # not described yet
    there = view.seen.on(target.instance_id)
    return there is not None and there.state in (AttachmentState.DETACHING, AttachmentState.BUSY)


def _still_there(target: Target, waited_s: float) -> Wait:
    if waited_s < BUSY_S:
        return Wait(target.volume_id)
    return Wait(
        target.volume_id,
        f"volume {target.volume_id} has been detaching from instance {target.instance_id} for "
        f"over {BUSY_S:.0f} s; it may still be mounted there: unmount it, or stop the instance",
    )
