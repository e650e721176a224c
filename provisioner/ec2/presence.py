"""Whether EC2 shows any of several things to us: in this Region, with these credentials."""

from collections.abc import Sequence

from provisioner.ec2.batches import PAGE, one_of, pages
from provisioner.ec2.calls import Ec2Calls


async def any_instance(calls: Ec2Calls, ids: Sequence[str]) -> bool:
    """Whether there is one of these instances, up to 200, in whatever state.

    Raises:
        Ec2Error: EC2 could not be asked; that is not a "no".
    """
    return await _any(calls, "DescribeInstances", "instance-id", ids)


async def any_volume(calls: Ec2Calls, ids: Sequence[str]) -> bool:
    """The same for volumes."""
    return await _any(calls, "DescribeVolumes", "volume-id", ids)


async def _any(calls: Ec2Calls, action: str, name: str, ids: Sequence[str]) -> bool:
    # By filters: an id that is none refuses no call then.
    params = {"Filters": [one_of(name, ids)], "MaxResults": PAGE}
    shown = action.removeprefix("Describe")
    async for page in pages(lambda params: calls.call(action, params), params):
        if page[shown]:
            return True
    return False
