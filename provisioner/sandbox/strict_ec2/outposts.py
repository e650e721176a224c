"""Outposts: a volume on one serves the instances on it, and no others.

Source: EC2 API model, CreateVolume's OutpostArn (botocore 1.44.5); AWS Outposts user guide. Nobody
quotes the texts of these refusals: they are ours.
"""

from typing import Any

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, invalid
from provisioner.sandbox.strict_ec2.records import record_of


def asked_outpost(call: Call, zone: str) -> str:
    """Return the ARN of the Outpost on which a volume is to be made, "" for the Region.

    Raises: ``InvalidParameterValue`` for one that does not exist, ``InvalidParameterCombination``
    for one that another zone serves.
    """
    arn = call.params.get("OutpostArn")
    if arn is None:
        return ""
    outpost = call.world.settings.outposts.get(arn)
    if outpost is None:
        raise invalid(f"Value ({arn}) for parameter outpostArn is invalid.")
    if outpost["zone"] != zone:
        raise combination(f"The Outpost '{arn}' is not in the zone '{zone}'.")
    return arn


def check_same_outpost(call: Call, volume: Any, instance: Any) -> None:
    """Refuse an attachment across the edge of an Outpost.

    Raises: ``UnsupportedOperation``.
    """
    outposts = call.world.settings.outposts
    on = next((arn for arn, each in outposts.items() if instance.id in each["instances"]), "")
    if on != record_of(volume).outpost_arn:
        raise Ec2Error(
            "UnsupportedOperation",
            f"The volume '{volume.id}' and the instance '{instance.id}' are not on the same "
            "Outpost.",
        )
