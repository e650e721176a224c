"""Short ways to ask EC2 and to say what was seen."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import (
    CannotRunError,
    Confirmed,
    Finding,
    Probe,
    RefusedError,
    Refuted,
    Usage,
    VolumeUse,
)

DRY_RUN = "DryRunOperation"
SHARED = {"VolumeType": "io2", "Iops": 100, "MultiAttachEnabled": True}
SHARED_VOLUMES = (VolumeUse(4, "io2", iops=100),)


def held(is_so: bool, seen: str) -> Finding:  # noqa: FBT001 -- reads as a sentence
    """Confirmed if it is so."""
    return Confirmed(seen) if is_so else Refuted(seen)


def all_held(*findings: Finding) -> Finding:
    """The first that is not confirmed, else one that says all that was seen."""
    for finding in findings:
        if not isinstance(finding, Confirmed):
            return finding
    return Confirmed(" ".join(each.seen for each in findings if isinstance(each, Confirmed)))


async def outcome(lab: Lab, operation: str, **params: Any) -> RefusedError | None:
    """What EC2 has against a call; None: it accepts."""
    try:
        await lab.call(operation, **params)
    except RefusedError as refused:
        return refused
    return None


async def refused(
    lab: Lab, codes: str | Collection[str], operation: str, *, text: Any = "", **params: Any
) -> Finding:
    """Confirmed if EC2 refuses a call with one of these codes, and ``text`` in its message."""
    wanted = (codes,) if isinstance(codes, str) else tuple(codes)
    answer = await outcome(lab, operation, **params)
    if answer is None:
        return Refuted(f"{operation} was accepted.")
    is_so = answer.code in wanted and text.lower() in answer.message.lower()
    return held(is_so, f"{operation} was refused with {answer.code}: {answer.message}")


async def accepted(lab: Lab, operation: str, **params: Any) -> Finding:
    """Confirmed if EC2 accepts a call."""
    answer = await outcome(lab, operation, **params)
    if answer is None or answer.code == DRY_RUN:
        return Confirmed(f"{operation} was accepted.")
    return Refuted(f"{operation} was refused with {answer.code}: {answer.message}")


def new_volume(lab: Lab, **changes: Any) -> dict[str, Any]:
    """The parameters of CreateVolume for 1 GiB of gp3; None leaves a parameter out."""
    asked = {"AvailabilityZone": lab.zone, "VolumeType": "gp3", "Size": 1, **changes}
    return {name: value for name, value in asked.items() if value is not None}


async def made(lab: Lab, **changes: Any) -> dict[str, Any]:
    """Send CreateVolume for such a volume and return the reply at once."""
    return await lab.call("create_volume", **new_volume(lab, **changes))


async def refused_while_creating(
    lab: Lab, operation: str, parameter: str = "VolumeId", **params: Any
) -> Finding:
    """Confirmed if EC2 refuses a call, for a volume that is creating, with IncorrectState.

    Raises:
        CannotRunError: a new volume is not visible, or not creating, for long enough.
    """
    volume_id = str((await made(lab))["VolumeId"])
    finding = await refused(lab, "IncorrectState", operation, **{parameter: volume_id}, **params)
    if isinstance(finding, Confirmed):
        return finding
    fresh = str((await made(lab))["VolumeId"])
    is_unseen = await lab.code_of("describe_volumes", VolumeIds=[fresh])
    if is_unseen or (await lab.describe(fresh))["State"] != "creating":
        raise CannotRunError("a new volume was not seen creating")
    return finding


async def try_refused(
    lab: Lab, codes: str | Collection[str], *, text: Any = "", **changes: Any
) -> Finding:
    """Confirmed if EC2 refuses to make such a volume; nothing is made, by DryRun.

    Raises:
        CannotRunError: DryRun makes volumes here, or accepts anything.
    """
    answer = await _tried(lab, changes)
    asked = _named(changes)
    if answer.code == DRY_RUN:
        await _check_dry_runs(lab)
        return Refuted(f"CreateVolume with {asked} would be accepted.")
    wanted = (codes,) if isinstance(codes, str) else tuple(codes)
    is_so = answer.code in wanted and text.lower() in answer.message.lower()
    return held(is_so, f"CreateVolume with {asked}: {answer.code}: {answer.message}")


async def try_accepted(lab: Lab, **changes: Any) -> Finding:
    """Confirmed if EC2 would make such a volume; nothing is made, by DryRun.

    Raises:
        CannotRunError: DryRun makes volumes here.
    """
    answer = await _tried(lab, changes)
    asked = _named(changes)
    if answer.code == DRY_RUN:
        return Confirmed(f"CreateVolume with {asked} would be accepted.")
    return Refuted(f"CreateVolume with {asked}: {answer.code}: {answer.message}")


async def _tried(lab: Lab, changes: dict[str, Any]) -> RefusedError:
    answer = await outcome(lab, "create_volume", **new_volume(lab, **changes), DryRun=True)
    if answer is None:
        raise CannotRunError("DryRun made a volume here, so it shows nothing")
    return answer


async def _check_dry_runs(lab: Lab) -> None:
    if (await _tried(lab, {"Size": -1})).code == DRY_RUN:
        raise CannotRunError("DryRun accepts even a volume of -1 GiB here, so it shows nothing")


def _named(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in changes.items()) or "no changes"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"of {sum(len(each['Tags']) for each in value)} tags"
    return str(value)


async def zone_id(lab: Lab) -> str:
    """The id of the lab's zone, such as use1-az1."""
    found = await lab.call("describe_availability_zones", ZoneNames=[lab.zone])
    return str(found["AvailabilityZones"][0]["ZoneId"])


def filtered(name: str, *values: str) -> dict[str, Any]:
    """One filter."""
    return {"Name": name, "Values": list(values)}


def tagged(kind: str = "volume", **tags: str) -> list[dict[str, Any]]:
    """TagSpecifications that give these tags."""
    return [
        {
            "ResourceType": kind,
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }
    ]


async def listed(lab: Lab, *filters: dict[str, Any]) -> set[str]:
    """The ids of the volumes of this run that match filters."""
    found = await lab.call("describe_volumes", Filters=[lab.tag_filter, *filters])
    return {str(each["VolumeId"]) for each in found["Volumes"]}


def cheap(
    run: Callable[[Lab], Awaitable[Finding]],
    *actions: str,
    volumes: int = 0,
    snapshots: int = 0,
    copies: int = 0,
    instance: bool = False,
    seconds: float = 5.0,
    alone: bool = False,
    other: bool = False,
) -> Probe:
    """A probe with so many gp3 volumes of 1 GiB, and snapshots and copies of such."""
    uses = Usage(
        volumes=(VolumeUse(count=volumes),) if volumes else (),
        snapshots_gib=snapshots,
        copied_gib=copies,
        needs_instance=instance,
        seconds=seconds,
        needs_other=other,
    )
    return Probe(run, actions, uses, alone)
