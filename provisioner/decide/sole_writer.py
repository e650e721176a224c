"""Decide whether a volume may go to an instance while another one has it: not to be written twice.

EC2 gives a volume with Multi-Attach to whoever asks, and kube-controller-manager asks for several
nodes if any access mode of a PersistentVolume allows it (IsMultiAttachAllowed), for volumes that a
pod names by itself always. The kubelet tells the node plugin the first mode only. So only here can
it be seen that two nodes would mount one file system, and both to write to it.
Source: Kubernetes 1.36 pkg/volume/util/util.go, pkg/volume/csi/csi_attacher.go ``MountDevice``.
"""

from collections.abc import Set as AbstractSet

from provisioner.decide.attach import Attach, Attached, AttachStep, Refuse, Target, View, Wait
from provisioner.model.errors import Reason
from provisioner.model.volume import AttachmentState


def checked(
    step: AttachStep, target: Target, *, view: View, rivals: AbstractSet[str]
) -> AttachStep:
    """The step of an attachment that lets a node write to a file system, or what is done instead.

    ``rivals``: the other instances that have the volume or are getting it, as attachments record.
    Of a volume without Multi-Attach EC2 itself refuses the second instance.
    """
    if not isinstance(step, Attach | Attached):
        return step
    if view.seen is None:
        looks_first = rivals and view.missing_for_s is None
        return Wait(target.volume_id) if looks_first else step
    if not view.seen.multi_attach:
        return step
    states = {
        each.instance_id: each.state
        for each in view.seen.attachments
        if each.instance_id != target.instance_id and each.state is not AttachmentState.DETACHED
    }
    leaving = {each for each, state in states.items() if state is AttachmentState.DETACHING}
    others = (states.keys() - leaving) | rivals
    if others:
        return _refusal(target, others)
    return Wait(target.volume_id) if leaving else step


def _refusal(target: Target, others: AbstractSet[str]) -> Refuse:
    return Refuse(
        Reason.VOLUME_IN_USE,
        f"volume {target.volume_id} is attached, or being attached, to instance "
        f"{', '.join(sorted(others))}, so instance {target.instance_id} does not get it as well: "
        "EC2 would allow that (Multi-Attach), but a file system that two nodes write to is "
        "destroyed; delete the pods that use it there, or use a PersistentVolume with volumeMode "
        "Block, or with ReadOnlyMany as its only access mode",
    )
