"""``kubectl ebs move sts/NAME``: replica by replica."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.model.volume_move import MoveTarget
from provisioner.moves.sets import row, set_command
from provisioner.moves.sets.set_rules import SetWish
from provisioner.moves.wish_rules import Wish
from tests.moves.conftest import Run
from tests.moves.fake_cluster import NAMESPACE, PLANNED, TO_B, FakeCluster, dry, real
from tests.moves.fake_set import BUDGETS, FakeSet

WEB = "sts/shop/web"
LABEL = {"ebs-provisioner.io/moved-set": "web"}


@pytest.fixture
def web(cluster: FakeCluster) -> FakeSet:
    return FakeSet(cluster)


def claims(bodies: list[dict[str, object]]) -> list[str]:
    return [each["spec"]["claimName"] for each in bodies]  # type: ignore[index]


async def test_one_replica_after_the_other_is_moved_the_highest_first(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    done = await run(WEB, *TO_B, says="y\n")

    assert done.exit_code == 0, done.output
    assert claims(real(cluster)) == ["data-web-2", "data-web-1", "data-web-0"]
    assert web.stopped_at_once == 1
    assert all(each["spec"]["consumers"] == {"policy": "Restart"} for each in cluster.bodies)
    assert all(each["metadata"]["labels"] == LABEL for each in real(cluster))
    assert "Move 3 replicas of StatefulSet shop/web, 1 at a time? [y/N]" in done.stderr
    assert done.stdout.splitlines()[-1] == "StatefulSet shop/web is moved"


async def test_no_replica_waits_for_warm_snapshots_if_none_are_wanted(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    done = await run(WEB, *TO_B, "--no-warm", "--yes")

    assert (done.exit_code, web.begun) == (0, ["web-2", "web-1", "web-0"])
    assert {each["spec"]["warm"] for each in cluster.bodies} == {False}


async def test_the_plan_of_all_replicas_is_there_once_before_the_question(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    done = await run(WEB, *TO_B, "--dry-run")

    assert done.exit_code == 0, done.output
    assert sorted(claims(cluster.bodies)) == ["data-web-0", "data-web-1", "data-web-2"]
    assert (all(map(dry, cluster.bodies)), cluster.moves, web.begun) == (True, {}, [])
    assert done.stdout.count("Good to know:") == 1
    for number in range(3):
        assert f"vol-data-web-{number}" in done.stdout
    assert "all 3 take about" in done.stdout
    assert "by list prices of us-east-1" in done.stdout


async def test_whoever_says_no_has_moved_no_replica(cluster: FakeCluster, run: Run, web: FakeSet):
    done = await run(WEB, *TO_B, says="n\n")

    assert (done.exit_code, real(cluster), web.begun) == (1, [], [])


async def test_as_many_are_stopped_at_once_as_asked_and_no_more(cluster: FakeCluster, run: Run):
    web = FakeSet(cluster, replicas=5)
    done = await run(WEB, *TO_B, "--at-once", "2", "--yes")

    assert done.exit_code == 0, done.output
    assert web.stopped_at_once == 2
    assert len(cluster.moves) == 5


async def test_all_claims_of_a_replica_go_together(cluster: FakeCluster, run: Run):
    web = FakeSet(cluster, replicas=2, templates=("data", "logs"))
    done = await run(WEB, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    together = {each["spec"]["claimName"]: each["spec"]["movedWith"] for each in real(cluster)}
    assert together == {
        "data-web-1": ["logs-web-1"],
        "logs-web-1": ["data-web-1"],
        "data-web-0": ["logs-web-0"],
        "logs-web-0": ["data-web-0"],
    }
    assert web.begun == ["web-1", "web-0"]


async def test_with_scale_down_all_claims_are_moved_at_once_as_a_set_stops_from_the_top(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    done = await run(WEB, *TO_B, "--scale-down", "--yes")

    assert done.exit_code == 0, done.output
    names = {"data-web-0", "data-web-1", "data-web-2"}
    for each in real(cluster):
        assert each["spec"]["consumers"] == {"policy": "ScaleDown"}
        assert {each["spec"]["claimName"], *each["spec"]["movedWith"]} == names
    assert web.stopped_at_once == 3
    assert "stopped as a whole" in done.stdout


async def test_claims_of_replicas_that_were_scaled_away_are_moved_as_well(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    web.body["spec"]["replicas"] = 1
    web.replicas = 1
    done = await run(WEB, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    policies = {e["spec"]["claimName"]: e["spec"].get("consumers") for e in real(cluster)}
    restart = {"policy": "Restart"}
    assert policies == {"data-web-0": restart, "data-web-1": None, "data-web-2": None}


async def test_without_hold_is_asked_of_each_replica_that_restarts(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    done = await run(WEB, *TO_B, "--without-hold", "--dry-run")

    assert done.exit_code == 0, done.output
    asked = {"policy": "Restart", "withoutHold": True}
    assert [each["spec"]["consumers"] for each in cluster.bodies] == [asked] * 3


# -- left, and run again


async def test_run_again_it_goes_on_with_the_next_replica(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    done_before = cluster.put("two", {"phase": "Done"}, claimName="data-web-2")
    cluster.claims["data-web-2"]["spec"]["volumeName"] = f"pvc-{done_before['metadata']['uid']}"
    cluster.put("one", {"phase": "Held"}, claimName="data-web-1", consumers={"policy": "Restart"})
    done = await run(WEB, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    assert claims(real(cluster)) == ["data-web-0"]
    assert "VolumeMove shop/one is moving claim data-web-1 already." in done.stdout
    assert web.stopped_at_once == 1


async def test_run_again_after_the_end_it_does_nothing(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    for number in range(3):
        cluster.plans[f"data-web-{number}"] = {"phase": "Refused", "asAsked": True}
    done = await run(WEB, *TO_B, "--yes")

    assert (done.exit_code, real(cluster), web.begun) == (0, [], [])
    assert done.stdout == "StatefulSet shop/web is moved: all of its claims are as asked\n"


async def test_whoever_leaves_has_no_other_replica_begun_and_is_told(
    cluster: FakeCluster, web: FakeSet, capsys: pytest.CaptureFixture[str]
):
    cluster.way = [PLANNED, {"phase": "Held"}]
    wish = SetWish(Wish(NAMESPACE, "", MoveTarget(zone="us-east-1b"), set_name="web"))
    prepared = await set_command._prepare(cluster.target, wish, dry_run=False)
    assert prepared is not None
    task = asyncio.create_task(set_command._carry_out(cluster.target, prepared))
    while not web.begun:
        await asyncio.sleep(0.001)
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert claims(real(cluster)) == ["data-web-2"]
    assert "Run the same command again to go on" in capsys.readouterr().err


async def test_a_replica_that_fails_stops_the_row_in_one_sentence(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    cluster.way = [PLANNED, {"phase": "Aborted", "message": "quota"}]
    done = await run(WEB, *TO_B, "--yes")

    assert done.exit_code == 1
    assert claims(real(cluster)) == ["data-web-2"]
    assert done.stdout.splitlines()[-1] == (
        "the move of replica web-2 did not end well, so no other replica is begun; replicas web-0 "
        "and web-1 are as they were: run it again then"
    )
    assert web.begun == ["web-2"]


async def test_a_replica_that_does_not_come_to_be_ready_stops_the_row(
    cluster: FakeCluster, run: Run, web: FakeSet, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(row, "_PATIENCE_S", 0.05)
    web.broken = {"web-2"}
    done = await run(WEB, *TO_B, "--yes")

    assert done.exit_code == 1
    assert claims(real(cluster)) == ["data-web-2"]
    look = f"kubectl ebs explain --kubeconfig {cluster.target.kubeconfig} pod shop/web-2"
    assert f"pod web-2 is not Ready after 0 minutes ({look})" in done.stdout


# -- before it begins


async def test_a_replica_that_is_not_ready_is_agreed_to_and_goes_first(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    web.set_pod("web-0", is_ready=False)
    refused = await run(WEB, *TO_B, "--yes")

    assert (refused.exit_code, real(cluster)) == (1, [])
    assert "pod web-0 is not Ready: run it without --yes" in refused.stderr

    done = await run(WEB, *TO_B, says="y\n")
    assert done.exit_code == 0, done.output
    assert "pod web-0 is not Ready: moved first" in done.stdout
    assert web.begun == ["web-0", "web-2", "web-1"]
    assert web.stopped_at_once == 1


@pytest.mark.parametrize("missing", ["statefulsets/web", "data-web-1"])
async def test_what_is_not_there_is_named(
    missing: str, cluster: FakeCluster, run: Run, web: FakeSet
):
    cluster.claims.pop(missing, None)
    cluster.others = {k: v for k, v in cluster.others.items() if not k.endswith(missing)}
    done = await run(WEB, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies, web.begun) == (1, [], [])
    says = "there is no pvc shop/data-web-1, which pod web-1 needs"
    assert (says if "data" in missing else "there is no StatefulSet shop/web") in done.stderr


async def test_a_budget_that_allows_none_refuses_before_anything_is_made(
    cluster: FakeCluster, run: Run, web: FakeSet
):
    status = {"disruptionsAllowed": 0, "currentHealthy": 3, "expectedPods": 3}
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "pdb"}, "spec": {"selector": selector}, "status": status}
    cluster.others[BUDGETS] = {"metadata": {}, "items": [budget]}
    done = await run(WEB, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies, web.begun) == (1, [], [])
    assert "PodDisruptionBudget pdb lets no pod of StatefulSet shop/web be stopped" in done.stderr


async def test_if_one_replica_cannot_be_moved_none_is(cluster: FakeCluster, run: Run, web: FakeSet):
    for number in (0, 1):
        cluster.plans[f"data-web-{number}"] = {"phase": "Refused", "message": "quota"}
    done = await run(WEB, *TO_B, "--yes")

    assert (done.exit_code, real(cluster), web.begun) == (1, [], [])
    assert done.stderr.startswith("Error: claim shop/data-web-0 cannot be moved so: quota; nor can")


# -- by the name of the set


async def test_abort_of_a_set_is_of_all_its_moves_that_are_under_way(
    cluster: FakeCluster, run: Run
):
    for name, phase in (("two", "Held"), ("one", "Creating"), ("old", "Done")):
        made = cluster.put(name, {"phase": phase}, claimName=f"data-{name}")
        made["metadata"]["labels"] = LABEL
    cluster.put("other", {"phase": "Held"}, claimName="mine")
    done = await run("--abort", WEB)

    assert done.exit_code == 0, done.output
    phases = {name: each["status"]["phase"] for name, each in cluster.moves.items()}
    assert phases == {"two": "Aborted", "one": "Aborted", "old": "Done", "other": "Held"}


async def test_resume_of_a_set_shows_what_is_under_way(cluster: FakeCluster, run: Run):
    cluster.put("two", {"phase": "Held"}, claimName="data-web-2")["metadata"]["labels"] = LABEL
    done = await run("--resume", WEB)
    none = await run("--resume", WEB)

    assert done.exit_code == 0, done.output
    assert "no VolumeMove of StatefulSet shop/web is under way" in none.stderr
