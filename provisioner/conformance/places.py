"""Where a run takes place: looked up and checked before anything is made."""

from typing import Any

from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.lab import Place
from provisioner.conformance.probe import CannotRunError, RefusedError

_USUAL = "availability-zone"  # Local Zones and Wavelength Zones come after those
# Recommended for data volumes (EC2 user guide "Device names", read 2026-11-21).
_DEVICES = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")


async def find_place(ec2: Ec2, run: str, *, zone: str | None, instance: str | None) -> Place:
    """The zones of the Region, and the instance that the user has named.

    Raises:
        CannotRunError: no EC2 answers, or something that was named is not there.
    """
    zones = await _zones(ec2)
    found = await _instance(ec2, instance) if instance else None
    there = str(found["Placement"]["AvailabilityZone"]) if found else None
    if zone and there and zone != there:
        raise CannotRunError(f"{instance} is in {there}, not in {zone}: leave --zone out")
    chosen = zone or there or zones[0]
    if chosen not in zones:
        raise CannotRunError(
            f"{ec2.region} has no available zone {chosen}: there are {', '.join(zones)}"
        )
    return Place(
        run=run,
        region=ec2.region,
        zone=chosen,
        zones=(chosen, *(each for each in zones if each != chosen)),
        instance=instance,
        instance_type=str(found["InstanceType"]) if found else None,
        devices=_free_devices(found) if found else _DEVICES,
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


def _free_devices(instance: dict[str, Any]) -> tuple[str, ...]:
    """Names that no attached volume uses, in either of their two spellings.

    Raises:
        CannotRunError: there is none.
    """
    mapped = {str(each["DeviceName"])[-1] for each in instance.get("BlockDeviceMappings", ())}
    free = tuple(name for name in _DEVICES if name[-1] not in mapped)
    if not free:
        raise CannotRunError("the instance has no free device name from /dev/sdf to /dev/sdp")
    return free
