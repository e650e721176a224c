"""Decide the next step towards what is wanted of one volume: its size and its attributes at once.

Both become one ModifyVolume, for EC2 takes four in 24 hours, each only when the one before is
completed, and counts also one that changes nothing. One bad wish never blocks the other: what EC2
refuses together goes alone.
Source: EC2 API ModifyVolume, also for what a change of type leaves, and EBS user guide "Modify a
volume" (read 2026-11-21); aws-ebs-csi-driver v1.64 pkg/cloud/cloud.go ``ResizeOrModifyDisk`` for
IOPS that follow the size, and are raised to the type's least on every change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from provisioner.classes.iops_rules import Fitted, fit
from provisioner.model import tags
from provisioner.model.attributes import Attributes
from provisioner.model.budget import MOST, Ledger, name_of
from provisioner.model.modification import (
    Modification,
    ModificationState,
    ModifyRequest,
    Shape,
    shape_of,
)
from provisioner.model.names import IOPS_FOLLOW_GROWTH, IOPS_PER_GIB
from provisioner.model.volume import Volume
from provisioner.model.volume_type import DEFAULT_TYPE, LARGEST_NUMBER, VOLUME_TYPES, modified_fault


@dataclass(frozen=True, slots=True)
class Wanted:
    """A shape to reach. IOPS and throughput are None where EC2 keeps or chooses them.

    ``fitted``: the IOPS asked for, and what is given of them; None where none were asked for.
    """

    size_gib: int
    volume_type: str
    iops: int | None
    throughput_mibps: int | None
    fitted: Fitted | None = None


class Wish(StrEnum):
    """What can be wanted of a volume."""

    SIZE = "size"
    ATTRIBUTES = "attributes"


BOTH = frozenset(Wish)
_GP2 = "gp2"
# gp2 has up to 250 MiB/s where it has more than gp3's least IOPS: EBS user guide "General purpose
# SSD volumes" (read 2026-11-21).
_GP2_THROUGHPUT_MIBPS = 250
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
    if message is None and count > tags.MOST:
        message = f"the volume would have {count} tags, EC2 allows {tags.MOST}; remove some"
    return Impossible(Wish.ATTRIBUTES, message) if message is not None else None


def _tags(view: View, asks: Attributes, volume: Volume) -> Tag | None:
    """What is to be written; what is optional alone, for the policy may refuse it."""
    add = _lacking(view.tags, volume)
    remove = tuple(key for key in asks.deleted_tags if key in volume.tags)
    if add or remove:
        return Tag(add, remove)
    following = {} if view.unfollowed else _lacking(view.following, volume)
    return Tag(following, is_optional=True) if following else None


def _lacking(wanted: Mapping[str, str], volume: Volume) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if volume.tags.get(key) != value}


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


def wanted_shape(
    has: Shape,
    has_tags: Mapping[str, str],
    *,
    size_gib: int | None,
    attributes: Attributes | None,
    ceiling: int | None = None,
) -> Wanted:
    """The shape that fulfils both wishes; a volume never shrinks.

    Args:
        has: what the volume is.
        has_tags: of the volume; they tell whether its IOPS follow its size.
        size_gib: the size that is wanted, None for whatever it has.
        attributes: what else is wanted, None for nothing.
        ceiling: the most IOPS that EC2 gives the type in the region, None if that is not known.
    """
    asks = attributes or Attributes()
    size = max(has.size_gib, size_gib or 0)
    volume_type = asks.volume_type or has.volume_type
    asked = _asked_iops(asks, size)
    fitted = None
    if asked is not None and volume_type in VOLUME_TYPES:
        fitted = fit(volume_type, size, asked, raises_to_minimum=True, ceiling=ceiling)
    elif asked is None and volume_type == has.volume_type and size > has.size_gib:
        fitted = _raised(has, size, _following(asks, has_tags, size), ceiling)
    iops = fitted.given if fitted is not None else asked
    throughput = asks.throughput_mibps
    if iops is None and _leaves_gp2(has, volume_type):
        # EC2 keeps what gp2 had only if neither is given, says one page; another says 3,000.
        least = VOLUME_TYPES[DEFAULT_TYPE].iops_default
        if (had := has.iops or 0) > least:
            iops, throughput = had, throughput or _GP2_THROUGHPUT_MIBPS
    return Wanted(size, volume_type, iops, throughput, fitted)


def _leaves_gp2(has: Shape, volume_type: str) -> bool:
    return has.volume_type == _GP2 and volume_type == DEFAULT_TYPE


def _asked_iops(asks: Attributes, size_gib: int) -> int | None:
    if asks.iops is None and asks.iops_per_gib is not None:
        return asks.iops_per_gib * size_gib
    return asks.iops


def _following(asks: Attributes, has_tags: Mapping[str, str], size_gib: int) -> int | None:
    """The IOPS of a volume of this size, if its tags say that they follow its size."""
    per_gib = has_tags.get(IOPS_PER_GIB, "")
    follows = asks.iops_follow_growth
    if follows is None:
        follows = has_tags.get(IOPS_FOLLOW_GROWTH) == "true"
    return int(per_gib) * size_gib if follows and per_gib.isdecimal() else None


def _raised(has: Shape, size_gib: int, asked: int | None, ceiling: int | None) -> Fitted | None:
    """IOPS that growth brings along, None for none: it takes none away, and asks for none in vain.

    Tags outlive what they were written for: the volume may be of another type by now, and have
    IOPS of a later class.
    """
    limits = VOLUME_TYPES.get(has.volume_type)
    if not asked or limits is None or limits.iops is None:
        return None
    fitted = fit(has.volume_type, size_gib, asked, raises_to_minimum=True, ceiling=ceiling)
    given = fitted.given
    is_more = given > max(has.iops or 0, limits.iops[0])
    wrong = modified_fault(has.volume_type, size_gib, given, None, is_other_type=False)
    return fitted if is_more and wrong is None else None


def fault_of(wanted: Wanted, has: Shape) -> str | None:
    """What no volume can be, in one sentence; None if it can. EC2 knows more than this."""
    if wanted.volume_type not in VOLUME_TYPES:
        return None
    stays = wanted.volume_type == has.volume_type
    limits = VOLUME_TYPES[wanted.volume_type]
    iops, throughput = wanted.iops, wanted.throughput_mibps
    if stays and limits.iops is not None:
        iops = iops or has.iops
    if stays and limits.throughput_mibps is not None:
        throughput = throughput or has.throughput_mibps
    return modified_fault(
        wanted.volume_type, wanted.size_gib, iops, throughput, is_other_type=not stays
    )


def agrees(has: Shape, wanted: Wanted) -> bool:
    """Whether a volume of this shape leaves nothing to be done."""
    return difference("", has, wanted) is None


def difference(volume_id: str, has: Shape, wanted: Wanted) -> ModifyRequest | None:
    """What EC2 has to be told; None when it agrees: a call that changes nothing counts too."""
    changes_type = wanted.volume_type != has.volume_type

    def changed(asked: int | None, present: int | None) -> int | None:
        return asked if asked is not None and (changes_type or asked != present) else None

    request = ModifyRequest(
        volume_id=volume_id,
        size_gib=wanted.size_gib if wanted.size_gib > has.size_gib else None,
        volume_type=wanted.volume_type if changes_type else None,
        iops=changed(wanted.iops, has.iops),
        throughput_mibps=changed(wanted.throughput_mibps, has.throughput_mibps),
    )
    return None if request == ModifyRequest(volume_id, None, None, None, None) else request
