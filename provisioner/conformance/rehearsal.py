"""Before the first probe: one volume, to see that what a run makes can be found and deleted.

An endpoint that writes no tags, or credentials that may create and not delete, would leave behind
whatever the probes make. So that is tried out once, on the cheapest things there are.
"""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass

from provisioner.conformance.ec2 import DeniedError, Ec2
from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import CannotRunError, NotSeenError, RefusedError
from provisioner.conformance.rule import Rule
from provisioner.conformance.sweep import delete_these, things

_TYPES = ("gp3", "gp2", "standard")
_VISIBLE_S = 60.0
_GONE_S = 180.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What the probes of a run will make."""

    volumes: bool
    snapshots: bool
    instance: bool


def needs_of(rules: Iterable[Rule]) -> Needs:
    """What these probes make; a probe that only copies needs volumes all the same."""
    uses = [rule.probe.uses for rule in rules if not isinstance(rule.probe, str)]
    return Needs(
        volumes=any(use.volumes or use.copied_gib or use.snapshots_gib for use in uses),
        snapshots=any(use.snapshots_gib for use in uses),
        instance=any(use.needs_instance for use in uses),
    )


async def rehearse(ec2: Ec2, lab: Lab, needs: Needs) -> set[str]:
    """Make, find and delete one of each; return the actions that are not allowed.

    Raises:
        CannotRunError: what is made could not be found or deleted: nothing else may be made.
    """
    denied: set[str] = set()
    if not needs.volumes:
        return denied
    try:
        volume_id = await _some_volume(lab)
    except DeniedError as refused:
        return {refused.action}
    await _found_by_tag(ec2, lab, volume_id)
    if needs.snapshots:
        denied |= await _tried(lab.snapshot(volume_id))
    if needs.instance:
        denied |= await _tried(lab.attached(volume_id))
    await _deleted(ec2, lab)
    return denied


async def _some_volume(lab: Lab) -> str:
    for kind in _TYPES:
        try:
            return await lab.volume(VolumeType=kind)
        except RefusedError as refused:
            why = str(refused)
    raise CannotRunError(f"EC2 makes no volume in {lab.zone}: {why}")


async def _tried(work: Awaitable[object]) -> set[str]:
    try:
        await work
    except DeniedError as refused:
        return {refused.action}
    return set()


async def _found_by_tag(ec2: Ec2, lab: Lab, volume_id: str) -> None:
    async def found() -> bool:
        return any([each.id == volume_id async for each in things(ec2, lab.place.run)])

    try:
        await lab.until("it is listed by its tag", found, _VISIBLE_S)
    except NotSeenError as failure:
        raise CannotRunError(
            f"{volume_id} was created with the tag of this run, and is not listed by it: nothing "
            "else is made, since a sweep would not find it; delete this volume yourself"
        ) from failure


async def _deleted(ec2: Ec2, lab: Lab) -> None:
    left = await delete_these(ec2, lab.place.run, lab.made, _GONE_S)
    if left.why:
        what = "; ".join(f"{each}: {why}" for each, why in left.why.items())
        raise CannotRunError(
            f"what was made for a rehearsal cannot be deleted, so nothing else is made: {what}"
        )
