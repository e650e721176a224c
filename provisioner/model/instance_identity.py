"""Which EC2 instance a node is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """What is known of an instance.

    Attributes:
        instance_id: for example "i-0123456789abcdef0".
        instance_type: for example "m5.large".
        zone: its availability zone or local zone.
        outpost_arn: the Outpost that it runs on, "" for none.
    """

    instance_id: str
    instance_type: str
    zone: str
    outpost_arn: str = ""
