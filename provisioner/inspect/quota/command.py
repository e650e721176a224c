"""``kubectl ebs quota``: how much of EBS's quotas is in use."""

import asyncio
from collections.abc import Mapping

import click
import msgspec

from provisioner.ec2.volumes import Volumes
from provisioner.inspect.command_line import Readers, Target, carry_out, reading, target_options
from provisioner.inspect.quota.quota_use_rules import HEADINGS, Limited, cells, limited
from provisioner.inspect.reading import services
from provisioner.inspect.reading.gap_rules import AWS, Gap
from provisioner.inspect.terminal import screen
from provisioner.inspect.terminal.table_rules import table
from provisioner.model.errors import StorageError
from provisioner.model.quota import STORAGE_CODES, InUse

_SERVICE = "ebs"


@click.command()
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@target_options
def quota(*, output: str, target: Target) -> None:
    """Show how much of EBS's quotas is in use, those nearest to their end first.

    All volumes of the account in the region count, also those of others. It needs the rights
    ec2:DescribeVolumes and servicequotas:ListServiceQuotas and ListAWSDefaultServiceQuotas.

    Exit code 0; 1 if something could not be read: the rest is shown.
    """
    carry_out(_quota(target, output))


async def _quota(target: Target, output: str) -> int:
    async with reading(target) as readers:
        async with screen.progress("counting volumes"):
            in_use, limits = await asyncio.gather(_in_use(readers), _limits(readers))
        found = limited(in_use, limits)
        told = readers.gap_lines()
    screen.show(_lines(found, output))
    screen.warn(told)
    return 1 if told else 0


def _lines(found: list[Limited], output: str) -> list[str]:
    if output == "json":
        rows = [{**msgspec.to_builtins(each), "percent": each.percent} for each in found]
        return [msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()]
    return table(HEADINGS, map(cells, found), width=screen.width())


async def _in_use(readers: Readers) -> Mapping[str, InUse]:
    """What the volumes of each type come to; without the types that EC2 did not answer."""
    calls = readers.cloud.calls
    if calls is None:
        return {}
    volumes, found = Volumes(calls), dict[str, InUse]()

    async def count(volume_type: str) -> None:
        counted = await readers.cloud.ask("DescribeVolumes", volumes.in_use(volume_type), None)
        if counted is not None:
            found[volume_type] = counted

    await asyncio.gather(*map(count, STORAGE_CODES))
    return dict(sorted(found.items()))


async def _limits(readers: Readers) -> Mapping[str, float]:
    """AWS's defaults, and over them the values of the account."""
    found: dict[str, float] = {}
    if not readers.cloud.region:
        return found
    for operation in ("list_aws_default_service_quotas", "list_service_quotas"):
        try:
            quotas = await services.read_all(
                services.QUOTAS, readers.cloud.region, operation, "Quotas", ServiceCode=_SERVICE
            )
        except StorageError as error:
            readers.cloud.gaps.append(Gap.of(AWS, operation, error))
            continue
        found |= {str(each["QuotaCode"]): float(each["Value"]) for each in quotas}
    return found
