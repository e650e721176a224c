"""Read EBS's quotas from Service Quotas, and count in EC2 what is in use of them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from provisioner.ec2.batches import pages
from provisioner.ec2.volumes import Volumes
from provisioner.inspect.reading.aws import QUOTAS, Aws
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.gap_rules import AWS, Gap
from provisioner.inspect.reading.quota_rules import Counted, Limit
from provisioner.model.errors import Ec2Error
from provisioner.model.quota import STORAGE_CODES, InUse
from provisioner.model.volume import Volume

_SERVICE = "ebs"
# AWS's defaults, and over them the values of the account.
_ACTIONS = ("ListAWSDefaultServiceQuotas", "ListServiceQuotas")
_PAGE, _MOST_PAGES = 1000, 10


async def limits(aws: Aws) -> tuple[Mapping[str, Limit], list[Gap]]:
    """The quotas by their codes, and what could not be read of them."""
    answers = await asyncio.gather(*(_list(aws, each) for each in _ACTIONS))
    found: dict[str, Limit] = {}
    for some, _ in answers:
        found |= some
    return found, [gap for _, gap in answers if gap is not None]


async def _list(aws: Aws, action: str) -> tuple[dict[str, Limit], Gap | None]:
    try:
        quotas = await aws.read_all(QUOTAS, action, "Quotas", ServiceCode=_SERVICE, MaxResults=100)
    except Ec2Error as error:
        return {}, Gap.of(AWS, action, error)
    found = {
        str(each["QuotaCode"]): Limit(str(each["QuotaName"]), float(each["Value"]))
        for each in quotas
    }
    return found, None


async def in_use(
    cloud: Cloud, see: Callable[[Sequence[Volume]], None] | None = None
) -> Mapping[str, InUse]:
    """What the volumes of each type come to; without the types that EC2 did not answer.

    Args:
        cloud: EC2; its gaps are those of the types without an answer.
        see: gets each page of volumes when it comes.
    """
    calls = cloud.calls
    if calls is None:
        return {}
    volumes, found = Volumes(calls), dict[str, InUse]()

    async def count(volume_type: str) -> None:
        counted = await cloud.ask("DescribeVolumes", volumes.in_use(volume_type, see), None)
        if counted is not None:
            found[volume_type] = counted

    await asyncio.gather(*map(count, STORAGE_CODES))
    return dict(sorted(found.items()))


async def snapshots(cloud: Cloud) -> Counted | None:
    """The account's snapshots, at most the first 10,000; None if EC2 does not answer."""
    calls = cloud.calls
    if calls is None:
        return None

    async def count() -> Counted:
        number = seen = 0
        params = {"OwnerIds": ["self"], "MaxResults": _PAGE}
        async for page in pages(lambda asked: calls.call("DescribeSnapshots", asked), params):
            number += len(page["Snapshots"])
            seen += 1
            if seen == _MOST_PAGES:
                return Counted(number=number, is_all=not page.get("NextToken"))
        return Counted(number=number, is_all=True)

    return await cloud.ask("DescribeSnapshots", count(), None)
