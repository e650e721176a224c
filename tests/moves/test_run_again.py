"""``kubectl ebs move`` run twice, killed, or left without a reply."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.model.volume_move import MoveTarget
from provisioner.moves import command
from provisioner.moves.wish_rules import Wish
from tests.moves.conftest import Run
from tests.moves.fake_cluster import (
    AFTER,
    BEFORE,
    NAMESPACE,
    PLANNED,
    SHOP_DATA,
    TO_B,
    FakeCluster,
    Fault,
    real,
)


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_lost_reply_makes_no_second_move(when: str, cluster: FakeCluster, run: Run):
    cluster.faults = [Fault("POST", "volumemoves", when, times=2)]
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    assert len(cluster.moves) == 1
    assert {each["metadata"]["name"] for each in real(cluster)} == {*cluster.moves}


async def test_whether_a_move_was_made_is_not_guessed(cluster: FakeCluster, run: Run):
    planned = await run(SHOP_DATA, *TO_B, "--dry-run")
    assert planned.exit_code == 0
    cluster.plan = PLANNED
    wish = Wish(NAMESPACE, "data", MoveTarget(zone="us-east-1b"))
    prepared = await command._prepare(cluster.target, [wish], dry_run=False)
    assert prepared is not None
    cluster.faults = [Fault("POST", "volumemoves", BEFORE, times=9)]

    with pytest.raises(Exception, match="it may be there: look with kubectl ebs move --list"):
        await command._carry_out(cluster.target, prepared)


async def test_the_same_command_finds_the_move_that_it_began(cluster: FakeCluster, run: Run):
    there = cluster.put("mine", {"phase": "Creating"} | {k: PLANNED[k] for k in ("plan", "source")})
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (0, [])
    assert "VolumeMove shop/mine is moving this claim already" in done.stdout
    assert cluster.moves == {"mine": there}


async def test_a_claim_that_is_being_exchanged_need_not_be_there(cluster: FakeCluster, run: Run):
    cluster.claim = None
    cluster.put("mine", {"phase": "Swapping"})

    assert (await run(SHOP_DATA, *TO_B, "--yes")).exit_code == 0
    assert cluster.bodies == []


async def test_two_who_run_it_at_once_share_one_move(cluster: FakeCluster):
    wish = Wish(NAMESPACE, "data", MoveTarget(zone="us-east-1b"))

    async def one() -> int:
        prepared = await command._prepare(cluster.target, [wish], dry_run=False)
        assert prepared is not None
        await both_are_there.wait()
        return await command._carry_out(cluster.target, prepared)

    both_are_there = asyncio.Barrier(2)
    assert list(await asyncio.gather(one(), one())) == [0, 0]
    assert len(cluster.moves) == 1


async def test_another_move_of_the_claim_is_not_followed_by_mistake(cluster: FakeCluster, run: Run):
    cluster.put("other", {"phase": "Held"}, to={"zone": "us-east-1c"})
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert "to something else (zone us-east-1c)" in done.stderr
    assert "--abort other" in done.stderr


async def test_a_command_that_is_run_again_after_the_end_does_nothing(
    cluster: FakeCluster, run: Run
):
    made = cluster.put("mine", {"phase": "Done"})
    assert cluster.claim is not None
    cluster.claim["spec"]["volumeName"] = f"pvc-{made['metadata']['uid']}"
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (0, [])
    assert "VolumeMove shop/mine has done this" in done.stdout


@pytest.mark.parametrize(
    ("until", "says"),
    [
        ("2026-12-07T00:00:00+00:00", """-p '{"spec": {"keepSource": "720h"}}'\n"""),
        ("", "does not keep the old volume any more: leave --keep-source out\n"),
    ],
)
async def test_whoever_wants_the_old_volume_kept_longer_is_not_told_that_this_is_done(
    until: str, says: str, cluster: FakeCluster, run: Run
):
    made = cluster.put("mine", {"phase": "Done", "sourceKeptUntil": until})
    assert cluster.claim is not None
    cluster.claim["spec"]["volumeName"] = f"pvc-{made['metadata']['uid']}"
    done = await run(SHOP_DATA, *TO_B, "--yes", "--keep-source", "720h")
    same = await run(SHOP_DATA, *TO_B, "--yes", "--keep-source", "168h")

    assert (done.exit_code, same.exit_code, cluster.bodies) == (1, 0, [])
    assert says in done.stderr
    here = f"kubectl --kubeconfig {cluster.target.kubeconfig} -n shop patch volumemove mine"
    assert (here in done.stderr) is bool(until)


async def test_after_a_move_that_was_aborted_the_next_one_has_another_name(
    cluster: FakeCluster, run: Run
):
    await run(SHOP_DATA, *TO_B, "--yes")
    (first,) = cluster.moves
    cluster.moves[first]["status"] = {"phase": "Aborted"}
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    assert [*cluster.moves] == [first, f"{first}-2"]


async def test_a_plan_that_has_changed_since_it_was_agreed_to_is_aborted(
    cluster: FakeCluster, run: Run
):
    source = {**PLANNED["source"], "volumeID": "vol-9"}
    cluster.way[0] = PLANNED | {"source": source}
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert done.exit_code == 1
    assert "has changed since you agreed to the plan" in done.stdout
    assert cluster.bodies[-1]["spec"] == {"abort": True}
    assert "is aborted: claim shop/data has its old volume" in done.stdout


async def test_an_owner_that_came_since_the_plan_was_agreed_to_aborts_the_move(
    cluster: FakeCluster, run: Run
):
    stops = ["Deployment late is scaled from 1 to 0, and back after the swap"]
    cluster.way[0] = PLANNED | {"plan": {**PLANNED["plan"], "stops": stops}}
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert done.exit_code == 1
    assert "or an owner of its pods has changed since you agreed to the plan" in done.stdout
    assert cluster.bodies[-1]["spec"] == {"abort": True}


@pytest.mark.parametrize("phase", ["Swapping", "Cleaning", "Done"])
async def test_a_plan_that_has_changed_is_told_if_it_is_too_late_to_abort_the_move(
    phase: str, cluster: FakeCluster, run: Run
):
    """A move that copies nothing may be there before the first look at it."""
    changed = PLANNED | {"source": {**PLANNED["source"], "volumeID": "vol-9"}}
    cluster.way = [changed | {"phase": phase}, {"phase": "Done"}]
    done = await run(SHOP_DATA, *TO_B, "--yes")

    (name,), here = cluster.moves, f"--kubeconfig {cluster.target.kubeconfig}"
    assert (done.exit_code, len(cluster.asked("PATCH"))) == (1, 0)
    assert (
        "has changed since you agreed to the plan, and it is too late to abort the move: once it "
        f"is Done, kubectl ebs move {here} -n shop --abort {name} undoes it"
    ) in done.stdout


async def test_a_move_that_keeps_its_volume_is_not_said_to_be_undone_by_another(
    cluster: FakeCluster, run: Run
):
    changed = PLANNED | {"plan": {**PLANNED["plan"], "keepsVolume": True, "stops": ["Job a"]}}
    cluster.way = [changed | {"phase": "Swapping"}, {"phase": "Done"}]
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert done.exit_code == 1
    assert "it is too late to abort the move\n" in done.stdout
