"""``kubectl ebs quota``: how much of EBS's quotas is in use."""

import asyncio
from collections.abc import Mapping
from contextlib import closing

import click
import msgspec

from provisioner.inspect.command_line import Target, carry_out, reading, target_options
from provisioner.inspect.quota.quota_words import HEADINGS, cells
from provisioner.inspect.reading import quotas
from provisioner.inspect.reading.aws import Aws
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.quota_rules import Limit, uses
from provisioner.inspect.terminal import screen
from provisioner.inspect.terminal.table_rules import table


@click.command(short_help="Show how much of EBS's quotas is in use.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@target_options
def quota(*, output: str, target: Target) -> None:
    """Show how much of EBS's quotas is in use, those nearest to their end first.

    All volumes and snapshots of the account in the region count, also those of others. At most
    10,000 snapshots are counted: a + says that there are more. It needs the rights
    ec2:DescribeVolumes, ec2:DescribeSnapshots, servicequotas:ListServiceQuotas and
    servicequotas:ListAWSDefaultServiceQuotas.

    Exit code 0; 1 if something could not be read: the rest is shown.
    """
    carry_out(_quota(target, output))


async def _quota(target: Target, output: str) -> int:
    async with reading(target) as readers:
        cloud = readers.cloud
        async with screen.progress("counting volumes and snapshots"):
            in_use, snapshots, limits = await asyncio.gather(
                quotas.in_use(cloud), quotas.snapshots(cloud), _limits(cloud)
            )
        found = uses(in_use, limits, snapshots)
        told = readers.gap_lines()
    if output == "json":
        screen.show_json([msgspec.to_builtins(e) | {"percent": e.percent} for e in found])
    else:
        screen.show(table(HEADINGS, map(cells, found), width=screen.width()))
    screen.warn(told)
    return 1 if told else 0


async def _limits(cloud: Cloud) -> Mapping[str, Limit]:
    if not cloud.region:
        return {}
    with closing(Aws.of_caller(cloud.region)) as aws:
        found, gaps = await quotas.limits(aws)
    cloud.gaps += gaps
    return found
