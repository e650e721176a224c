"""What becomes of the other claims of the same pods when one is moved."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.controller.moving.together import companion_rules as rules
from provisioner.controller.moving.together.companion_rules import Companion
from provisioner.controller.moving.together.companions import Companions
from provisioner.model.pod import Pod
from provisioner.model.volume_move import Phase, VolumeMove

HERE, THERE = "us-east-1a", "us-east-1b"
POD = ["web-0"]
WITH_LOGS: dict[str, Any] = {"movedWith": ["logs"]}


def a_move(claim: str = "data", phase: str = "", status: Any = None, **spec: Any) -> VolumeMove:
    body = {
        "metadata": {"name": f"{claim}-to-b", "namespace": "shop", "uid": f"uid-{claim}"},
        "spec": {"claimName": claim, "to": {"zone": THERE}} | spec,
        "status": {"phase": phase} | (status or {}),
    }
    return msgspec.convert(body, VolumeMove)


def of_logs(phase: str = "", status: Any = None, **spec: Any) -> VolumeMove:
    return a_move("logs", phase, status, **{"movedWith": ["data"]} | spec)


def of_data(phase: str, status: Any = None) -> VolumeMove:
    return a_move("data", phase, status, **WITH_LOGS)


def logs(*moves: VolumeMove, zone: str | None = HERE, **more: Any) -> Companion:
    zones = frozenset({zone}) if zone else None
    return Companion("logs", zones=zones, moves=moves, pods=POD, **more)


# -- the plan


def test_a_claim_that_would_stay_in_the_other_zone_is_named_with_the_way_to_move_both():
    said = rules.left_behind(a_move(), [logs()], THERE)

    assert said == (
        f"pod web-0 uses claim logs as well, in zone {HERE}, and could not run in {THERE}: move "
        f"them together (kubectl ebs move -n shop pvc/data pvc/logs --to-zone {THERE}; in a "
        "manifest, movedWith)"
    )


@pytest.mark.parametrize(
    "companion",
    [
        logs(zone=THERE),
        logs(zone=None),
        Companion("logs", zones=frozenset({HERE})),
        logs(a_move("logs", "Held")),
    ],
    ids=["is there already", "can be anywhere", "no pod uses both", "is on its way there"],
)
def test_what_does_not_keep_the_pods_away_refuses_nothing(companion: Companion):
    assert rules.left_behind(a_move(), [companion], THERE) is None


@pytest.mark.parametrize(
    "other",
    [
        a_move("logs", "Held", to={"zone": "us-east-1c"}),
        a_move("logs", "Held", dryRun=True),
        a_move("logs", "Aborted"),
        a_move("logs", "Held", abort=True),
    ],
    ids=["to another zone", "a dry run", "undone", "being undone"],
)
def test_a_move_that_does_not_bring_the_other_claim_along_does_not_count(other: VolumeMove):
    assert rules.left_behind(a_move(), [logs(other)], THERE) is not None


def test_a_claim_that_is_moved_with_it_is_a_note_and_no_refusal():
    move = a_move(**WITH_LOGS)

    assert rules.left_behind(move, [logs()], THERE) is None
    (note,) = rules.notes(move)
    assert note.startswith("claim logs is moved at the same time")
    assert rules.notes(a_move()) == []


# -- none begins before all are planned


@pytest.mark.parametrize(
    ("moves", "says"),
    [
        ([], "it waits for a VolumeMove of claim logs"),
        ([of_logs("")], "it waits for the plan of VolumeMove logs-to-b"),
        ([of_logs("Planned", movedWith=[])], "it waits for a VolumeMove of claim logs"),
        ([of_logs("Planned", to={"zone": HERE})], "it waits for a VolumeMove of claim logs"),
        ([of_logs("Planned", dryRun=True)], "it waits for a VolumeMove of claim logs"),
        (
            [of_logs("Refused", {"message": "quota"})],
            "it waits for a VolumeMove of claim logs (VolumeMove logs-to-b is Refused: quota)",
        ),
    ],
)
def test_a_planned_move_waits_for_those_that_go_with_it(moves: list[VolumeMove], says: str):
    assert rules.before_begin(a_move(**WITH_LOGS), [logs(*moves)]) == Await(says)


@pytest.mark.parametrize(
    ("ended_at", "ends"),
    [("2026-11-28T20:00:01+00:00", True), ("2026-11-28T19:59:59+00:00", False)],
)
@pytest.mark.parametrize("phase", ["Refused", "Aborting", "Aborted"])
def test_a_planned_move_ends_if_another_has_since_it_was_created_and_else_waits_for_another_try(
    phase: str, ended_at: str, *, ends: bool
):
    mine = a_move(**WITH_LOGS)
    created = structs.replace(
        mine.metadata, creation_timestamp=datetime(2026, 11, 28, 20, tzinfo=UTC)
    )
    mine = structs.replace(mine, metadata=created)
    ended = of_logs(phase, {"phaseSince": ended_at, "message": "quota"})

    found = rules.before_begin(mine, [logs(), logs(ended)])

    assert isinstance(found, Undo) is ends
    assert f"(VolumeMove logs-to-b is {phase}: quota)" in str(found) or not ends
    assert rules.before_begin(mine, [logs(ended, of_logs("Planned"))]) is None
    assert rules.before_begin(mine, [logs(ended, zone=THERE)]) is None


@pytest.mark.parametrize("phase", ["Planned", "Held", "Snapshotting", "Creating", "Swapping"])
def test_it_begins_once_they_are_planned(phase: str):
    assert rules.before_begin(a_move(**WITH_LOGS), [logs(of_logs(phase))]) is None


def test_it_does_not_wait_for_a_claim_that_is_where_it_was_to_be():
    assert rules.before_begin(a_move(**WITH_LOGS), [logs(zone=THERE)]) is None


# -- pods stop once all have their warm snapshots


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        (of_logs("Planned", {"plan": {"warms": True}}), True),
        (of_logs("Planned", {"plan": {"warms": False}}), False),
        (of_logs("Warming"), True),
        (of_logs("Warming", {"ready": True}), False),
        (of_logs("Held"), False),
        (of_logs("Creating"), False),
    ],
)
def test_a_small_claim_does_not_stop_pods_while_the_large_one_is_copied_first(
    other: VolumeMove, waits: Any
):
    found = rules.before_stop(a_move(phase="Warming", **WITH_LOGS), [logs(other)])

    assert isinstance(found, Await) is waits


def test_what_is_ready_to_stop_pods_is_not_ready_to_swap():
    warmed = of_logs("Warming", {"ready": True})

    assert isinstance(rules.before_swap(a_move(**WITH_LOGS), [logs(warmed)]), Await)


# -- none swaps before all could


def test_of_two_that_are_ready_both_swap_and_none_before():
    mine, ready = a_move(phase="Creating", **WITH_LOGS), {"ready": True}

    waits = rules.before_swap(mine, [logs(of_logs("Creating"))])
    assert waits == Await("all is ready; it waits until VolumeMove logs-to-b is as far")
    assert rules.before_swap(mine, [logs(of_logs("Creating", ready))]) is None
    for phase in (Phase.SWAPPING, Phase.CLEANING, Phase.DONE):
        there = logs(of_logs(phase), zone=THERE if phase is Phase.DONE else HERE)
        assert rules.before_swap(mine, [there]) is None


@pytest.mark.parametrize(
    "other",
    [
        of_logs("Aborting", {"ready": True}),
        of_logs("Creating", {}, abort=True),
        of_logs("Aborted", {"message": "quota"}),
    ],
)
def test_if_one_of_them_fails_the_others_are_undone(other: VolumeMove):
    found = rules.before_swap(a_move(phase="Creating", **WITH_LOGS), [logs(other)])

    assert isinstance(found, Undo)
    assert found.message.startswith("claim logs is not moved with it any more (VolumeMove logs-to")


@pytest.mark.parametrize("phase", ["Creating", "Copying"])
def test_one_that_has_said_it_is_ready_goes_on_although_its_user_aborts_it(phase: str):
    aborted = of_logs(phase, {"ready": True}, abort=True)

    assert aborted.is_promised
    assert rules.before_swap(a_move(phase="Creating", **WITH_LOGS), [logs(aborted)]) is None
    assert isinstance(
        rules.before_return(a_move(phase="Cleaning", **WITH_LOGS), [logs(aborted)]), Await
    )
    assert not of_logs("Warming", {"ready": True}, abort=True).is_promised


def test_those_that_have_promised_to_swap_after_another_one_are_known_until_they_do():
    first = of_data("Cleaning")

    for promised in (of_logs("Creating", {"ready": True}), of_logs("Held", {"ready": True})):
        assert rules.promised_to(first, [logs(promised)]) == [promised]
    for other in (of_logs("Creating"), of_logs("Swapping", {"ready": True}), a_move("logs")):
        assert rules.promised_to(first, [logs(other)]) == []
    assert rules.promised_to(first, [logs()]) == []


def test_those_that_are_ready_go_on_once_the_first_of_them_by_name_swaps():
    mine = a_move("logs", "Creating", {"ready": True}, movedWith=["data", "more"])
    names = {"movedWith": ["logs", "more"]}
    lost = Companion("more", zones=frozenset({HERE}))

    def first(phase: str) -> Companion:
        moves = [a_move("data", phase, {"ready": True}, **names)]
        return Companion("data", zones=frozenset({HERE}), moves=moves)

    for phase in ("Swapping", "Cleaning"):
        assert rules.before_swap(mine, [first(phase), lost]) is None
    assert isinstance(rules.before_swap(mine, [first("Creating"), lost]), Await)
    assert isinstance(rules.before_swap(mine, [first("Aborting"), lost]), Undo)


@pytest.mark.parametrize(
    ("since", "goes_on"),
    [("2026-11-28T20:00:00+00:00", True), ("2026-11-27T20:00:00+00:00", False)],
)
def test_the_rest_go_on_if_the_first_turns_back_but_not_by_what_it_did_another_day(
    since: str, *, goes_on: bool
):
    ready = {"ready": True, "phaseSince": "2026-11-28T19:00:00+00:00"}
    back = of_data("Aborted", {"undoneFrom": "Swapping", "phaseSince": since})
    first = Companion("data", zones=frozenset({HERE}), moves=[back])

    found = rules.before_swap(of_logs("Creating", ready), [first])

    assert (found is None) is goes_on


@pytest.mark.parametrize("phase", ["Held", "Snapshotting", "Creating", "Copying"])
def test_pods_do_not_stop_longer_once_another_one_has_failed(phase: str):
    mine = a_move(phase=phase, **WITH_LOGS)

    for failed in (of_logs("Aborting"), of_logs("Aborted"), of_logs("Snapshotting", abort=True)):
        assert isinstance(rules.undone(mine, [logs(failed)]), Undo)
        assert not rules.go_on(mine, [logs(failed)])
    for going in (of_logs("Held"), of_logs("Swapping"), of_logs("Cleaning")):
        assert rules.undone(mine, [logs(going)]) is None
        assert rules.go_on(mine, [logs(going)])
    assert rules.undone(mine, [logs(zone=THERE)]) is None


def test_one_that_has_promised_is_undone_by_the_first_alone():
    """Another one may fail after the first has swapped, which nobody knows who has not looked."""
    names = {"movedWith": ["logs", "more"]}
    mine = a_move("logs", "Creating", {"ready": True}, movedWith=["data", "more"])
    lost = Companion("more", zones=frozenset({HERE}))

    def first(phase: str) -> Companion:
        moves = [a_move("data", phase, {"ready": True}, **names)]
        return Companion("data", zones=frozenset({HERE}), moves=moves)

    assert rules.undone(mine, [first("Creating"), lost]) is None
    assert isinstance(rules.undone(mine, [first("Aborting"), lost]), Undo)


def test_the_first_by_name_may_be_aborted_until_it_swaps():
    first = a_move("data", "Creating", {"ready": True}, abort=True, **WITH_LOGS)

    assert not first.is_promised
    assert of_logs("Creating", {"ready": True}).is_promised
    waits = [Companion("data", zones=frozenset({HERE}), moves=[first])]
    assert isinstance(rules.before_swap(of_logs("Creating", {"ready": True}), waits), Undo)


@pytest.mark.parametrize(
    ("first", "is_led"),
    [
        (Companion("data", zones=frozenset({THERE})), False),
        (Companion("data", zones=frozenset({HERE})), True),
        (Companion("data", zones=frozenset({THERE}), moves=[of_data("Cleaning")]), True),
        (Companion("wal", zones=frozenset({HERE})), False),
    ],
    ids=["is there already", "is not", "has just swapped", "comes later"],
)
def test_a_claim_that_has_arrived_decides_nothing_for_the_others(first: Companion, *, is_led: bool):
    assert rules.is_led(of_logs("Held", {"ready": True}), [first]) is is_led


def test_the_first_one_that_swaps_swaps_for_all_and_those_after_it_for_themselves():
    ready, swapping = of_logs("Creating", {"ready": True}), of_logs("Swapping")

    assert rules.led_by(of_data("Creating"), [logs(ready)]) == [ready]
    assert rules.led_by(of_data("Creating"), [logs(swapping)]) == []
    assert rules.led_by(of_data("Creating"), [logs(zone=THERE)]) == []


def test_moves_that_do_not_name_the_same_claims_do_not_begin():
    """Else the one in the middle could be undone after one beside it has swapped."""
    more = Companion("more", zones=frozenset({HERE}), moves=[a_move("more", "Planned")])
    mine = a_move(movedWith=["logs", "more"])
    found = rules.before_begin(mine, [logs(of_logs("Planned")), more])

    assert isinstance(found, Await)
    assert found.message.startswith(
        "VolumeMove logs-to-b goes with claims data and logs, and this one with data and logs and "
    )
    arrived = Companion("more", zones=frozenset({THERE}))
    assert rules.before_begin(mine, [logs(of_logs("Planned")), arrived]) is None


def test_a_claim_that_was_not_moved_after_all_is_told_with_what_helps():
    mine = a_move(phase="Cleaning", **WITH_LOGS)
    failed = of_logs("Aborted", {"message": "the new volume was deleted"})

    said = rules.not_moved(mine, [logs(failed)])

    assert said.startswith("claim logs was not moved with it (VolumeMove logs-to-b is Aborted: the")
    assert f"kubectl ebs move -n shop pvc/logs --to-zone {THERE}" in said
    for ended in (logs(of_logs("Cleaning")), logs(of_logs("Done"), zone=THERE)):
        assert rules.not_moved(mine, [ended]) == ""


def test_a_move_within_a_zone_goes_by_the_volume_that_the_other_claim_has():
    to: Any = {"to": {"encrypted": True}}
    done = of_logs("Done", **to)
    mine = a_move(phase="Creating", **WITH_LOGS, **to)

    moved = logs(done, persistent_volume=done.persistent_volume_name)
    assert rules.before_swap(mine, [moved]) is None
    assert isinstance(rules.before_swap(mine, [logs(done, persistent_volume="other")]), Undo)


def test_a_move_without_others_waits_for_nobody():
    for ask in (rules.before_begin, rules.before_swap, rules.before_return):
        assert ask(a_move(), []) is None


BACK: dict[str, Any] = {
    "plan": {"source": {"zone": HERE}, "target": {"zone": THERE}},
}


def test_moves_that_go_back_go_together_each_from_a_move_of_its_own():
    mine = a_move("data", "Creating", BACK, to={"source": "data-1"}, **WITH_LOGS)
    other = of_logs("Held", BACK | {"ready": True}, to={"source": "logs-1"})

    assert rules.before_begin(mine, [logs(other)]) is None
    assert rules.before_swap(mine, [logs(other)]) is None
    assert isinstance(rules.before_swap(mine, [logs()]), Undo)
    assert rules.left_behind(a_move(), [logs(other)], THERE) is None
    arrived = a_move("data", "Cleaning", BACK, to={"source": "data-1"}, **WITH_LOGS)
    assert rules.not_moved(arrived, [logs(zone=THERE)]) == ""
    assert f"--to-zone {THERE}" in rules.not_moved(arrived, [logs()])


# -- pods come back to all of their claims


@pytest.mark.parametrize("phase", ["Creating", "Swapping"])
def test_pods_do_not_come_back_while_another_claim_of_theirs_is_exchanged(phase: str):
    found = rules.before_return(a_move(phase="Cleaning", **WITH_LOGS), [logs(of_logs(phase))])

    assert isinstance(found, Await)


@pytest.mark.parametrize("phase", ["Cleaning", "Done", "Aborting", "Aborted"])
def test_pods_come_back_once_the_others_have_swapped_or_ended(phase: str):
    found = rules.before_return(a_move(phase="Cleaning", **WITH_LOGS), [logs(of_logs(phase))])

    assert found is None


async def test_an_ephemeral_volume_of_a_pod_keeps_it_in_no_zone():
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "logs", "persistentVolumeClaim": {"claimName": "logs"}},
        {"name": "scratch", "ephemeral": {}},
    ]
    body = {"metadata": {"name": "web-0", "namespace": "shop"}, "spec": {"volumes": volumes}}
    reader = object.__new__(Companions)
    asked: list[dict[str, list[str]]] = []

    async def read(_: VolumeMove, users: dict[str, list[str]]) -> list[Companion]:
        asked.append(users)
        return []

    reader._read = read  # type: ignore[method-assign, assignment]
    await reader.of_pods(a_move(), [msgspec.convert(body, Pod)], THERE)

    assert asked == [{"logs": ["web-0"]}]
