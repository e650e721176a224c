"""One claim whose volume is to grow or to change: what this process knows, and one look at it."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from provisioner.decide import attributes as attribute_rules
from provisioner.decide import expand, volume_plan
from provisioner.decide.attributes import ModifyStatus
from provisioner.decide.expand import ResizeStatus
from provisioner.decide.volume_plan import View, Wish
from provisioner.ec2.watcher import Watchers
from provisioner.edges import Edges
from provisioner.model.budget import IN_DOUBT_S, Ledger, name_of
from provisioner.model.claim import Claim
from provisioner.model.errors import StorageError
from provisioner.model.modification import Modification, ModificationState
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume

FRESH_S = 30.0
# So long a new wish waits for another one: two edits of a claim then cost one modification.
GATHER_S = 1.0
# While the watcher looks at the modification, a volume need not be looked at as often.
_FRESH_WATCHED_S = 300.0
_NOT_BEFORE_S = 1.0
# No shorter, or what is left by a hair of rounding is waited for in circles.
_LEAST_S = 0.1
_NODE_PAUSE_S, _NODE_PAUSE_MOST_S = 5.0, 1800.0


@dataclass(slots=True)
class Refusal:
    """A wish that was refused: what it was, why, and from when on it is tried again (loop time).

    ``is_written``: the claim and an event say so.
    """

    target: str
    error: StorageError
    until_s: float
    times: int = 1
    is_written: bool = False


@dataclass(slots=True)
class Known:
    """One claim.

    Attributes:
        wished_at_s: when something was first wanted (loop time).
        gather_until_s: so long (loop time) another wish is waited for.
        targets: the size and the class that are wanted, "" for none.
        begun: the wishes whose target in the claim's status may be under way.
        inherited_until_s: so long (loop time) a process before us may turn out to have sent it.
        alone: both wishes together were refused; ``together`` is why.
        ceiling: the most IOPS that EC2 gives, as it has said when it refused more.
        unfollowed: why the tags that tell how IOPS follow the size could not be written.
        volume: as it was read last; ``latest`` its latest modification.
        read_at_s: when (loop time); None: not yet, or it is out of date.
        refusals: by wish.
        limited_until: EC2 takes no modification before.
        limit_is_guess: it does not say until when.
        told_failed: the failed modification that was told.
        told: what was told last of each wish, and when (loop time).
        told_found: what was told of a class or annotations that cannot be had.
        missing_since_s: since when EC2 does not show the volume.
        conflicts: writes in a row that found the claim or its object changed.
    """

    wished_at_s: float
    gather_until_s: float = 0.0
    targets: tuple[str, str] = ("", "")
    begun: frozenset[Wish] = frozenset()
    inherited_until_s: float = 0.0
    alone: bool = False
    together: StorageError | None = None
    ceiling: int | None = None
    unfollowed: StorageError | None = None
    volume: Volume | None = None
    latest: Modification | None = None
    read_at_s: float | None = None
    refusals: dict[Wish, Refusal] = field(default_factory=dict)
    limited_until: datetime | None = None
    limit_is_guess: bool = False
    told_failed: str = ""
    told: dict[Wish, tuple[str, float]] = field(default_factory=dict)
    told_found: str = ""
    missing_since_s: float | None = None
    conflicts: int = 0

    @classmethod
    def of(cls, claim: Claim) -> "Known":
        """What can be told at the first look, which may be that of a new process.

        Whatever the status names as under way may be: the process before us may have sent it.
        """
        modify = claim.modify_status
        named = {
            Wish.SIZE: claim.resize_status == ResizeStatus.CONTROLLER_IN_PROGRESS,
            Wish.ATTRIBUTES: modify is not None and modify.status == ModifyStatus.IN_PROGRESS,
        }
        begun = frozenset(wish for wish in Wish if named[wish])
        return cls(loop_s(), begun=begun, inherited_until_s=loop_s() + IN_DOUBT_S if begun else 0.0)

    def is_free(self, wish: Wish) -> bool:
        """Whether surely nothing is under way for what the claim's status names."""
        return wish not in self.begun

    def aim(self, size: str, name: str) -> None:
        """Note what is wanted now; forget refusals of anything else."""
        targets = (size, name)
        if targets == self.targets:
            return
        now_s = loop_s()
        if not any(self.targets):
            self.wished_at_s = now_s
        if any(new and new != old for new, old in zip(targets, self.targets, strict=True)):
            self.gather_until_s = now_s + GATHER_S
        for wish, target in zip(Wish, targets, strict=True):
            if wish in self.refusals and self.refusals[wish].target != target:
                del self.refusals[wish]
        self.targets, self.alone, self.together = targets, False, None
        self.ceiling = self.unfollowed = None

    def forget_class(self) -> None:
        """Forget refusals of the class: another one has its name by now."""
        self.refusals.pop(Wish.ATTRIBUTES, None)
        self.targets, self.alone, self.together = (self.targets[0], ""), False, None

    def refuse(self, wish: Wish, error: StorageError, again_s: float) -> None:
        """Set a wish aside for a while."""
        target = dict(zip(Wish, self.targets, strict=True))[wish]
        times = self.refusals[wish].times + 1 if wish in self.refusals else 1
        self.refusals[wish] = Refusal(target, error, loop_s() + again_s, times)
        self.begun -= {wish}

    def sent(self, begun: Modification, now_s: float) -> None:
        """EC2 has taken a modification."""
        self.latest, self.read_at_s = begun, now_s
        self.limited_until, self.limit_is_guess = None, False
        self.told.clear()

    def news(
        self, message: str, wishes: frozenset[Wish], again_s: float = math.inf
    ) -> frozenset[Wish]:
        """The wishes of which this is to be told now; it counts as told from now on.

        ``again_s``: so long after it was told it is told once more.
        """
        now_s = loop_s()
        last = {wish: self.told.get(wish, ("", now_s)) for wish in wishes}
        new = {w for w, (text, at_s) in last.items() if text != message or now_s - at_s >= again_s}
        self.told |= dict.fromkeys(new, (message, now_s))
        return frozenset(new)

    def held_for_s(self) -> float | None:
        """Seconds until the first of the refused wishes is tried again."""
        now_s = loop_s()
        left = [each.until_s - now_s for each in self.refusals.values()]
        return max(_LEAST_S, min(left)) if left else None

    @property
    def refused(self) -> frozenset[Wish]:
        """The wishes whose time has not come."""
        return frozenset(w for w, each in self.refusals.items() if each.until_s > loop_s())


class Readings:
    """What EC2 has of each volume, read no more often than it takes.

    300 claims that change at once cost two calls, and their events none.
    """

    def __init__(self, edges: Edges) -> None:
        self._volumes = edges.volume_reads
        self._modifications = edges.modification_reads
        self._watchers: Watchers = edges.watchers

    async def refresh(self, volume_id: str, known: Known, ledger: Ledger) -> None:
        """Bring ``known`` up to date.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        sighting = self._watchers.modifications.sighting(volume_id)
        fresh_s = FRESH_S if sighting is None else _FRESH_WATCHED_S
        if known.read_at_s is None or loop_s() - known.read_at_s > fresh_s:
            asked_at_s = loop_s()
            known.volume, known.latest = await asyncio.gather(
                self._volumes.volume(volume_id), self._modifications.latest(volume_id)
            )
            known.read_at_s = asked_at_s
            return
        shown = sighting.found if sighting is not None else None
        # EC2 may still show the modification before ours.
        if shown is not None and not (ledger.starts and name_of(shown) == ledger.starts[-1].after):
            known.latest = shown

    def watch(
        self, uid: str, volume_id: str, wake: Callable[[], None], *, anew: bool = False
    ) -> None:
        """Have the claim looked at when its modification has changed."""
        self._watchers.modifications.watch(
            volume_id, f"modify {uid}", wake, not_before_s=_NOT_BEFORE_S if anew else 0.0
        )

    def leave(self, uid: str, volume_id: str) -> None:
        """It is waited for no more."""
        self._watchers.modifications.forget(volume_id, f"modify {uid}")


@dataclass(slots=True)
class _NodeRefusal:
    """``until_s``: None while the node is asked again; ``request`` is the size that was wanted."""

    request: str
    until_s: float | None
    times: int = 1


class NodePauses:
    """How long a node that cannot grow a file system is left alone before it is asked again.

    Kubelet says NodeResizeInfeasible and acts no more until the status is NodeResizePending. Said
    back at once, each would answer the other for ever.
    """

    def __init__(self) -> None:
        self._refusals: dict[str, _NodeRefusal] = {}

    def left_s(self, claim: Claim) -> float:
        """Seconds until its node may be asked again, 0.0 for now; to be told of every status."""
        uid, status, request = claim.uid, claim.resize_status, claim.requested_storage
        known = self._refusals.get(uid)
        if status != ResizeStatus.NODE_INFEASIBLE:
            if not status:
                self.forget(uid)
            elif known is not None:
                known.until_s = None
            return 0.0
        if known is None:
            known = self._refusals[uid] = _NodeRefusal(request, loop_s() + _NODE_PAUSE_S)
        elif known.request != request:
            known.request, known.times, known.until_s = request, 0, loop_s()
        elif known.until_s is None:
            pause_s = min(_NODE_PAUSE_S * 4.0 ** min(known.times, 8), _NODE_PAUSE_MOST_S)
            known.until_s, known.times = loop_s() + pause_s, known.times + 1
        return max(0.0, (known.until_s or 0.0) - loop_s())

    def forget(self, uid: str) -> None:
        """It has grown, or the claim is gone."""
        self._refusals.pop(uid, None)


# Go on at once; or the next look in so many seconds, None: when woken.
Next = Literal[True] | float | None


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one claim; what it wants is ``grow``, ``change`` or both.

    ``is_bound``: something else is wanted by now than what may be under way.
    """

    claim: Claim
    persistent_volume: PersistentVolume
    volume_id: str
    known: Known
    grow: expand.Grow | None
    change: attribute_rules.Change | None
    is_bound: bool = False

    @property
    def wishes(self) -> frozenset[Wish]:
        """What is wanted."""
        wanted = {Wish.SIZE: self.grow is not None, Wish.ATTRIBUTES: self.change is not None}
        return frozenset(wish for wish in Wish if wanted[wish])


def view_of(
    look: Look,
    change: attribute_rules.Change | None,
    tags: Mapping[str, str],
    ledger: Ledger,
    now: datetime,
) -> View:
    """What the plan is made from; ``change`` with its ``tags`` may be less than is wanted."""
    known = look.known
    return View(
        volume=known.volume,
        latest=known.latest,
        ledger=ledger,
        now=now,
        size_gib=look.grow.size_gib if look.grow else None,
        attributes=change.attributes if change else None,
        tags=tags,
        following=attribute_rules.following_of(change),
        unfollowed=known.unfollowed is not None,
        ceiling=known.ceiling,
        refused=known.refused,
        alone=known.alone,
        limited_until=known.limited_until,
        told_failed=known.told_failed,
    )


def is_under_way(view: View, step: volume_plan.Step) -> bool:
    """Whether what the claim's status names is being carried out, is done, or may be either."""
    known = volume_plan.InDoubt | volume_plan.Done | volume_plan.Tag | volume_plan.Gone
    if isinstance(step, known):
        return True
    return view.latest is not None and view.latest.state is ModificationState.MODIFYING


def released(known: Known) -> Next:
    """It was never begun, or nothing came of it: what is wanted by now counts.

    A process before us, or the stock resizer, may have sent it a moment ago without a note.
    """
    now_s, until_s = loop_s(), known.inherited_until_s
    if known.read_at_s is None or known.read_at_s < until_s:
        known.read_at_s = None
        return until_s - now_s if until_s > now_s else True
    known.begun = frozenset()
    return True


def loop_s() -> float:
    """Seconds of the event loop's clock."""
    return asyncio.get_running_loop().time()
