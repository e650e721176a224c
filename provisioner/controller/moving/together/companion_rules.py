"""Decide about the other claims of the same pods: a pod only starts where all of its volumes are.

A move to another zone is refused while one of them would stay behind. Those that ``movedWith``
names have moves of their own. None of them begins before all are planned, none stops pods before
all have their warm snapshots, and none swaps before all could: what goes wrong until then undoes
all.

Whether they swap is decided once, by one write: when the first of them by the claim's name, the
leader, enters Swapping. All others have told that they are ready before (``ready``), and go by what
it does, so that one which fails between two of their looks does not split them. If it turns back
after that, the rest go on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.model.sentences import listed
from provisioner.model.volume_move import Phase, VolumeMove

_BEFORE_STOP = frozenset({Phase.NEW, Phase.PLANNED, Phase.WARMING})
_SWAPPED = frozenset({Phase.CLEANING, Phase.DONE})


@dataclass(frozen=True, slots=True)
class Companion:
    """Another claim, as it is now.

    Attributes:
        name: of the claim, in the namespace of the move.
        persistent_volume: of the claim, "" if it is gone or has none.
        zones: where its volume can be used; None: anywhere, or there is no volume.
        moves: all moves of the claim.
        pods: that use it and the claim that is moved; none if it is only named in ``movedWith``.
    """

    name: str
    persistent_volume: str = ""
    zones: frozenset[str] | None = None
    moves: Sequence[VolumeMove] = ()
    pods: Sequence[str] = ()


def left_behind(move: VolumeMove, companions: Iterable[Companion], zone: str) -> str | None:
    """Why the pods could not run after the move, in one sentence; None if they could.

    Args:
        move: which is planned.
        companions: other claims of its pods.
        zone: of the new volume, if that is another one than now.
    """
    behind = [
        each
        for each in companions
        if each.pods
        and each.zones is not None
        and zone not in each.zones
        and each.name not in move.spec.moved_with
        and not any(_goes_to(other, zone) for other in each.moves)
    ]
    if not behind:
        return None
    first, names = behind[0], sorted(each.name for each in behind)
    together = [move.spec.claim_name, *move.spec.moved_with, *names]
    words = " ".join(f"pvc/{name}" for name in together)
    what = "claim" if len(names) == 1 else "claims"
    command = f"kubectl ebs move -n {move.metadata.namespace} {words} --to-zone {zone}"
    return (
        f"pod {min(first.pods)} uses {what} {listed(names, 'and')} as well, in zone "
        f"{listed(first.zones or ())}, and could not run in {zone}: move them together ({command}; "
        "in a manifest, movedWith)"
    )


def _goes_to(other: VolumeMove, zone: str) -> bool:
    return other.is_under_way and _zone_of(other) == zone


def _zone_of(move: VolumeMove) -> str:
    """To which zone a move goes; "" for one that stays in its zone, or has no plan yet."""
    plan = move.told.plan
    if move.goes_back and plan is not None and plan.target.zone != plan.source.zone:
        return plan.target.zone
    return move.spec.to.zone


def notes(move: VolumeMove) -> list[str]:
    """What the plan says of the claims that are moved with this one."""
    names = move.spec.moved_with
    if not names:
        return []
    what = "claim" if len(names) == 1 else "claims"
    verb = "is" if len(names) == 1 else "are"
    told = f"{what} {listed(names, 'and')} {verb} moved at the same time"
    return [f"{told}: if one of the moves fails before the swap, all are undone"]


def before_begin(move: VolumeMove, companions: Iterable[Companion]) -> Await | Undo | None:
    """Whether a planned move waits until those that it is moved with are planned, too.

    One that has ended since this one was created undoes it; one of before may be tried again.
    """
    companions = list(companions)
    ended = next((each for each in companions if _has_failed_since(move, each)), None)
    if ended is not None:
        return _left(move, ended)
    there = {each.name for each in companions if _has_arrived(move, each)}
    for each in companions:
        going = _partner(move, each)
        if going is None and not _is_there(move, each):
            return Await(f"it waits for a VolumeMove of claim {each.name}{_last(move, each)}")
        if going is not None and going.told.phase == Phase.NEW:
            return Await(f"it waits for the plan of VolumeMove {going.name}")
        if going is not None and _names(going) - there != _names(move) - there:
            return Await(
                f"VolumeMove {going.name} goes with claims {listed(sorted(_names(going)), 'and')}, "
                f"and this one with {listed(sorted(_names(move)), 'and')}: all of them have to "
                "name the same ones; delete one of the two, and create it again"
            )
    return None


def before_stop(move: VolumeMove, companions: Iterable[Companion]) -> Await | Undo | None:
    """Whether a move that has its warm snapshots, or takes none, waits for those of the others."""
    text = "pods stop once VolumeMove {} has its snapshots, too"
    return _together(move, companions, text, _may_stop)


def before_swap(move: VolumeMove, companions: Iterable[Companion]) -> Await | Undo | None:
    """Whether a move that could swap waits until those that it is moved with can, too."""
    text = "all is ready; it waits until VolumeMove {} is as far"
    members = [each for each in companions if not _has_arrived(move, each)]
    leader = min(members, key=lambda each: each.name, default=None)
    if leader is None or move.spec.claim_name < leader.name:
        return _together(move, members, text, _may_swap)
    going = _partner(move, leader)
    if _has_swapped(going):
        return None
    if going is None and _has_turned_back(move, leader):
        return None
    if going is not None and move.told.ready:
        return Await(text.format(going.name))
    found = _together(move, members, text, _may_swap)
    return found if found is not None or going is None else Await(text.format(going.name))


def undone(move: VolumeMove, companions: Iterable[Companion]) -> Undo | None:
    """Whether it will not swap, as another one has failed: then pods need not stop any longer."""
    found = before_swap(move, companions)
    return found if isinstance(found, Undo) else None


def go_on(move: VolumeMove, companions: Iterable[Companion]) -> bool:
    """Whether each of them has a move under way: then no rule asks where its claim is now."""
    return all(_partner(move, each) is not None for each in companions)


def led_by(move: VolumeMove, companions: Iterable[Companion]) -> list[VolumeMove]:
    """The moves that swap because this one does; none if one of them was the first."""
    going = [found for each in companions if (found := _partner(move, each)) is not None]
    return [] if any(_has_swapped(each) for each in going) else going


def promised_to(move: VolumeMove, companions: Iterable[Companion]) -> list[VolumeMove]:
    """The moves that swap after this one, which does or has, and have not begun to."""
    going = (_partner(move, each) for each in companions)
    return [each for each in going if each is not None and each.is_promised]


def is_led(move: VolumeMove, companions: Iterable[Companion]) -> bool:
    """Whether another one decides if it swaps: those that have arrived decide nothing any more."""
    members = (each for each in companions if not _has_arrived(move, each))
    return any(each.name < move.spec.claim_name for each in members)


def not_moved(move: VolumeMove, companions: Iterable[Companion]) -> str:
    """What a human has to know of claims that failed after others had swapped; "" if none has."""
    left = [e for e in companions if _partner(move, e) is None and not _is_there(move, e)]
    if not left:
        return ""
    names = sorted(each.name for each in left)
    said = f"claim {listed(names, 'and')} was not moved with it{_last(move, left[0])}"
    zone = _zone_of(move)
    if not zone:
        return said
    words = " ".join(f"pvc/{name}" for name in names)
    command = f"kubectl ebs move -n {move.metadata.namespace} {words} --to-zone {zone}"
    return f"{said}: pods that use both find no node until it is moved as well ({command})"


def _together(
    move: VolumeMove,
    companions: Iterable[Companion],
    text: str,
    is_as_far: Callable[[VolumeMove], bool],
) -> Await | Undo | None:
    waits: Await | None = None
    for each in companions:
        going = _partner(move, each)
        if going is None and not _is_there(move, each):
            return _left(move, each)
        if going is not None and not is_as_far(going):
            waits = waits or Await(text.format(going.name))
    return waits


def _left(move: VolumeMove, companion: Companion) -> Undo:
    return Undo(f"claim {companion.name} is not moved with it any more{_last(move, companion)}")


def before_return(move: VolumeMove, companions: Iterable[Companion]) -> Await | None:
    """Whether the pods of a move that has swapped wait for other claims of theirs."""
    for each in companions:
        going = _partner(move, each)
        if going is not None and going.told.phase not in _SWAPPED:
            return Await(f"it waits until VolumeMove {going.name} has swapped its claim")
    return None


def _names(move: VolumeMove) -> set[str]:
    return {move.spec.claim_name, *move.spec.moved_with}


def _has_arrived(move: VolumeMove, companion: Companion) -> bool:
    """Whether a claim has what it was to get, and no move of it goes on."""
    return _partner(move, companion) is None and _is_there(move, companion)


def _may_stop(other: VolumeMove) -> bool:
    phase = other.told.phase
    if phase == Phase.PLANNED:
        return not other.warms  # it waits for the others' snapshots, and takes none
    return phase not in _BEFORE_STOP or (phase == Phase.WARMING and other.told.ready)


def _has_failed_since(move: VolumeMove, companion: Companion) -> bool:
    """Whether the last move of the other claim was refused or undone, and is none of before."""
    if _partner(move, companion) is not None or _is_there(move, companion):
        return False
    last, created_at = _last_ended(move, companion), move.metadata.creation_timestamp
    if last is None or not last.told.phase_since or created_at is None:
        return False
    return datetime.fromisoformat(last.told.phase_since) >= created_at


def _has_turned_back(move: VolumeMove, leader: Companion) -> bool:
    """Whether the leader has decided that all swap, and then left its own claim as it was.

    That is no move of another day, which was undone before this one began to wait.
    """
    last = _last_ended(move, leader)
    return (
        last is not None
        and last.told.undone_from == Phase.SWAPPING
        and last.told.phase_since >= move.told.phase_since
    )


def _may_swap(other: VolumeMove) -> bool:
    is_ready = other.told.ready and other.told.phase != Phase.WARMING
    return is_ready or _has_swapped(other)


def _has_swapped(other: VolumeMove | None) -> bool:
    """Whether it swaps, or has swapped."""
    return other is not None and other.told.phase in {Phase.SWAPPING, *_SWAPPED}


def _partner(move: VolumeMove, companion: Companion) -> VolumeMove | None:
    """The move of the other claim that is under way and goes by this one."""
    found = (e for e in companion.moves if e.is_under_way and _name_each_other(move, e))
    return next(found, None)


def _name_each_other(move: VolumeMove, other: VolumeMove) -> bool:
    """Those that go back have each a move of their own to go back from."""
    is_alike = other.spec.to == move.spec.to or (other.goes_back and move.goes_back)
    return move.spec.claim_name in other.spec.moved_with and is_alike


def _is_there(move: VolumeMove, companion: Companion) -> bool:
    """Whether the other claim has what it was to get."""
    zone = _zone_of(move)
    if zone and zone in (companion.zones or ()):
        return True
    return any(
        each.told.phase == Phase.DONE
        and each.persistent_volume_name == companion.persistent_volume
        and _name_each_other(move, each)
        for each in companion.moves
    )


def _last(move: VolumeMove, companion: Companion) -> str:
    """What became of the last one that went by this move, for the end of a sentence."""
    last = _last_ended(move, companion)
    if last is None:
        return ""
    return f" (VolumeMove {last.name} is {last.told.phase}: {last.told.message})"


def _last_ended(move: VolumeMove, companion: Companion) -> VolumeMove | None:
    ended = [
        each
        for each in companion.moves
        if not each.spec.dry_run and not each.is_under_way and _name_each_other(move, each)
    ]
    return max(ended, key=lambda each: each.told.phase_since, default=None)
