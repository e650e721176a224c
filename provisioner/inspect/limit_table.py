"""Write the table of attachment limits: ``python -m provisioner.inspect.limit_table [REGION ...]``.

A developer's command, run before a release. It asks EC2 (DescribeInstanceTypes) in these regions,
or else in all regions of the account, with the credentials and the endpoint that boto3 finds.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import boto3

from provisioner.controller.nodes.instance_type_limit_rules import limits_of, table_of
from provisioner.model.instance_type_limit import TABLE, AttachmentLimit, DescribedType

HEADER = (
    "# Written by `python -m provisioner.inspect.limit_table` from EC2's DescribeInstanceTypes.",
    "# Instance family, most attachments, kind of limit: sizes.",
)


def described(ec2: Any) -> Iterator[DescribedType]:
    """All instance types of a region, by a boto3 client of it."""
    for page in ec2.get_paginator("describe_instance_types").paginate():
        for each in page["InstanceTypes"]:
            yield DescribedType.read(each)


def merged(regions: Iterable[dict[str, AttachmentLimit]]) -> dict[str, AttachmentLimit]:
    """The types of all regions; where they differ, the lower limit, or the shared of equal ones."""
    limits: dict[str, AttachmentLimit] = {}
    for region in regions:
        for name, limit in region.items():
            limits[name] = min(
                limits.get(name, limit), limit, key=lambda each: (each.count, not each.is_shared)
            )
    return limits


def text_of(limits: dict[str, AttachmentLimit]) -> str:
    """The whole file."""
    return "\n".join((*HEADER, *table_of(limits), ""))


def main(regions: Sequence[str]) -> int:
    """Ask, and write the file."""
    names = regions or [
        each["RegionName"] for each in boto3.client("ec2").describe_regions()["Regions"]
    ]
    limits = merged(limits_of(described(boto3.client("ec2", region_name=name))) for name in names)
    TABLE.write_text(text_of(limits))
    sys.stdout.write(f"{len(limits)} instance types of {len(names)} regions are in {TABLE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
