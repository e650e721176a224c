"""Decide the next step towards what a claim requests of its volume: a size, a class, or both.

Both become one ModifyVolume, because EC2 takes four in 24 hours, each only when the one before is
completed, and counts also one that changes nothing. A part that is refused never blocks the other:
what EC2 refuses together goes alone.
Source: EC2 API ModifyVolume and EBS user guide "Modify a volume" (read 2026-11-21).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from provisioner.classes.iops_rules import EVERYWHERE, Fitted
from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.controller.modifying.class_rules import (
    Change,
    annotated,
    following_of,
    outdated_of,
    target_of,
)
from provisioner.controller.modifying.growth_rules import PRE_RESIZE_CAPACITY, Grow
from provisioner.controller.modifying.shape_rules import (
    TargetShape,
    agrees,
    difference,
    fault_of,
    target_shape,
)
from provisioner.model import tags
from provisioner.model.budget import MOST, Ledger, name_of
from provisioner.model.claim import Claim
from provisioner.model.decision import Settled
from provisioner.model.errors import Ec2Error, StorageError
from provisioner.model.modification import (
    Modification,
    ModificationState,
    ModifyRequest,
    Shape,
    shape_of,
)
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume
from provisioner.model.volume_type import LARGEST_NUMBER


class Part(StrEnum):
    """The parts of a request."""

    SIZE = "size"
    ATTRIBUTES = "attributes"


BOTH = frozenset(Part)
# EC2 shows the latest modification for years. One as old as this says nothing of a request.
_OLD = timedelta(days=7)
_LIMIT_AGAIN = timedelta(hours=1)  # where EC2 does not say when it takes the next one
_LIMIT_LEAST = timedelta(minutes=1)  # its clock and ours may differ
_NO_TIME = (
    "EC2 refuses further modifications of the volume and does not say until when; the "
    "modification is retried every hour"
)
_THEN = "a size or class that is requested in the meantime becomes part of the same modification"


def has_all(claim: Claim, persistent_volume: PersistentVolume, *, driver: str) -> bool:
    """Whether a claim plainly has what it requests, and nothing is left to tidy.

    At the start that is so for nearly all claims, and costs no pass. False says nothing.
    """
    return (
        claim.requested_storage == claim.capacity
        and not claim.resize_status
        and isinstance(target_of(claim, is_free=False), Settled)
        and isinstance(annotated(claim, persistent_volume.annotations, driver=driver), Settled)
        and PRE_RESIZE_CAPACITY not in persistent_volume.annotations
    )


@dataclass(frozen=True, slots=True)
class Requested:
    """What a claim requests of its volume; None for nothing.

    ``current``: what the class asks for that the volume has already; growth may allow more of it.
    """

    grow: Grow | None = None
    change: Change | None = None
    current: Attributes | None = None

    @property
    def parts(self) -> frozenset[Part]:
        """Which of both."""
        requested = {Part.SIZE: self.grow, Part.ATTRIBUTES: self.change}
        return frozenset(part for part in Part if requested[part] is not None)

    @property
    def size_gib(self) -> int | None:
        """The size."""
        return None if self.grow is None else self.grow.size_gib

    @property
    def attributes(self) -> Attributes | None:
        """What the class asks for."""
        return None if self.change is None else self.change.attributes

    @property
    def class_name(self) -> str | None:
        """The class; "" for that of annotations."""
        return None if self.change is None else self.change.name

    def only(self, parts: frozenset[Part]) -> "Requested":
        """Without the other parts."""
        return Requested(
            self.grow if Part.SIZE in parts else None,
            self.change if Part.ATTRIBUTES in parts else None,
            self.current,
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """EC2 takes no modification before this time; ``is_guess``: it did not say until when."""

    until: datetime
    is_guess: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """What EC2 has said of a request; another request begins with none.

    Attributes:
        refused_together: why both parts were refused; each goes alone since.
        iops_ceiling: the most IOPS that EC2 gives in the region.
        iops_refused: why a size comes without the IOPS that would come with it.
        tags_refused: why the tags that say how IOPS follow the size could not be changed.
    """

    refused_together: StorageError | None = None
    iops_ceiling: int | None = None
    iops_refused: StorageError | None = None
    tags_refused: StorageError | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that the next step depends on.

    Attributes:
        volume: as EC2 describes it; None if EC2 does not know it.
        latest: its latest modification.
        ledger: the modifications that we have started.
        now: with a zone.
        requested: what is requested; at least one part.
        tags: that the class asks for, rendered.
        answers: what EC2 has said of this request.
        refused: parts that EC2 has refused alone, and that are not to be tried now.
        limit: what EC2 has said of modifications of this volume.
        reported_failure: the failed modification that was reported, "" for none.
    """

    volume: Volume | None
    latest: Modification | None
    ledger: Ledger
    now: datetime
    requested: Requested
    tags: Mapping[str, str] = field(default_factory=dict)
    answers: Answers = Answers()
    refused: frozenset[Part] = frozenset()
    limit: Limit | None = None
    reported_failure: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """EC2 does not know the volume."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """What was sent may have been carried out: for so many seconds, look and send nothing."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """EC2 has what these parts ask for; ``size_gib`` is what the volume has.

    ``fitted``: the IOPS that the attributes ask for, and what the volume got of them.
    """

    parts: frozenset[Part]
    size_gib: int
    fitted: Fitted | None = None


@dataclass(frozen=True, slots=True)
class Await:
    """A modification runs; ``message`` says so if it is not the one that is requested."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A modification has failed in EC2; it is tried again once that was reported."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """A part that no volume can have, found before EC2 was asked."""

    part: Part
    message: str


@dataclass(frozen=True, slots=True)
class Tag:
    """Tags to be written and keys to be removed; EC2 counts neither as a modification.

    The volume already has the shape of its class, so a class that EC2 refuses leaves no tags.
    ``is_optional``: they only say how IOPS follow the size later.
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
    """One ModifyVolume for these parts."""

    request: ModifyRequest
    parts: frozenset[Part]
    fitted: Fitted | None = None


@dataclass(frozen=True, slots=True)
class AllRefused:
    """All that is left was refused, and its time has not come."""


Step = Gone | InDoubt | Done | Await | Failed | Impossible | Tag | WaitUntil | Send | AllRefused


def decide(view: View) -> Step:
    """Say what is to be done next."""
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
    parts = _to_send(view)
    if not parts:
        return AllRefused()
    target = _target(view, volume, has, parts)
    fault = _fault(view, volume, has, parts)
    if fault is not None:
        return fault
    return _sending(view, volume, has, target, parts)


def is_under_way(view: View, step: Step) -> bool:
    """Whether what the claim's status names is being carried out, is done, or may be either."""
    if isinstance(step, InDoubt | Done | Tag | Gone):
        return True
    return view.latest is not None and view.latest.state is ModificationState.MODIFYING


# At ``optimizing`` all of it is there: EBS user guide "Monitor the progress of volume
# modifications" (read 2026-11-21).
_IN_EFFECT = (ModificationState.OPTIMIZING, ModificationState.COMPLETED)


def settled(volume: Volume, latest: Modification | None) -> Shape:
    """What the volume has by now: DescribeVolumes may be behind its latest modification."""
    has = shape_of(volume)
    if latest is None or latest.state not in _IN_EFFECT:
        return has
    return replace(latest.target, size_gib=max(has.size_gib, latest.target.size_gib))


def _running(view: View, volume: Volume, latest: Modification) -> Await:
    """Wait for it, even if somebody else has started it; say so if it was not requested."""
    parts = _to_send(view)
    target = _target(view, volume, shape_of(volume), parts)
    is_requested = not parts or agrees(latest.target, target)
    # EC2 may have refused the IOPS that would come with the size; then the size goes alone.
    is_size = parts == {Part.SIZE} and latest.target.size_gib >= target.size_gib
    return Await("" if is_requested or is_size else _running_message(latest))


def _fulfilled(view: View, volume: Volume, has: Shape) -> Done | Tag | None:
    requested, done = view.requested, set()
    tag = fitted = None
    if requested.size_gib is not None and has.size_gib >= requested.size_gib:
        done.add(Part.SIZE)
    if requested.attributes is not None:
        grown, target = _of_class(view, has, requested.attributes)
        if agrees(grown, target):
            tag, fitted = _tags(view, requested.attributes, volume), target.fitted
            done |= {Part.ATTRIBUTES} if tag is None else set()
    if done:
        return Done(frozenset(done), has.size_gib, fitted if Part.ATTRIBUTES in done else None)
    return tag if Part.ATTRIBUTES not in view.refused else None


def _of_class(view: View, has: Shape, asks: Attributes) -> tuple[Shape, TargetShape]:
    """What the volume has at the size that comes, and what its class asks for at that size."""
    size_gib = 0 if Part.SIZE in view.refused else view.requested.size_gib or 0
    grown = replace(has, size_gib=max(has.size_gib, size_gib))
    ceiling = view.answers.iops_ceiling
    return grown, target_shape(grown, {}, size_gib=None, attributes=asks, ceiling=ceiling)


def at_ceiling(view: View) -> Shape | None:
    """What a volume has that lacks only IOPS, if these may be all that the region gives.

    A process before this one may have learned that from a refusal, and then requested these IOPS.
    None: EC2 need not be asked, or a size is due, which does not wait for that.
    """
    volume, latest, asks = view.volume, view.latest, view.requested.attributes
    if volume is None or latest is None or asks is None or view.answers.iops_ceiling is not None:
        return None
    is_running = latest.state is ModificationState.MODIFYING
    has = latest.target if is_running else settled(volume, latest)
    grown, target = _of_class(view, has, asks)
    had = latest.original.iops if latest.original is not None else None
    if grown.size_gib > has.size_gib or had == has.iops:
        return None
    least = EVERYWHERE.get(grown.volume_type, LARGEST_NUMBER)
    is_rest_there = agrees(grown, replace(target, iops=None))
    return grown if is_rest_there and least <= (grown.iops or 0) < (target.iops or 0) else None


def _to_send(view: View) -> frozenset[Part]:
    """The parts that go into the next modification."""
    parts = view.requested.parts - view.refused
    if view.answers.refused_together is not None and parts == BOTH:
        return frozenset({Part.SIZE})  # a full disk is more urgent than a slow one
    return parts


def _target(view: View, volume: Volume, has: Shape, parts: frozenset[Part]) -> TargetShape:
    requested, follows = view.requested.only(parts), view.answers.iops_refused is None
    return target_shape(
        has,
        volume.tags if follows else {},
        size_gib=requested.size_gib,
        attributes=requested.attributes,
        current=requested.current if follows and Part.ATTRIBUTES not in parts else None,
        before=view.latest.original if view.latest is not None else None,
        ceiling=view.answers.iops_ceiling,
    )


def _fault(view: View, volume: Volume, has: Shape, parts: frozenset[Part]) -> Impossible | None:
    """The part that no volume can have. The largest size only EC2 knows, Region by Region."""
    size_gib = view.requested.size_gib or 0
    if Part.SIZE in parts and size_gib > LARGEST_NUMBER:
        return Impossible(
            Part.SIZE, f"{size_gib} GiB is more than any request to EC2 can hold; request less"
        )
    asks = view.requested.attributes
    if Part.ATTRIBUTES not in parts or asks is None:
        return None
    message = fault_of(_target(view, volume, has, parts), has)
    after = (volume.tags.keys() | view.tags.keys()) - set(asks.deleted_tags)
    count = sum(not key.startswith("aws:") for key in after)  # AWS's own do not count
    if message is None and count > tags.MOST:
        message = f"the volume would have {count} tags, but EC2 allows {tags.MOST}; remove some"
    return Impossible(Part.ATTRIBUTES, message) if message is not None else None


def _tags(view: View, asks: Attributes, volume: Volume) -> Tag | None:
    """What is to be written; optional tags separately, because a policy may refuse them."""
    add = _lacking(view.tags, volume)
    remove = tuple(key for key in asks.deleted_tags if key in volume.tags)
    if add or remove:
        return Tag(add, remove)
    if view.answers.tags_refused is not None:
        return None
    change = view.requested.change
    following = _lacking(following_of(change), volume)
    outdated = tuple(key for key in outdated_of(change) if key in volume.tags)
    return Tag(following, outdated, is_optional=True) if following or outdated else None


def _lacking(written: Mapping[str, str], volume: Volume) -> dict[str, str]:
    return {key: value for key, value in written.items() if volume.tags.get(key) != value}


def _sending(
    view: View, volume: Volume, has: Shape, target: TargetShape, parts: frozenset[Part]
) -> Step:
    latest = view.latest
    request = difference(volume.volume_id, has, target)
    if request is None:
        return Await()  # what the volume has already was found before
    if latest is not None and latest.state is ModificationState.OPTIMIZING:
        return Await(
            "the previous modification of the volume is still optimizing; EC2 accepts the next one "
            "once it has completed, which can take hours"
        )
    if latest is not None and latest.state is ModificationState.FAILED:
        name = name_of(latest)
        if name != view.reported_failure and has_failed_in(latest, has, target, view.now):
            why = f": {latest.message.rstrip('. ')}" if latest.message else ""
            return Failed(name, f"the modification failed in EC2{why}; it will be retried")
    wait = not_before(view.ledger, latest, view.now, view.limit)
    return wait if wait is not None else Send(request, parts, target.fitted)


def not_before(
    ledger: Ledger, latest: Modification | None, now: datetime, limit: Limit | None
) -> WaitUntil | None:
    """Until when EC2 takes no other modification, and why; None when it would take one now.

    ``limit``: what it has said itself, which counts more than what we have counted.
    """
    if limit is not None and limit.until > now:
        why = "EC2 refuses further modifications of the volume until then"
        message = _NO_TIME if limit.is_guess else _waits(limit.until, why)
        return WaitUntil(limit.until, message)
    more_at = ledger.more_at(latest, now)
    if ledger.left(latest, now) or more_at is None:
        return None
    why = f"EC2 allows {MOST} modifications of a volume in 24 hours, and all are used up"
    return WaitUntil(more_at, _waits(more_at, why))


def limit_of(error: StorageError, began: datetime | None, now: datetime) -> Limit:
    """Until when EC2 takes no modification, as far as it says so; else it is tried hourly.

    ``began``: when the latest modification did.
    """
    at = None
    if isinstance(error, Ec2Error) and error.retry_at is not None:
        at = error.retry_at.astimezone(UTC)
        at = at if at > now else now + _LIMIT_LEAST
    elif error.retry_after_s is not None:
        at = now + timedelta(seconds=error.retry_after_s)
    elif isinstance(error, Ec2Error) and error.between_s is not None and began is not None:
        at = began + timedelta(seconds=error.between_s)
    return Limit(now + _LIMIT_AGAIN, is_guess=True) if at is None or at <= now else Limit(at)


def _waits(until: datetime, why: str) -> str:
    return f"waiting until {until:%Y-%m-%d %H:%M:%S} UTC: {why}; {_THEN}"


def _running_message(latest: Modification) -> str:
    """What is said while a modification runs that is not the one that is requested."""
    since = f" since {latest.started_at:%Y-%m-%d %H:%M:%S} UTC" if latest.started_at else ""
    return (
        f"another modification of the volume has been in progress{since}; EC2 accepts the next one "
        "once it has completed, which can take hours"
    )


def has_failed_in(latest: Modification, has: Shape, target: TargetShape, now: datetime) -> bool:
    """Whether a failed modification was for what is requested now, not for something of long ago.

    What came later may be requested besides: the size is enough to know it by.
    """
    if latest.started_at is not None and now - latest.started_at > _OLD:
        return False
    is_its_size = latest.target.size_gib == target.size_gib > has.size_gib
    return is_its_size or agrees(latest.target, target)
