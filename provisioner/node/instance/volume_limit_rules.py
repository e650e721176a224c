"""How many volumes of ours fit on this node's instance."""

from dataclasses import dataclass

from provisioner.model.attachment_limit import AttachmentLimit


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What an administrator says about limits.

    Attributes:
        attach_limit: how many volumes of ours fit, whatever is found; None to find out.
        reserved: places kept free in place of the root volume and other foreign volumes found;
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
        foreign: EBS volumes on the instance that are not ours, the root volume among them.
        interfaces: network interfaces, the primary one among them.
        options: what the administrator says.
    """
    if options.attach_limit is not None:
        return options.attach_limit
    # An instance has a root volume even if it was not found; one of the old kind with its root on
    # an instance store loses a place by this.
    taken = max(foreign, 1) if options.reserved is None else options.reserved
    if limit.is_shared:
        taken += max(interfaces - 1, 0)
    return max(limit.count - taken, 1)
