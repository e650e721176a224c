"""Where a run takes place: looked up and checked before anything is made."""

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.lab import Place
from provisioner.conformance.probe import CannotRunError, RefusedError

_USUAL = "availability-zone"  # Local Zones and Wavelength Zones come after those
# Recommended for data volumes, then possible (EC2 user guide "Device names", read 2026-11-21). More
# than an instance takes, so that a name comes again only long after its volume was detached.
_DEVICES = (
    *(f"/dev/sd{letter}" for letter in "fghijklmnop"),
    *(f"/dev/xvd{first}{letter}" for first in "bc" for letter in ascii_lowercase),
)


async def find_place(
    ec2: Ec2, run: str, *, zone: str | None = None, instances: Sequence[str] = ()
) -> Place:
    """The zones of the Region, and the instances that the user has named: none, one or two.

    Raises:
        CannotRunError: no EC2 answers, or something that was named is not there.
    """
    if len(set(instances)) < len(instances):
        raise CannotRunError(f"{instances[0]} is named twice: the second --instance is another one")
    zones = await _zones(ec2)
    found = [await _instance(ec2, each) for each in instances]
    for each, instance in zip(found, instances, strict=True):
        there = str(each["Placement"]["AvailabilityZone"])
        if zone and zone != there:
            raise CannotRunError(f"{instance} is in {there}, not in {zone}")
        zone = there
    zone = zone or zones[0]
    if zone not in zones:
        raise CannotRunError(
            f"{ec2.region} has no available zone {zone}: there are {', '.join(zones)}"
        )
    first, second = [*instances, None, None][:2]
    return Place(
        run=run,
        region=ec2.region,
        zone=zone,
        zones=(zone, *(each for each in zones if each != zone)),
        instance=first,
        instance_type=str(found[0]["InstanceType"]) if found else None,
        other_instance=second,
        devices=_free_devices(found),
    )


async def _zones(ec2: Ec2) -> list[str]:
    try:
        reply = await ec2.call("describe_availability_zones", {})
    except RefusedError as refused:
        raise CannotRunError(f"EC2 does not tell its zones: {refused}") from refused
    zones = sorted(
        (each.get("ZoneType", _USUAL) != _USUAL, str(each["ZoneName"]))
        for each in reply.get("AvailabilityZones", ())
        if each.get("State", "available") == "available"
    )
    if not zones:
        raise CannotRunError(f"{ec2.region} has no available zone")
    return [name for _, name in zones]


async def _instance(ec2: Ec2, instance: str) -> dict[str, Any]:
    try:
        reply = await ec2.call("describe_instances", {"InstanceIds": [instance]})
    except RefusedError as refused:
        raise CannotRunError(f"the instance {instance}: {refused}") from refused
    found = [each for group in reply.get("Reservations", ()) for each in group["Instances"]]
    if not found:
        raise CannotRunError(f"there is no instance {instance} in {ec2.region}")
    state = found[0]["State"]["Name"]
    if state != "running":
        raise CannotRunError(f"the instance {instance} is {state}: probes need a running one")
    only: dict[str, Any] = found[0]
    return only


def _free_devices(instances: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names that no attached volume of any instance uses, in either of their two spellings.

    Raises:
        CannotRunError: there is none.
    """
    mapped = {
        _ending(str(device["DeviceName"]))
        for instance in instances
        for device in instance.get("BlockDeviceMappings", ())
    }
    free = tuple(name for name in _DEVICES if _ending(name) not in mapped)
    if not free:
        raise CannotRunError("the instance has no free device name")
    return free


def _ending(name: str) -> str:
    """What two spellings of one device share: sdf and xvdf."""
    return name.removeprefix("/dev/").removeprefix("xvd").removeprefix("sd")
