"""What the flow of moves does at the edges between its phases, with a record that is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.flow import _MOST_STARTING, Mover
from provisioner.controller.moving.patience_rules import undone
from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.controller.moving.pods.consumer_rules import GiveUp
from provisioner.controller.shared.caches import MOVES_BY
from provisioner.kube.informer import Informer
from provisioner.kube.resources import VOLUME_MOVES
from provisioner.metrics import Metrics
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.decision import AGAIN, SETTLED, Later, Next
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import MoveConsumer, MovePlan, Phase, VolumeMove
from tests.builders import DRIVER
from tests.controller.move_record import (
    OLD_PV,
    PAST,
    FakeCompanions,
    FakeOwner,
    FakeRecord,
    a_claim,
    a_done_move,
    a_pv,
    in_phase,
)

HELD = {HELD_FOR_MOVE: "shop/to-b"}
REQUEST = {
    "zone": "us-east-1b",
    "size_gib": 4,
    "volume_type": "gp3",
    "tags": [],
    "client_token": "t",
}


def a_mover(old: PersistentVolume | None) -> tuple[Mover, FakeRecord]:
    mover, record = object.__new__(Mover), FakeRecord(old)
    mover._record = record  # type: ignore[assignment]
    mover._driver = DRIVER
    mover._companions = FakeCompanions()  # type: ignore[assignment]
    no_moves = SimpleNamespace(keyed=lambda *_: [])
    mover._caches = SimpleNamespace(moves=no_moves)  # type: ignore[assignment]
    return mover, record


@pytest.mark.parametrize(
    ("phase", "gone", "queued"),
    [("Held", True, ["move-uid"]), ("Held", False, []), ("Snapshotting", True, [])],
)
def test_a_held_move_goes_on_at_once_when_its_volume_is_detached(
    phase: str, *, gone: bool, queued: list[str]
):
    mover, _ = a_mover(None)
    holder = {"spec": {"claimRef": {"namespace": "shop", "name": "data"}}}
    volumes = {OLD_PV: msgspec.convert(holder, PersistentVolume)}
    moves = {("claim", "shop/data"): [in_phase(a_done_move(keeps=False), phase)]}
    woken: list[str] = []
    mover._caches = SimpleNamespace(  # type: ignore[assignment]
        persistent_volumes=volumes,
        moves=SimpleNamespace(keyed=lambda *key: moves.get(key, [])),
    )
    mover.queue = SimpleNamespace(add=woken.append)  # type: ignore[assignment]
    source = {"spec": {"source": {"persistentVolumeName": OLD_PV}}}
    attachment = msgspec.convert(source, Attachment)

    mover._attachment_changed(attachment, None if gone else attachment)

    assert woken == queued


def a_scaling_move() -> VolumeMove:
    web = {
        "kind": "StatefulSet",
        "name": "web",
        "uid": "w",
        "scaleTo": 0,
        "replicas": 3,
        "generation": 4,
        "times": 1,
    }
    return msgspec.convert({"status": {"phase": "Aborting", "consumers": [web]}}, VolumeMove)


async def test_an_owner_that_a_lost_request_may_scale_down_yet_is_not_taken_for_brought_back():
    record = FakeRecord(None)
    owner = FakeOwner(record)

    await owner.bring_back(a_scaling_move(), is_settled=False)
    assert (record.written, owner.scaled) == ([], [])

    owner.replicas, owner.generation = 0, 5  # it has arrived
    await owner.bring_back(a_scaling_move(), is_settled=False)
    assert owner.scaled == [3]
    assert record.written[-1]["consumers"][0]["isBack"] is True


async def test_once_no_lost_request_can_come_any_more_an_unchanged_owner_is_back():
    record = FakeRecord(None)
    owner = FakeOwner(record)

    await owner.bring_back(a_scaling_move(), is_settled=True)

    assert owner.scaled == []
    assert record.written[-1]["consumers"][0]["isBack"] is True


@pytest.mark.parametrize(
    ("stops", "warning"),
    [(["StatefulSet web is scaled from 2 to 0, and back after the swap"], False), ([], True)],
)
async def test_an_owner_is_named_before_it_is_scaled_down_and_one_without_a_plan_warns(
    stops: Any, warning: Any
):
    record = FakeRecord(None)
    owner = FakeOwner(record)
    plan = MovePlan(stops=stops)
    known = [MoveConsumer(kind="StatefulSet", name="web", uid="w")]
    move = in_phase(a_done_move(keeps=False), "Held", plan=plan, consumers=known)

    await owner.stop(move)

    (said,) = record.announced
    assert said.startswith(f"{warning} StatefulSet web is scaled from 3 to 0")
    assert ("the plan does not name it" in said) is warning
    assert record.written[-1]["consumers"][0]["replicas"] == 3
    assert owner.scaled == [0]


# -- moves that go together


class FakeStopping:
    """What comes of stopping pods: always the same."""

    def __init__(self, comes: Any) -> None:
        self.comes = comes

    async def stop(self, _: VolumeMove) -> Any:
        return self.comes


async def test_a_planned_move_does_not_begin_before_the_others_are_planned():
    mover, record = a_mover(None)
    mover._companions = FakeCompanions(Await("it waits"))  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Planned")

    assert isinstance(await mover._begin(move), Later)
    assert record.written == [{"message": "it waits"}]


class Slow(FakeCompanions):
    """The others are planned, and have no snapshots yet; or one of them has failed."""

    async def before_begin(self, _: VolumeMove) -> Any:
        return None

    async def before_stop(self, _: VolumeMove) -> Any:
        return self.says


@pytest.mark.parametrize(
    ("warms", "says", "phase"),
    [
        (True, Await("snapshots"), Phase.WARMING),
        (False, Await("snapshots"), None),
        (False, Undo("claim logs is not"), Phase.ABORTED),
        (False, None, Phase.HELD),
    ],
)
async def test_one_that_takes_no_warm_snapshots_stops_no_pods_before_the_others_have_theirs(
    says: Any, phase: Phase | None, *, warms: bool
):
    """It stops their pods, too: those would be away for the whole first snapshot."""
    mover, record = a_mover(None)
    mover._companions = Slow(says)  # type: ignore[assignment]
    mover._warming = SimpleNamespace(begin=record.begin_to_warm)  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Planned", plan=MovePlan(warms=warms))

    await mover._begin(move)

    assert [each.get("phase") for each in record.written] == [phase]


@pytest.mark.parametrize(
    ("other", "phase", "goes_on"),
    [
        ("a", "Planned", False),  # by name, as both are of the same second
        ("z", "Planned", True),
        ("z", "Warming", False),
        ("z", "Aborting", False),
        ("a", "", True),  # its own plan is refused
        ("a", "Aborted", True),
    ],
)
async def test_of_two_moves_that_were_planned_at_the_same_time_one_begins(
    other: str, phase: str, *, goes_on: bool
):
    mover, record = a_mover(None)
    mover._companions = FakeCompanions(Await("it goes on"))  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Planned")
    meta = structs.replace(move.metadata, name=other, uid=f"uid-{other}")
    second = structs.replace(in_phase(move, phase), metadata=meta)
    both = {("claim", "shop/data"): [move, second]}
    mover._caches = SimpleNamespace(  # type: ignore[assignment]
        moves=SimpleNamespace(keyed=lambda *key: both[key])
    )

    await mover._begin(move)

    (status,) = record.written
    assert (status.get("phase") is None) is goes_on
    if not goes_on:
        assert status["phase"] is Phase.ABORTED
        assert f"VolumeMove {other} of the same claim is not finished" in status["message"]


@pytest.mark.parametrize("phase", ["Held", "Creating"])
@pytest.mark.parametrize(
    ("others", "ready", "goes_on"),
    [(["a"], True, True), (["a"], False, False), (["z"], True, False), ([], True, False)],
)
async def test_an_abort_after_a_move_has_said_it_is_ready_comes_too_late_unless_it_leads(
    others: list[str], phase: str, *, ready: bool, goes_on: bool
):
    mover, record = a_mover(a_pv("Bound"))
    asked = in_phase(a_done_move(keeps=False), phase, ready=ready)
    spec = structs.replace(asked.spec, abort=True, moved_with=others)
    asked = structs.replace(asked, spec=spec)
    asked = structs.replace(
        asked,
        status=structs.replace(asked.told, source=structs.replace(asked.source, driver=DRIVER)),
    )
    passed: list[str] = []

    async def create(move: VolumeMove) -> Next:
        passed.append(move.told.phase)
        return SETTLED

    mover._passes = {Phase(phase): create}
    await mover._pass(asked)

    assert (passed == [phase]) is goes_on
    assert (Phase.ABORTING in [each.get("phase") for each in record.written]) is not goes_on


async def test_one_that_waits_for_claims_by_later_names_only_may_be_aborted_although_it_is_ready():
    """The first by name was moved before: nobody swaps, trusting that this one does."""
    mover, record = a_mover(a_pv("Bound"))
    asked = in_phase(a_done_move(keeps=False), "Creating", ready=True)
    source = structs.replace(asked.source, driver=DRIVER)
    asked = structs.replace(
        asked,
        spec=structs.replace(asked.spec, abort=True, moved_with=["a", "z"]),
        status=structs.replace(asked.told, source=source),
    )
    mover._companions.others_lead = False  # type: ignore[attr-defined]

    await mover._pass(asked)

    assert [each.get("phase") for each in record.written] == [Phase.ABORTING]


@pytest.mark.parametrize(
    ("others", "ready", "gives_up"),
    [(["a"], True, False), (["a"], False, True), (["z"], True, True), ([], True, True)],
)
async def test_one_that_has_said_it_is_ready_does_not_give_up_because_of_pods_unless_it_leads(
    others: list[str], *, ready: bool, gives_up: bool
):
    """The one that leads may have swapped by then, and the pods' claims would be in two zones."""
    mover, record = a_mover(a_pv("Bound"))
    mover._stopping = FakeStopping(GiveUp("web came back"))  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Creating", ready=ready)
    move = structs.replace(move, spec=structs.replace(move.spec, moved_with=others))

    found = await mover._stop_before_swap(move)

    assert (found is None) is not gives_up
    assert [each["phase"] for each in record.written] == [Phase.ABORTING] * gives_up


@pytest.mark.parametrize(
    ("others", "driver", "lasts", "ends"),
    [
        ([], DRIVER, True, "Aborting"),
        ([], DRIVER, False, ""),
        (["a"], DRIVER, True, ""),
        ([], "other.example.com", True, None),
    ],
    ids=["too long", "not yet", "it has promised to swap", "not our move"],
)
async def test_what_is_refused_for_too_long_undoes_a_move_unless_another_one_goes_by_it(
    others: list[str], driver: str, *, lasts: bool, ends: str | None
):
    """It says why it waits until then."""
    mover, record = a_mover(a_pv("Bound"))
    mover._patience = SimpleNamespace(is_out=lambda *_: lasts)  # type: ignore[assignment]
    move = a_done_move(keeps=False)
    source = structs.replace(move.source, driver=driver)
    move = in_phase(move, "Creating", ready=True, source=source)
    move = structs.replace(move, spec=structs.replace(move.spec, moved_with=others))
    record.move = AsyncMock(return_value=move)  # type: ignore[attr-defined]
    denied = StorageError(Reason.KEY_UNUSABLE, "denied")

    assert await mover._gives_up(move.uid, denied) is (ends == "Aborting")

    said = [(each.get("phase", ""), each["message"]) for each in record.written]
    told = "EncryptionKeyUnusable: denied" if not ends else undone("denied").message
    assert said == ([] if ends is None else [(ends, told)])


async def test_a_pass_that_has_given_up_is_followed_by_the_one_that_undoes():
    passes = FakePasses(a_done_move(keeps=False), KubeError(Reason.FORBIDDEN, "no"))
    mover = a_mover_of(passes)
    mover._gives_up = AsyncMock(return_value=True)  # type: ignore[method-assign]

    assert await mover.reconcile("move-uid") == AGAIN


@pytest.mark.parametrize(
    ("phase", "step"),
    [
        ("Held", Mover._hold),
        ("Snapshotting", Mover._take_snapshot),
        ("Creating", Mover._create),
        ("Checking", Mover._work_in_pod),
        ("Copying", Mover._work_in_pod),
    ],
)
async def test_a_move_is_undone_in_any_phase_once_one_that_goes_with_it_has_failed(
    phase: str, step: Callable[[Mover, VolumeMove], Awaitable[Next]]
):
    mover, record = a_mover(a_pv("Bound", **HELD))
    record.found = a_claim()
    mover._companions = FakeCompanions(Undo("claim logs is not moved"))  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), phase, request=REQUEST)

    assert await step(mover, move) == AGAIN

    (written,) = record.written
    assert written["phase"] is Phase.ABORTING
    assert written["message"] == "claim logs is not moved"


# -- what is known, and what is read


class FakePasses:
    """Passes over a move: each fails as it is told, or succeeds."""

    def __init__(self, move: VolumeMove, *failures: KubeError | None) -> None:
        self.move, self.failures = move, list(failures)
        self.trusted = True
        self.passes: list[bool] = []

    def is_trusted(self, _: str) -> bool:
        return self.trusted

    def trust(self, _: str) -> None:
        self.trusted = True

    def doubt(self, _: str) -> None:
        self.trusted = False

    async def known_move(self, _: str) -> VolumeMove | None:
        return self.move

    def written_move(self, _: str) -> VolumeMove | None:
        return self.move

    async def gives_up(self, *_: Any) -> bool:
        return False

    async def take(self, _: VolumeMove) -> Next:
        self.passes.append(self.trusted)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return SETTLED


def a_mover_of(passes: FakePasses) -> Mover:
    mover = object.__new__(Mover)
    mover._record = passes  # type: ignore[assignment]
    mover._pass = passes.take  # type: ignore[assignment]
    mover._gives_up = passes.gives_up  # type: ignore[assignment]
    mover._starting = asyncio.Semaphore(_MOST_STARTING)
    return mover


async def test_after_a_conflict_with_what_was_only_known_all_is_read_at_once():
    passes = FakePasses(a_done_move(keeps=False), KubeError(Reason.CONFLICT, "changed"))

    assert await a_mover_of(passes).reconcile("move-uid") == SETTLED
    assert passes.passes == [True, False]
    assert passes.trusted


async def test_after_a_conflict_with_what_was_read_it_waits():
    conflict = KubeError(Reason.CONFLICT, "changed")
    passes = FakePasses(a_done_move(keeps=False), conflict, conflict)

    assert isinstance(await a_mover_of(passes).reconcile("move-uid"), Later)
    assert passes.passes == [True, False]
    assert not passes.trusted


async def test_after_a_lost_reply_the_next_pass_reads_all():
    lost = KubeError(Reason.TIMED_OUT, "no answer", outcome=Outcome.UNKNOWN)
    passes = FakePasses(a_done_move(keeps=False), lost)

    with pytest.raises(KubeError):
        await a_mover_of(passes).reconcile("move-uid")
    assert passes.passes == [True]
    assert not passes.trusted


class Starting(FakePasses):
    """Moves by UID, each of which is planned in one pass and held in the next."""

    def __init__(self, count: int) -> None:
        super().__init__(a_done_move(keeps=False))
        new = in_phase(self.move, "")
        self.moves = {str(number): with_uid(new, str(number)) for number in range(count)}
        self.under_way, self.most, self.order = 0, 0, list[Phase]()

    async def known_move(self, uid: str) -> VolumeMove | None:
        return self.moves[uid]

    def written_move(self, uid: str) -> VolumeMove | None:
        return self.moves[uid]

    async def take(self, move: VolumeMove) -> Next:
        self.order.append(move.phase)
        if move.phase is Phase.SNAPSHOTTING:
            return SETTLED
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        following = {Phase.NEW: Phase.HELD, Phase.HELD: Phase.SNAPSHOTTING}[move.phase]
        self.moves[move.uid] = in_phase(move, following)
        return AGAIN


def with_uid(move: VolumeMove, uid: str) -> VolumeMove:
    return structs.replace(move, metadata=structs.replace(move.metadata, uid=uid))


async def test_of_many_moves_a_few_start_at_a_time_and_take_their_snapshots_before_the_next():
    starting = Starting(3 * _MOST_STARTING)
    mover = a_mover_of(starting)

    await asyncio.gather(*map(mover.reconcile, starting.moves))

    assert starting.most == _MOST_STARTING
    assert starting.order.count(Phase.SNAPSHOTTING) == len(starting.moves)
    assert starting.order.index(Phase.SNAPSHOTTING) <= 2 * _MOST_STARTING + 1


async def test_a_move_that_is_aborted_does_not_wait_for_those_that_start():
    starting = Starting(2)
    mover = a_mover_of(starting)
    mover._starting = asyncio.Semaphore(0)
    asked = starting.moves["0"]
    aborted = structs.replace(asked, spec=structs.replace(asked.spec, abort=True))
    starting.moves["0"] = aborted

    waits = asyncio.create_task(mover.reconcile("1"))
    await mover.reconcile("0")

    assert starting.order
    assert not waits.done()
    waits.cancel()


@pytest.mark.parametrize(
    ("wanted", "used", "held"), [(False, False, [OLD_PV]), (True, False, []), (False, True, [])]
)
async def test_a_volume_is_held_at_once_unless_somebody_seems_to_use_it(
    *, wanted: bool, used: bool, held: list[str]
):
    mover, record = a_mover(a_pv("Bound"))
    mover._used = {"move-uid"} if used else set()
    record.is_wanted = wanted

    assert await mover._held_volume(a_done_move(keeps=False), a_pv("Bound")) is not None
    assert record.held == held


@pytest.mark.parametrize("phase", ["Swapping", "Copying", "Creating"])
@pytest.mark.parametrize(("seen", "queued"), [("ending", []), ("gone", ["move-uid"])])
def test_a_claim_wakes_the_swap_or_the_copy_when_it_is_gone_and_not_when_it_is_to_go(
    seen: str, queued: list[str], phase: str
):
    mover, _ = a_mover(None)
    moves = {("claim", "shop/data"): [in_phase(a_done_move(keeps=False), phase)]}
    woken: list[str] = []
    keyed = SimpleNamespace(keyed=lambda *key: moves.get(key, []))
    mover._caches = SimpleNamespace(moves=keyed)  # type: ignore[assignment]
    mover.queue = SimpleNamespace(add=woken.append)  # type: ignore[assignment]
    meta = {"name": "data", "namespace": "shop", "deletionTimestamp": PAST}
    ending = msgspec.convert({"metadata": meta}, Claim)

    mover._claim_changed(ending, ending if seen == "ending" else None)

    assert woken == queued


@pytest.mark.parametrize(
    ("claim", "phase", "woken"),
    [
        ("logs", "Creating", ["uid-of-data"]),  # the leader waits for it
        ("data", "Creating", []),
        ("data", "Swapping", ["uid-of-logs", "uid-of-more"]),
        ("logs", "Swapping", []),
    ],
)
def test_moves_that_go_together_do_not_wait_for_each_others_next_look(
    claim: str, phase: str, woken: list[str]
):
    mover, _ = a_mover(None)
    names = {"data", "logs", "more"}
    spec = structs.replace(
        a_done_move(keeps=False).spec, claim_name=claim, moved_with=sorted(names - {claim})
    )
    before = structs.replace(
        in_phase(a_done_move(keeps=False), "Creating", ready=phase == "Swapping"), spec=spec
    )
    after = in_phase(before, phase, ready=True)
    called: list[str] = []
    keyed = lambda _, key: [SimpleNamespace(uid=f"uid-of-{key.partition('/')[2]}")]  # noqa: E731
    mover._caches = SimpleNamespace(moves=SimpleNamespace(keyed=keyed))  # type: ignore[assignment]
    mover.queue = SimpleNamespace(add=called.append)  # type: ignore[assignment]

    mover._changed(before, after)

    assert called == woken


def ages(*moves: VolumeMove) -> Callable[..., float | None]:
    """What the metric says of a phase and a policy."""
    mover, _ = a_mover(None)
    informer = Informer(Mock(), VOLUME_MOVES, Metrics(), indexers=MOVES_BY)
    for move in moves:
        informer._store.apply(move)
    mover._caches = SimpleNamespace(moves=informer)  # type: ignore[assignment]
    mover._metrics = metrics = Metrics()
    mover._show_ages()

    def shown(phase: str, consumers: str = "Wait") -> float | None:
        labels = {"phase": phase, "consumers": consumers}
        return metrics.registry.get_sample_value("ebs_provisioner_move_phase_seconds", labels)

    return shown


def in_for(
    phase: str, minutes: float, *, claim: str = "data", driver: str = DRIVER, **status: Any
) -> VolumeMove:
    """A move of a claim, which may be moved with one that is called logs."""
    move, since = a_done_move(keeps=False), datetime.now(UTC) - timedelta(minutes=minutes)
    source = structs.replace(move.source, driver=driver)
    told = {"phase": phase, "phase_since": since.isoformat(), "source": source} | status
    others = ["data"] if claim == "logs" else ["logs"]
    return structs.replace(
        move,
        metadata=structs.replace(move.metadata, name=f"{claim}-{phase}-{minutes}"),
        spec=structs.replace(move.spec, claim_name=claim, moved_with=others),
        status=structs.replace(move.told, **told),
    )


def test_a_phase_is_as_old_as_the_move_that_is_in_it_longest():
    shown = ages(
        in_for("Held", 5), in_for("Held", 20), in_for("Held", 90, driver="other"), in_for("Done", 9)
    )

    assert shown("Held") == pytest.approx(20 * 60, abs=60)
    assert shown("Held", "Restart") == 0
    assert shown("Swapping") == 0
    assert shown("Done") is None


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        (in_for("Held", 3, claim="logs"), False),
        (in_for("Creating", 3, claim="logs", ready=True), True),
        (in_for("Aborted", 3, claim="logs"), True),
        (None, True),
    ],
    ids=["not as far", "ready too", "ended", "none"],
)
def test_a_ready_move_counts_unless_one_that_it_is_moved_with_is_not(
    other: VolumeMove | None, *, counts: bool
):
    shown = ages(in_for("Creating", 60, ready=True), *([other] if other is not None else []))

    assert shown("Creating") == pytest.approx(3600 if counts else 0, abs=60)


def test_a_move_that_swaps_counts_whatever_others_do():
    shown = ages(in_for("Swapping", 40, ready=True), in_for("Creating", 3, claim="logs"))

    assert shown("Swapping") == pytest.approx(40 * 60, abs=60)


def test_ages_are_shown_once_it_leads():
    mover, _ = a_mover(None)
    mover._caches = Mock(moves=Mock(keyed=lambda *_: []))
    mover._metrics = Metrics()

    mover.subscribe()

    labels = {"phase": "Held", "consumers": "Wait"}
    shown = mover._metrics.registry.get_sample_value("ebs_provisioner_move_phase_seconds", labels)
    assert shown == 0


@pytest.mark.parametrize("since", ["", "yesterday", "2026-11-29", "2026-11-29T10:00:00"])
def test_a_move_without_a_time_is_as_old_as_can_be(since: str):
    assert ages(in_for("Held", 5, phase_since=since))("Held") == float("inf")


def test_a_move_of_the_future_or_in_a_phase_of_a_later_release_spoils_no_metric():
    shown = ages(in_for("Held", -60), in_for("Levitating", 60))

    assert shown("Held") == 0
