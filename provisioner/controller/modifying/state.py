"""One claim whose volume is to grow or to change: what is wanted and known, and one look at it.

The states that a wish goes through, and where each is kept:

- gathering: another wish may follow, and both then cost one modification (``gather_until_s``);
- begun: what the claim's status names may be under way (``begun``), and while a process before us
  may have sent it without a note, nobody knows (``inherited_until_s``);
- apart: EC2 has refused both wishes together, and each goes alone (``Aim.apart``);
- refused: set aside for a while, and told on the claim (``refusals``);
- limited: EC2 takes no modification before a time (``limited_until``).
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from provisioner import clock
from provisioner.controller.modifying import rules
from provisioner.controller.modifying.class_rules import Change, ModifyStatus, following_of
from provisioner.controller.modifying.growth_rules import Grow, ResizeStatus
from provisioner.controller.modifying.rules import View, Wish
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.tell_once import TellOnce
from provisioner.model.backoff import Backoff
from provisioner.model.budget import IN_DOUBT_S, Ledger, name_of
from provisioner.model.claim import Claim
from provisioner.model.decision import AGAIN, SETTLED, Later, Next
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
_NODE_PAUSE = Backoff(5.0, 1800.0, factor=4.0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a volume."""

    grow: Grow | None = None
    change: Change | None = None

    @property
    def wishes(self) -> frozenset[Wish]:
        """Which of both."""
        wanted = {Wish.SIZE: self.grow is not None, Wish.ATTRIBUTES: self.change is not None}
        return frozenset(wish for wish in Wish if wanted[wish])

    @property
    def name(self) -> str | None:
        """The class that is wanted, "" for that of annotations, None for none."""
        return None if self.change is None else self.change.name

    def only(self, wishes: frozenset[Wish]) -> "Wanted":
        """Without all other wishes."""
        return Wanted(
            self.grow if Wish.SIZE in wishes else None,
            self.change if Wish.ATTRIBUTES in wishes else None,
        )


@dataclass(slots=True)
class Aim:
    """Targets, and what EC2 has said of just these.

    Attributes:
        targets: the size and the class, by wish; "" for none.
        apart: why both were refused together; each goes alone since.
        ceiling: the most IOPS that EC2 gives, as it has said when it refused more.
        unfollowed: why the tags that tell how IOPS follow the size could not be written.
    """

    targets: Mapping[Wish, str] = field(default_factory=lambda: dict.fromkeys(Wish, ""))
    apart: StorageError | None = None
    ceiling: int | None = None
    unfollowed: StorageError | None = None


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


@dataclass(frozen=True, slots=True)
class Reading:
    """A volume and its latest modification, as read at a time of the loop."""

    volume: Volume | None
    latest: Modification | None
    at_s: float


@dataclass(slots=True)
class Known:
    """One claim.

    Attributes:
        volume_id: whose modification may be watched.
        wished_at_s: when something was first wanted (loop time).
        gather_until_s: so long (loop time) another wish is waited for.
        aim: what is wanted.
        begun: the wishes whose target in the claim's status may be under way.
        inherited_until_s: so long (loop time) a process before us may turn out to have sent it.
        reading: None: not yet, or it is out of date.
        refusals: by wish.
        limited_until: EC2 takes no modification before.
        limit_is_guess: it does not say until when.
        waits_for_limit: there is nothing to do but wait for that.
        told_failed: the failed modification that was told.
        told: what was told last of each wish.
        missing_since_s: since when EC2 does not show the volume.
        conflicts: writes in a row that found the claim or its object changed.
    """

    wished_at_s: float
    volume_id: str = ""
    gather_until_s: float = 0.0
    aim: Aim = field(default_factory=Aim)
    begun: frozenset[Wish] = frozenset()
    inherited_until_s: float = 0.0
    reading: Reading | None = None
    refusals: dict[Wish, Refusal] = field(default_factory=dict)
    limited_until: datetime | None = None
    limit_is_guess: bool = False
    waits_for_limit: bool = False
    told_failed: str = ""
    told: TellOnce = field(default_factory=TellOnce)
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
        until_s = clock.now_s() + IN_DOUBT_S if begun else 0.0
        return cls(clock.now_s(), begun=begun, inherited_until_s=until_s)

    def is_free(self, wish: Wish) -> bool:
        """Whether surely nothing is under way for what the claim's status names."""
        return wish not in self.begun

    def aim_at(self, wanted: Wanted) -> None:
        """Note what is wanted now; forget refusals of anything else."""
        change = wanted.change
        new = {
            Wish.SIZE: wanted.grow.target if wanted.grow else "",
            Wish.ATTRIBUTES: (change.name or str(change.attributes)) if change else "",
        }
        old, now_s = self.aim.targets, clock.now_s()
        if new == old:
            return
        if not any(old.values()):
            self.wished_at_s = now_s
        if any(new[wish] not in ("", old[wish]) for wish in Wish):
            self.gather_until_s = now_s + GATHER_S
        for wish, refusal in list(self.refusals.items()):
            if refusal.target != new[wish]:
                del self.refusals[wish]
        self.aim = Aim(new)

    def forget_class(self) -> None:
        """Forget refusals of the class: another one has its name by now."""
        self.refusals.pop(Wish.ATTRIBUTES, None)
        self.aim = Aim({**self.aim.targets, Wish.ATTRIBUTES: ""})

    def refuse(self, wish: Wish, error: StorageError, again_s: float) -> None:
        """Set a wish aside for a while."""
        times = self.refusals[wish].times + 1 if wish in self.refusals else 1
        target = self.aim.targets[wish]
        self.refusals[wish] = Refusal(target, error, clock.now_s() + again_s, times)
        self.begun -= {wish}

    def sent(self, begun: Modification) -> None:
        """EC2 has taken a modification."""
        volume = self.reading.volume if self.reading is not None else None
        self.reading = Reading(volume, begun, clock.now_s())
        self.limited_until, self.limit_is_guess = None, False
        self.told.clear()

    def released(self) -> Later:
        """Nothing came of what may have been begun: what is wanted by now counts.

        A process before us, or the stock resizer, may have sent it a moment ago without a note:
        then it is looked at again when that would show.
        """
        now_s, until_s = clock.now_s(), self.inherited_until_s
        if self.reading is None or self.reading.at_s < until_s:
            self.reading = None
            return Later(max(0.0, until_s - now_s))
        self.begun = frozenset()
        return AGAIN

    def news(
        self, message: str, wishes: frozenset[Wish], again_s: float = math.inf
    ) -> frozenset[Wish]:
        """The wishes of which this is to be told now; it counts as told from now on.

        ``again_s``: so long after it was told it is told once more.
        """
        return frozenset(w for w in wishes if self.told.is_news(w, message, again_s=again_s))

    def held(self) -> Next:
        """When the first of the refused wishes is tried again."""
        left = [each.until_s - clock.now_s() for each in self.refusals.values()]
        return Later(max(_LEAST_S, min(left))) if left else SETTLED

    @property
    def refused(self) -> frozenset[Wish]:
        """The wishes whose time has not come."""
        return frozenset(w for w, each in self.refusals.items() if each.until_s > clock.now_s())


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one claim; ``superseded``: it wants something else than what may be under way."""

    claim: Claim
    persistent_volume: PersistentVolume
    known: Known
    wanted: Wanted
    superseded: bool = False

    @property
    def wishes(self) -> frozenset[Wish]:
        """What is wanted, and not refused for now."""
        return self.wanted.wishes - self.known.refused

    def view(
        self,
        reading: Reading,
        change: Change | None,
        tags: Mapping[str, str],
        ledger: Ledger,
        now: datetime,
    ) -> View:
        """What the plan is made from; ``change`` with its ``tags`` may be less than is wanted."""
        known, aim, grow = self.known, self.known.aim, self.wanted.grow
        return View(
            volume=reading.volume,
            latest=reading.latest,
            ledger=ledger,
            now=now,
            size_gib=grow.size_gib if grow else None,
            attributes=change.attributes if change else None,
            tags=tags,
            following=following_of(change),
            unfollowed=aim.unfollowed is not None,
            ceiling=aim.ceiling,
            refused=known.refused,
            alone=aim.apart is not None,
            limited_until=known.limited_until,
            told_failed=known.told_failed,
        )


class Readings:
    """What EC2 has of each volume, read no more often than it takes.

    300 claims that change at once cost two calls, and their events none.
    """

    def __init__(self, services: Services) -> None:
        self._volumes = services.volume_reads
        self._modifications = services.modification_reads
        self._watcher = services.watchers.modifications

    async def refreshed(self, known: Known, ledger: Ledger) -> Reading:
        """What is known, brought up to date.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        volume_id, now_s, reading = known.volume_id, clock.now_s(), known.reading
        sighting = self._watcher.sighting(volume_id)
        fresh_s = FRESH_S if sighting is None else _FRESH_WATCHED_S
        if reading is None or now_s - reading.at_s > fresh_s:
            volume, latest = await asyncio.gather(
                self._volumes.volume(volume_id), self._modifications.latest(volume_id)
            )
            known.reading = reading = Reading(volume, latest, now_s)
            return reading
        shown = sighting.found if sighting is not None else None
        # EC2 may still show the modification before ours.
        if shown is not None and not (ledger.starts and name_of(shown) == ledger.starts[-1].after):
            known.reading = reading = replace(reading, latest=shown)
        return reading

    def watch(
        self, uid: str, volume_id: str, wake: Callable[[], None], *, anew: bool = False
    ) -> None:
        """Have the claim looked at when its modification has changed."""
        self._watcher.watch(
            volume_id, f"modify {uid}", wake, not_before_s=_NOT_BEFORE_S if anew else 0.0
        )

    def leave(self, uid: str, volume_id: str) -> None:
        """It is waited for no more."""
        self._watcher.forget(volume_id, f"modify {uid}")


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
            known = self._refusals[uid] = _NodeRefusal(request, clock.now_s() + _NODE_PAUSE.first_s)
        elif known.request != request:
            known.request, known.times, known.until_s = request, 0, clock.now_s()
        elif known.until_s is None:
            pause_s = _NODE_PAUSE.pause_s(known.times)
            known.until_s, known.times = clock.now_s() + pause_s, known.times + 1
        return max(0.0, (known.until_s or 0.0) - clock.now_s())

    def forget(self, uid: str) -> None:
        """It has grown, or the claim is gone."""
        self._refusals.pop(uid, None)


def is_under_way(view: View, step: rules.Step) -> bool:
    """Whether what the claim's status names is being carried out, is done, or may be either."""
    known = rules.InDoubt | rules.Done | rules.Tag | rules.Gone
    if isinstance(step, known):
        return True
    return view.latest is not None and view.latest.state is ModificationState.MODIFYING
