"""What a process knows of one claim whose volume is to grow or to change, and one pass over it.

A request has two parts, the size and the class, and each is in one of these states:

::

    requested ──▶ in flight ──▶ done: recorded, forgotten
       ▲ ▲            │ refused, or failed
       │ └── pause ───┴──▶ set aside: reported, tried again later
       └ gathered: for GATHER_S after an edit, both parts may come to be one modification

Both wait while EC2 takes no modification of the volume (``Limit``). *In flight* means that EC2 may
be carrying out what the claim's status names. After a restart nothing else is known: so it stays
in flight until EC2 would show it.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from provisioner import clock
from provisioner.controller.modifying.class_rules import ModifyStatus
from provisioner.controller.modifying.growth_rules import ResizeStatus
from provisioner.controller.modifying.rules import (
    BOTH,
    Answers,
    Limit,
    Part,
    Requested,
    View,
)
from provisioner.controller.shared.services import Services
from provisioner.ec2.look_rules import Asked
from provisioner.model.backoff import Backoff
from provisioner.model.budget import Ledger, name_of
from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, SETTLED, Later, Next
from provisioner.model.errors import StorageError
from provisioner.model.modification import Modification, ModificationState
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume
from provisioner.tell_once import TellOnce

FRESH_S = 30.0
# How long another edit of the claim is waited for: both then cost one modification.
GATHER_S = 1.0
# While the watcher looks at the modification, a volume need not be read as often.
_FRESH_WATCHED_S = 300.0
_MODIFICATION: Asked[Modification] = Asked(
    "a modification", 1.0, lambda seen: seen.state is not ModificationState.MODIFYING
)
# No shorter: rounding could leave a tiny wait again and again.
_LEAST_S = 0.1
_NODE_PAUSE = Backoff(5.0, 1800.0, factor=4.0)


@dataclass(slots=True)
class Refusal:
    """Why a part was refused, and until when (loop time) it is set aside."""

    error: StorageError
    until_s: float
    times: int = 1
    is_reported: bool = False


@dataclass(slots=True)
class PartState:
    """One part of a request.

    Attributes:
        target: the size or the class that is requested, "" for none.
        in_flight: EC2 may be carrying out what the claim's status names.
        refusal: of this target; it is kept, and counts, after the part was tried again.
    """

    target: str = ""
    in_flight: bool = False
    refusal: Refusal | None = None

    @property
    def is_set_aside(self) -> bool:
        """Whether it was refused, and its time has not come."""
        return self.refusal is not None and self.refusal.until_s > clock.now_s()


@dataclass(frozen=True, slots=True)
class Observed:
    """A volume and its latest modification, as EC2 showed them at a time of the loop."""

    volume: Volume | None
    latest: Modification | None
    at_s: float


def _untouched() -> dict[Part, PartState]:
    return {part: PartState() for part in Part}


@dataclass(slots=True)
class ClaimState:
    """One claim; times are of the loop.

    Attributes:
        volume_id: whose modification may be watched.
        requested_at_s: when something was first requested.
        parts: the state of each part.
        reported: what was last said of each part.
        gather_until_s: until when another edit is waited for.
        answers: what EC2 has said of just these targets.
        inherited_until_s: so long EC2 may hide what an earlier process has sent.
        observed: None: not yet, or it is out of date.
        limit: EC2 takes no modification, as it has said.
        waits_for_limit: the last pass found nothing else to wait for.
        reported_failure: the failed modification that was reported, "" for none.
        missing_since_s: since when EC2 does not show the volume.
        conflicts: writes in a row that found the claim or its object changed.
    """

    requested_at_s: float
    volume_id: str = ""
    parts: dict[Part, PartState] = field(default_factory=_untouched)
    reported: TellOnce = field(default_factory=TellOnce)
    gather_until_s: float = 0.0
    answers: Answers = field(default_factory=Answers)
    inherited_until_s: float = 0.0
    observed: Observed | None = None
    limit: Limit | None = None
    waits_for_limit: bool = False
    reported_failure: str = ""
    missing_since_s: float | None = None
    conflicts: int = 0

    @classmethod
    def of(cls, claim: Claim) -> "ClaimState":
        """What is known at the first pass, which may be that of a new process.

        What the status names may be in flight: an earlier process may have sent it.
        """
        state, modify = cls(clock.now_s()), claim.modify_status
        is_growing = claim.resize_status == ResizeStatus.CONTROLLER_IN_PROGRESS
        is_changing = modify is not None and modify.status == ModifyStatus.IN_PROGRESS
        state.parts[Part.SIZE].in_flight = is_growing
        state.parts[Part.ATTRIBUTES].in_flight = is_changing
        if is_growing or is_changing:
            state.inherited_until_s = clock.now_s() + CONSISTENCY_S
        return state

    def is_free(self, part: Part) -> bool:
        """Whether nothing is in flight for what the claim's status names."""
        return not self.parts[part].in_flight

    @property
    def refused(self) -> frozenset[Part]:
        """The parts that are set aside."""
        return frozenset(part for part, each in self.parts.items() if each.is_set_aside)

    def note_request(self, requested: Requested) -> None:
        """Note what is requested now; forget what was found out about other targets."""
        change = requested.change
        new = {
            Part.SIZE: requested.grow.target if requested.grow else "",
            Part.ATTRIBUTES: (change.name or str(change.attributes)) if change else "",
        }
        now_s = clock.now_s()
        changed = [part for part, each in self.parts.items() if each.target != new[part]]
        if not changed:
            return
        if not any(each.target for each in self.parts.values()):
            self.requested_at_s = now_s
        if any(new[part] for part in changed):
            self.gather_until_s = now_s + GATHER_S
        for part in changed:
            self.parts[part].target = new[part]
            self.parts[part].refusal = None
        ceiling = None if Part.ATTRIBUTES in changed else self.answers.iops_ceiling
        self.answers = Answers(iops_ceiling=ceiling)

    def forget_class(self) -> None:
        """Forget refusals of the class: another class has its name now."""
        attributes = self.parts[Part.ATTRIBUTES]
        attributes.target, attributes.refusal = "", None
        self.answers = Answers()

    def refuse(self, part: Part, error: StorageError, again_s: float) -> None:
        """Set a part aside for a while."""
        each = self.parts[part]
        times = each.refusal.times + 1 if each.refusal is not None else 1
        each.refusal = Refusal(error, clock.now_s() + again_s, times)
        each.in_flight = False

    def sent(self, begun: Modification, parts: frozenset[Part]) -> None:
        """EC2 has taken a modification for these."""
        volume = self.observed.volume if self.observed is not None else None
        self.observed = Observed(volume, begun, clock.now_s())
        self.limit = None
        for part in parts:
            self.reported.forget(part)

    def set_in_flight(self, parts: frozenset[Part]) -> None:
        """These are about to be sent."""
        for part in parts:
            self.parts[part].in_flight = True

    def clear_in_flight(self, parts: frozenset[Part] = BOTH) -> None:
        """Nothing is in flight for these any more."""
        for part in parts:
            self.parts[part].in_flight = False

    def done(self, parts: frozenset[Part]) -> None:
        """The volume has what these ask for."""
        self.clear_in_flight(parts)
        for part in parts:
            self.parts[part].refusal = None
            self.reported.forget(part)

    def release(self) -> Later:
        """EC2 shows nothing of what may be in flight: what is requested now counts.

        An earlier process, or the stock resizer, may have sent it a moment ago without a note: then
        the claim is looked at again when EC2 would show it.
        """
        until_s = self.inherited_until_s
        if self.observed is None or self.observed.at_s < until_s:
            self.observed = None
            return Later(max(0.0, until_s - clock.now_s()))
        self.clear_in_flight()
        return AGAIN

    def to_report(
        self, message: str, parts: frozenset[Part], again_s: float = math.inf
    ) -> frozenset[Part]:
        """The parts of which this is to be reported now; it counts as reported from now on.

        ``again_s``: after so many seconds it is reported once more.
        """
        is_news = self.reported.is_news
        return frozenset(part for part in parts if is_news(part, message, again_s=again_s))

    def next_try(self) -> Next:
        """When the first of the parts that were refused is tried again."""
        refusals = [each.refusal for each in self.parts.values() if each.refusal is not None]
        if not refusals:
            return SETTLED
        return Later(max(_LEAST_S, min(each.until_s for each in refusals) - clock.now_s()))


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over one claim.

    ``superseded``: something else is requested by now than what may be in flight.
    """

    claim: Claim
    persistent_volume: PersistentVolume
    state: ClaimState
    requested: Requested
    superseded: bool = False

    @property
    def parts(self) -> frozenset[Part]:
        """What is requested, and not set aside."""
        return self.requested.parts - self.state.refused

    def view(
        self,
        observed: Observed,
        requested: Requested,
        tags: Mapping[str, str],
        ledger: Ledger,
        now: datetime,
    ) -> View:
        """What the next step depends on; ``requested`` may be less than the claim's."""
        return View(
            volume=observed.volume,
            latest=observed.latest,
            ledger=ledger,
            now=now,
            requested=requested,
            tags=tags,
            answers=self.state.answers,
            refused=self.state.refused,
            limit=self.state.limit,
            reported_failure=self.state.reported_failure,
        )


class Observer:
    """What EC2 has of each volume, read no more often than necessary.

    300 claims that change at once cost two calls, and their events none.
    """

    def __init__(self, services: Services) -> None:
        self._volumes = services.volume_reads
        self._modifications = services.modification_reads
        self._watcher = services.watchers.modifications

    async def refresh(self, state: ClaimState, ledger: Ledger) -> Observed:
        """What is known of a claim's volume, brought up to date.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        volume_id, now_s, observed = state.volume_id, clock.now_s(), state.observed
        sighting = self._watcher.sighting(volume_id)
        fresh_s = FRESH_S if sighting is None else _FRESH_WATCHED_S
        if observed is None or now_s - observed.at_s > fresh_s:
            volume, latest = await asyncio.gather(
                self._volumes.volume(volume_id), self._modifications.latest(volume_id)
            )
            state.observed = observed = Observed(volume, latest, now_s)
            return observed
        shown = sighting.found if sighting is not None else None
        # EC2 may still show the previous modification.
        if shown is not None and not (ledger.starts and name_of(shown) == ledger.starts[-1].after):
            state.observed = observed = replace(observed, latest=shown)
        return observed

    def watch(
        self, uid: str, volume_id: str, wake: Callable[[], None], *, is_new: bool = False
    ) -> None:
        """Wake the claim when its modification has changed; ``is_new``: it was just sent."""
        asked = _MODIFICATION if is_new else None
        self._watcher.watch(volume_id, f"modify {uid}", wake, asked=asked)

    def unwatch(self, uid: str, volume_id: str) -> None:
        """The claim waits for no modification."""
        self._watcher.forget(volume_id, f"modify {uid}")


@dataclass(slots=True)
class _NodeRefusal:
    """``until_s``: None while the node is asked again; ``request`` is the size of the claim."""

    request: str
    until_s: float | None
    times: int = 1


class NodePauses:
    """How long a node that cannot grow a file system is left alone before it is asked again.

    Kubelet sets NodeResizeInfeasible and does nothing until the status is NodeResizePending. If
    that were set back at once, each would answer the other forever.
    """

    def __init__(self) -> None:
        self._refusals: dict[str, _NodeRefusal] = {}

    def left_s(self, claim: Claim) -> float:
        """Seconds until its node may be asked again, 0.0 for now; call it for every status."""
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
