"""An attachment that EC2 has not finished: since when, and what ends it."""

from datetime import datetime

from provisioner.inspect.explain.chain_rules import Cause, Link, Proof, at
from provisioner.inspect.explain.view_rules import VolumeView
from provisioner.inspect.shell_words import shell
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume

_STATUS = "aws ec2 describe-instance-status --instance-ids {}"
_MOUNTS = "kubectl debug node/{} -it --profile=sysadmin --image=busybox -- chroot /host findmnt"


def link(volume: VolumeView, attachment: Attachment, since: datetime | None) -> Link | None:
    """What EC2 has begun with a volume on the node of a VolumeAttachment; None if nothing.

    Source of the advice: AWS, "Troubleshoot a volume that is stuck while attaching/detaching"
    (EBS user guide, read 2026-11-23).

    Args:
        volume: as EC2 shows it.
        attachment: that asks for it, or no longer does.
        since: when that was asked.
    """
    found = _there(volume, attachment)
    if volume.ebs is None or found is None:
        return None
    node, id_ = attachment.spec.node_name, found.instance_id
    where = f"volume {volume.ebs.volume_id} {{}} instance {id_} (node {node}), asked for at "
    where += at(since) or "an unknown time"
    proof = Proof("EC2 DescribeVolumes, Attachments", f"{id_}: {found.state}")
    next_ = "EC2; the controller waits for it"
    if found.state is AttachmentState.ATTACHING:
        return Link(
            Cause.PENDING_IN_EC2,
            f"EC2 is still attaching {where.format('to')}.",
            proof,
            next_,
            "If it stays so for minutes, look at the instance's status checks: an impaired "
            "instance takes no volume until it is stopped and started. If they pass, ask AWS "
            "support.",
            shell(_STATUS, id_),
        )
    if found.state is AttachmentState.BUSY:
        return Link(
            Cause.PENDING_IN_EC2,
            f"EC2 cannot detach {where.format('from')}: the volume is still mounted there.",
            proof,
            f"you; EC2 ends it once nothing on node {node} has the volume mounted",
            "Find out on the node what still uses the volume, end that, and unmount it. If the "
            "machine does not answer, stop the instance: that detaches the volume.",
            shell(_MOUNTS, node),
        )
    if found.state is AttachmentState.DETACHING:
        return Link(
            Cause.PENDING_IN_EC2,
            f"EC2 is still detaching {where.format('from')}.",
            proof,
            next_,
            "If it stays so for minutes, look at the instance's status checks, and whether the "
            "volume is still mounted there. Stopping the instance detaches it. Detaching it by "
            "force can lose data.",
            shell(_STATUS, id_),
        )
    return None


def _there(volume: VolumeView, attachment: Attachment) -> InstanceAttachment | None:
    """The volume on the instance of the VolumeAttachment's node."""
    ebs: Volume | None = volume.ebs
    if ebs is None:
        return None
    node = attachment.spec.node_name
    ids = {attachment.annotations.get(NODE_ID, "")}
    ids |= {instance for instance, name in volume.nodes_of.items() if name == node}
    return next(filter(None, (ebs.on(each) for each in sorted(ids))), None)
