"""How many volumes of ours fit on this node's instance."""

from dataclasses import dataclass

from provisioner.model.instance_type_limit import AttachmentLimit


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What an administrator has set.

    Attributes:
        attach_limit: how many volumes of ours fit; None to compute it.
        reserved: how many attachments to reserve for the root volume and other foreign volumes;
            None to count those.
    """

    attach_limit: int | None = None
    reserved: int | None = None


def max_volumes(
    limit: AttachmentLimit, *, foreign: int, interfaces: int, options: LimitOptions
) -> int:
    """How many volumes of ours fit on an instance, at least 1: to Kubernetes, 0 means no limit.

    Args:
        limit: of the instance's type.
        foreign: EBS volumes on the instance that are not ours, including the root volume.
        interfaces: network interfaces, including the primary one.
        options: what the administrator has set.
    """
    if options.attach_limit is not None:
        return options.attach_limit
    # An instance has a root volume even if it was not found. An old one with its root on an
    # instance store loses one attachment by this.
    taken = max(foreign, 1) if options.reserved is None else options.reserved
    if limit.is_shared:
        taken += max(interfaces - 1, 0)
    return max(limit.count - taken, 1)
