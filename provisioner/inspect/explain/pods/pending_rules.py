"""An attachment that EC2 has not finished: since when, and what ends it."""

from dataclasses import dataclass
from datetime import datetime

from provisioner.inspect.explain.chain_rules import Cause, Link, Proof, at
from provisioner.inspect.explain.view_rules import VolumeView
from provisioner.inspect.shell_words import shell
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume

_STATUS = "aws ec2 describe-instance-status --instance-ids {}"
_MOUNTS = "kubectl debug node/{} -it --profile=sysadmin --image=busybox -- chroot /host findmnt"


@dataclass(frozen=True, slots=True)
class _Step:
    """What EC2 has begun: how that is said, who ends it, and what helps."""

    sentence: str
    next: str
    remedy: str


_STEPS = {
    AttachmentState.ATTACHING: _Step(
        "EC2 is still attaching volume {} to {}.",
        "EC2; the controller waits for it",
        "If it stays so for minutes, look at the instance's status checks. If they pass, ask AWS "
        "support.",
    ),
    AttachmentState.BUSY: _Step(
        "EC2 cannot detach volume {} from {}: the volume is still mounted there.",
        "you; EC2 ends it once nothing on the node has the volume mounted",
        "Find out on the node what still uses the volume, end that, and unmount it. If that cannot "
        "be done, reboot the instance.",
    ),
    AttachmentState.DETACHING: _Step(
        "EC2 is still detaching volume {} from {}.",
        "EC2; the controller waits for it",
        "If it stays so for minutes, look at the instance's status checks, and whether the volume "
        "is still mounted there. To detach it by force can lose data.",
    ),
}


def link(volume: VolumeView, attachment: Attachment, since: datetime | None) -> Link | None:
    """What EC2 has begun with a volume on the node of a VolumeAttachment; None if nothing.

    Source about "busy": EC2 API reference, DetachVolume (read 2026-11-24).

    Args:
        volume: as EC2 shows it.
        attachment: that asks for it, or no longer does.
        since: when that was asked.
    """
    found = _there(volume, attachment)
    step = _STEPS.get(found.state) if found else None
    if volume.ebs is None or found is None or step is None:
        return None
    node, id_ = attachment.spec.node_name, found.instance_id
    where = f"instance {id_} (node {node}), asked for at {at(since) or 'an unknown time'}"
    is_mounted = found.state is AttachmentState.BUSY
    return Link(
        Cause.PENDING_IN_EC2,
        step.sentence.format(volume.ebs.volume_id, where),
        Proof("EC2 DescribeVolumes, Attachments", f"{id_}: {found.state}"),
        step.next,
        step.remedy,
        shell(_MOUNTS, node) if is_mounted else shell(_STATUS, id_),
    )


def _there(volume: VolumeView, attachment: Attachment) -> InstanceAttachment | None:
    """The volume on the instance of the VolumeAttachment's node."""
    ebs: Volume | None = volume.ebs
    if ebs is None:
        return None
    node = attachment.spec.node_name
    ids = {attachment.annotations.get(NODE_ID, "")}
    ids |= {instance for instance, name in volume.nodes_of.items() if name == node}
    return next(filter(None, (ebs.on(each) for each in sorted(ids))), None)
