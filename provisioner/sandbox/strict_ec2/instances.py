"""Instances for the sandbox's nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import boto3
from botocore.config import Config

_IMAGE: Final = "ami-00000000000000000"  # no image is ever booted

_HOPS: Final = 2  # as docs/install.md wants it: pods reach the metadata service


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance as a Node object needs it."""

    instance_id: str
    zone: str
    region: str
    instance_type: str
    private_dns_name: str
    private_ip_address: str = ""


def make_instances(
    endpoint: str,
    count: int,
    zones: Sequence[str],
    instance_type: str = "m5.large",
    tags: dict[str, str] | None = None,
) -> list[Instance]:
    """Start ``count`` instances, spread over ``zones`` in turn; result in that order.

    One RunInstances call a zone. All zones are different and belong to one region.

    Raises: botocore's ClientError as EC2 refuses.
    """
    region = zones[0][:-1]
    client = _client(endpoint, region)
    pairs = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
    made: list[Instance | None] = [None] * count
    for index, zone in enumerate(zones[:count]):
        number = len(made[index :: len(zones)])
        reply = client.run_instances(
            ImageId=_IMAGE,
            InstanceType=instance_type,
            MinCount=number,
            MaxCount=number,
            Placement={"AvailabilityZone": zone},
            MetadataOptions={"HttpPutResponseHopLimit": _HOPS},
            TagSpecifications=[{"ResourceType": "instance", "Tags": pairs}] if pairs else [],
        )
        made[index :: len(zones)] = [_instance(each, region) for each in reply["Instances"]]
    return [instance for instance in made if instance is not None]


def _client(endpoint: str, region: str) -> Any:
    return boto3.client(
        "ec2",
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="secret",  # noqa: S106 (moto accepts anything)
        config=Config(retries={"mode": "standard", "total_max_attempts": 10}),
    )


def _instance(document: dict[str, Any], region: str) -> Instance:
    return Instance(
        instance_id=document["InstanceId"],
        zone=document["Placement"]["AvailabilityZone"],
        region=region,
        instance_type=document["InstanceType"],
        private_dns_name=document["PrivateDnsName"],
        private_ip_address=document["PrivateIpAddress"],
    )
