"""Decide whether a volume may be attached to an instance while another one has it.

EC2 attaches a volume with Multi-Attach to any instance, and kube-controller-manager requests
several nodes if any access mode of a PersistentVolume allows it (IsMultiAttachAllowed), and always
for volumes that a pod names inline. The kubelet passes only the first mode to the node plugin. So
only here can it be seen that two nodes would mount one file system for writing.
Source: Kubernetes 1.36 pkg/volume/util/util.go, pkg/volume/csi/csi_attacher.go ``MountDevice``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from provisioner.controller.attaching.rules import (
    Attach,
    Attached,
    AttachStep,
    Target,
    View,
    Wait,
)
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.persistent_volume import READERS_MODE
from provisioner.model.volume import AttachmentState, Volume


@dataclass(frozen=True, slots=True)
class Rival:
    """Another attachment of the volume, and how far it is. ``instance_id``: as recorded, or "".

    ``is_going``: its AttachVolume may have been sent by this process.
    ``is_younger``: it gives way if both are attached and neither may be reported.
    """

    instance_id: str
    may_be_reported: bool = False
    is_going: bool = False
    is_younger: bool = False

    @property
    def gives_way(self) -> bool:
        """Whether it was certainly not reported to a node, and is the younger one."""
        return self.is_younger and not self.may_be_reported


def checked(
    step: AttachStep,
    target: Target,
    *,
    view: View,
    rivals: Sequence[Rival],
    is_for_readers: bool = False,
) -> AttachStep:
    """The step of an attachment that lets a node mount a file system, or what is done instead.

    Without Multi-Attach EC2 itself refuses the second instance. With it, readers are refused too,
    as aws-ebs-csi-driver does: the kernel writes even at a read-only mount, and a node that reads a
    file system while another one changes it gets corrupt data.
    """
    if not isinstance(step, Attach | Attached):
        return step
    others = [each for each in rivals if each.instance_id not in ("", target.instance_id)]
    if view.seen is None:
        # Also if the other one waits as well: the previous leader may have sent its AttachVolume.
        looks_first = (others or is_for_readers) and view.missing_for_s is None
        return Wait(target.volume_id) if looks_first else step
    if not view.seen.multi_attach:
        return step
    return _no_reader(target) if is_for_readers else _sole(step, target, view.seen, others)


def _sole(step: AttachStep, target: Target, seen: Volume, rivals: Sequence[Rival]) -> AttachStep:
    states = {
        each.instance_id: each.state
        for each in seen.attachments
        if each.instance_id != target.instance_id and each.state is not AttachmentState.DETACHED
    }
    getting = {each.instance_id for each in rivals if each.may_be_reported or each.is_going}
    others = states.keys() | getting
    if _is_on(seen, target.instance_id):
        # Otherwise two that are attached and not reported would refuse each other forever.
        others -= _instances(rivals) - _instances(r for r in rivals if not r.gives_way)
    leaving = {each for each in others if states.get(each) is AttachmentState.DETACHING} - getting
    if others - leaving:
        return _refusal(target, others - leaving)
    return Wait(target.volume_id) if leaving else step


def _no_reader(target: Target) -> Refuse:
    return Refuse(
        Reason.INVALID_REQUEST,
        f"volume {target.volume_id} has Multi-Attach, and its PersistentVolume has a file system "
        f"and {READERS_MODE} as its first access mode: other nodes may write to the volume at the "
        "same time, and reads would return corrupt data; use a PersistentVolume with "
        "ReadWriteOnce (a pod can still mount it with readOnly: true), or a volume without "
        "Multi-Attach",
    )


def _instances(rivals: Iterable[Rival]) -> set[str]:
    return {each.instance_id for each in rivals}


def _is_on(seen: Volume, instance_id: str) -> bool:
    there = seen.on(instance_id)
    return there is not None and there.state is not AttachmentState.DETACHING


def _refusal(target: Target, others: Iterable[str]) -> Refuse:
    return Refuse(
        Reason.VOLUME_IN_USE,
        f"volume {target.volume_id} is attached, or being attached, to instance "
        f"{', '.join(sorted(others))}, so it is not attached to instance {target.instance_id} as "
        "well: EC2 would allow that (Multi-Attach), but two nodes that write to one file system "
        "destroy it; delete the pods that use it there, or use a PersistentVolume with volumeMode "
        "Block",
    )
