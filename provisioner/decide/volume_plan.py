"""Decide the next step towards what is wanted of one volume: its size and its attributes at once.

Both become one ModifyVolume, for EC2 takes four in 24 hours, each only when the one before is
completed, and counts also one that changes nothing. One bad wish never blocks the other: what EC2
refuses together goes alone.
Source: EC2 API ModifyVolume and EBS user guide "Modify a volume" (read 2026-11-21).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from provisioner.decide.capping import Fitted
from provisioner.decide.wanted_shape import Wanted, agrees, difference, fault_of, wanted_shape
from provisioner.model.attributes import Attributes
from provisioner.model.budget import MOST, Ledger, name_of
from provisioner.model.modification import (
    Modification,
    ModificationState,
    ModifyRequest,
    Shape,
    shape_of,
)
from provisioner.model.tags import MOST as MOST_TAGS
from provisioner.model.volume import Volume
from provisioner.model.volume_type import LARGEST_NUMBER


class Wish(StrEnum):
    """What can be wanted of a volume."""

    SIZE = "size"
    ATTRIBUTES = "attributes"


BOTH = frozenset(Wish)
# EC2 tells the latest modification for years. One as old as this is no news about what is wanted.
_OLD = timedelta(days=7)
_THEN = "wishes of size and class that come meanwhile are carried out with it, as one"


@dataclass(frozen=True, slots=True)
class View:
    """What is wanted, what EC2 has, and what was refused.

    Attributes:
        volume: as EC2 describes it; None if EC2 does not know it.
        latest: its latest modification.
        ledger: those that we have begun.
        now: with a zone.
        size_gib: the size that is wanted; None for none.
        attributes: what else is wanted; None for nothing.
        tags: that the attributes ask for, rendered.
        following: tags that tell how IOPS follow the size; later growth reads them.
        unfollowed: EC2 has refused those; the volume has the attributes without them.
        ceiling: the most IOPS that EC2 gives in the region, as it has said in a refusal.
        refused: wishes that EC2 has refused alone, and that are not to be tried now.
        alone: both together were refused.
        limited_until: so long EC2 takes no modification, as it has said itself.
        told_failed: the failed modification that its user was told of, "" for none.
    """

    volume: Volume | None
    latest: Modification | None
    ledger: Ledger
    now: datetime
    size_gib: int | None = None
    attributes: Attributes | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    following: Mapping[str, str] = field(default_factory=dict)
    unfollowed: bool = False
    ceiling: int | None = None
    refused: frozenset[Wish] = frozenset()
    alone: bool = False
    limited_until: datetime | None = None
    told_failed: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """EC2 does not know the volume."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """What was sent may have been carried out: look again, for so many seconds; send nothing."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """EC2 has what these wishes ask for; ``size_gib`` is what the volume has.

    ``fitted``: the IOPS that the attributes ask for, and what the volume got of them.
    """

    wishes: frozenset[Wish]
    size_gib: int
    fitted: Fitted | None = None


@dataclass(frozen=True, slots=True)
class Await:
    """A modification runs. ``message`` is told if it is not what is waited for, else ""."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A modification has failed in EC2; it is tried again once that was told."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """A wish that no volume can fulfil, found before EC2 was asked."""

    wish: Wish
    message: str


@dataclass(frozen=True, slots=True)
class Tag:
    """Tags to be written and keys to be removed; EC2 counts neither as a modification.

    The volume has the shape that the class asks for: of a class that EC2 refuses nothing is left.
    ``is_optional``: they tell only how IOPS follow the size later.
    """

    add: Mapping[str, str]
    remove: tuple[str, ...] = ()
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """EC2 takes no further modification before this time."""

    at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Send:
    """One ModifyVolume for these wishes."""

    request: ModifyRequest
    wishes: frozenset[Wish]
    fitted: Fitted | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """All that is left was refused, and its time has not come."""


Step = Gone | InDoubt | Done | Await | Failed | Impossible | Tag | WaitUntil | Send | Held


def decide(view: View) -> Step:
    """Say what is to be done next; at least one thing is wanted."""
    volume = view.volume
    if volume is None:
        return Gone()
    doubt_s = view.ledger.doubt_s(view.latest, view.now)
    if doubt_s > 0:
        return InDoubt(doubt_s)
    if view.latest is not None and view.latest.state is ModificationState.MODIFYING:
        return _running(view, volume, view.latest)
    has = settled(volume, view.latest)
    done = _fulfilled(view, volume, has)
    if done is not None:
        return done
    wishes = _open(view)
    if not wishes:
        return Held()
    wanted = _wanted(view, volume, has, wishes)
    fault = _fault(view, volume, has, wishes)
    if fault is not None:
        return fault
    return _sending(view, has, wanted, wishes)


def settled(volume: Volume, latest: Modification | None) -> Shape:
    """What the volume has by now: DescribeVolumes may be behind a modification that is through."""
    has = shape_of(volume)
    if latest is None or latest.state not in _THROUGH:
        return has
    return replace(latest.target, size_gib=max(has.size_gib, latest.target.size_gib))


# At ``optimizing`` all of it is there: EBS user guide "Monitor the progress of volume
# modifications" (read 2026-11-21).
_THROUGH = (ModificationState.OPTIMIZING, ModificationState.COMPLETED)


def _running(view: View, volume: Volume, latest: Modification) -> Await:
    """What runs is waited for, whoever has begun it; said where it is not what is wanted."""
    wishes = _open(view)
    wanted = _wanted(view, volume, shape_of(volume), wishes)
    is_wanted = not wishes or agrees(latest.target, wanted)
    return Await("" if is_wanted else _running_message(latest))


def _fulfilled(view: View, volume: Volume, has: Shape) -> Done | Tag | None:
    done = set()
    tag = fitted = None
    if view.size_gib is not None and has.size_gib >= view.size_gib:
        done.add(Wish.SIZE)
    if view.attributes is not None:
        # IOPS for each GiB are those of the size that comes.
        size_gib = 0 if Wish.SIZE in view.refused else view.size_gib or 0
        grown = replace(has, size_gib=max(has.size_gib, size_gib))
        wanted = wanted_shape(
            grown, {}, size_gib=None, attributes=view.attributes, ceiling=view.ceiling
        )
        if agrees(grown, wanted):
            tag, fitted = _tags(view, view.attributes, volume), wanted.fitted
            done |= {Wish.ATTRIBUTES} if tag is None else set()
    if done:
        return Done(frozenset(done), has.size_gib, fitted if Wish.ATTRIBUTES in done else None)
    return tag if Wish.ATTRIBUTES not in view.refused else None


def _open(view: View) -> frozenset[Wish]:
    """The wishes that go into the next modification."""
    wanted = {
        Wish.SIZE: view.size_gib is not None,
        Wish.ATTRIBUTES: view.attributes is not None,
    }
    found = frozenset(wish for wish in Wish if wanted[wish] and wish not in view.refused)
    # A disk that is full is more urgent than one that is slow.
    return frozenset({Wish.SIZE}) if view.alone and found == BOTH else found


def _wanted(view: View, volume: Volume, has: Shape, wishes: frozenset[Wish]) -> Wanted:
    return wanted_shape(
        has,
        volume.tags,
        size_gib=view.size_gib if Wish.SIZE in wishes else None,
        attributes=view.attributes if Wish.ATTRIBUTES in wishes else None,
        ceiling=view.ceiling,
    )


def _fault(view: View, volume: Volume, has: Shape, wishes: frozenset[Wish]) -> Impossible | None:
    """The wish that can never be had. Of sizes only EC2 knows the most, region by region."""
    size_gib = view.size_gib or 0
    if Wish.SIZE in wishes and size_gib > LARGEST_NUMBER:
        return Impossible(
            Wish.SIZE, f"{size_gib} GiB is more than EC2 could be asked for; ask for less"
        )
    asks = view.attributes
    if Wish.ATTRIBUTES not in wishes or asks is None:
        return None
    message = fault_of(_wanted(view, volume, has, wishes), has)
    after = (volume.tags.keys() | view.tags.keys()) - set(asks.deleted_tags)
    count = sum(not key.startswith("aws:") for key in after)  # AWS's own do not count
    if message is None and count > MOST_TAGS:
        message = f"the volume would have {count} tags, EC2 allows {MOST_TAGS}; remove some"
    return Impossible(Wish.ATTRIBUTES, message) if message is not None else None


def _tags(view: View, asks: Attributes, volume: Volume) -> Tag | None:
    """What is to be written; what is optional alone, for the policy may refuse it."""
    add = _lacking(view.tags, volume)
    remove = tuple(key for key in asks.deleted_tags if key in volume.tags)
    if add or remove:
        return Tag(add, remove)
    following = {} if view.unfollowed else _lacking(view.following, volume)
    return Tag(following, is_optional=True) if following else None


def _lacking(tags: Mapping[str, str], volume: Volume) -> dict[str, str]:
    return {key: value for key, value in tags.items() if volume.tags.get(key) != value}


def _sending(view: View, has: Shape, wanted: Wanted, wishes: frozenset[Wish]) -> Step:
    latest = view.latest
    assert view.volume is not None  # noqa: S101 -- decide has looked
    request = difference(view.volume.volume_id, has, wanted)
    if request is None:
        return Await()  # what was fulfilled was found before
    if latest is not None and latest.state is ModificationState.OPTIMIZING:
        return Await(
            "the modification before it is still optimizing; EC2 takes the next one when that is "
            "completed, which can take hours"
        )
    if latest is not None and latest.state is ModificationState.FAILED:
        name = name_of(latest)
        if name != view.told_failed and has_failed_in(latest, has, wanted, view.now):
            why = f": {latest.message.rstrip('. ')}" if latest.message else ""
            return Failed(name, f"the modification has failed in EC2{why}; it is tried again")
    until = not_before(view.ledger, latest, view.now, view.limited_until)
    if until is not None:
        return WaitUntil(*until)
    return Send(request, wishes, wanted.fitted)


def not_before(
    ledger: Ledger, latest: Modification | None, now: datetime, limited_until: datetime | None
) -> tuple[datetime, str] | None:
    """Until when EC2 takes no other modification, and why; None when it would take one now.

    ``limited_until``: what it has said itself, which counts more than what we have counted.
    """
    if limited_until is not None and limited_until > now:
        why = "EC2 takes no other modification of the volume for now, as it says itself"
        return limited_until, _waits(limited_until, why)
    more_at = ledger.more_at(latest, now)
    if ledger.left(latest, now) or more_at is None:
        return None
    why = f"EC2 takes {MOST} modifications of a volume in 24 hours, and they are used up"
    return more_at, _waits(more_at, why)


def _waits(until: datetime, why: str) -> str:
    return f"it waits until {until:%Y-%m-%d %H:%M:%S} UTC: {why}; {_THEN}"


def _running_message(latest: Modification) -> str:
    """What is said while a modification runs that is not the one that is wanted."""
    began = f", since {latest.started_at:%Y-%m-%d %H:%M:%S} UTC" if latest.started_at else ""
    return (
        f"a modification of the volume is under way{began}; EC2 takes the next one when that is "
        "completed, which can take hours"
    )


def has_failed_in(latest: Modification, has: Shape, wanted: Wanted, now: datetime) -> bool:
    """Whether a failed modification was for what is wanted now, not for something long forgotten.

    What came later may be wanted besides: its size is enough to know it by.
    """
    if latest.started_at is not None and now - latest.started_at > _OLD:
        return False
    is_its_size = latest.target.size_gib == wanted.size_gib > has.size_gib
    return is_its_size or agrees(latest.target, wanted)
