"""``kubectl ebs move`` against an API server: the plan, the question, what is made."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from provisioner.model.volume_move import MoveTarget, VolumeMove
from provisioner.moves import asking, command, plan, wish_rules
from provisioner.moves.wish_rules import Wish
from tests.moves.conftest import Run
from tests.moves.fake_cluster import (
    CLAIM,
    CLAIM_UID,
    NAMESPACE,
    PLANNED,
    SHAPE,
    SHOP_DATA,
    TO_B,
    FakeCluster,
    Fault,
    Json,
    dry,
    real,
)

REFUSED = {"phase": "Refused", "message": "no node with the driver is in zone us-east-1b"}


async def test_the_plan_is_shown_then_asked_then_the_move_is_followed_to_its_end(
    cluster: FakeCluster, run: Run
):
    done = await run(SHOP_DATA, *TO_B, "--keep-source", "24h", says="y\n")

    assert done.exit_code == 0, done.output
    first, second = cluster.bodies
    assert (dry(first), dry(second)) == (True, False)
    assert second["spec"] == {
        "claimName": "data",
        "to": {"zone": "us-east-1b"},
        "keepSource": "24h",
    }
    assert [*cluster.moves] == [second["metadata"]["name"]]
    assert "zone        us-east-1a   us-east-1b" in done.stdout
    assert "  - the claim gets another UID" in done.stdout
    assert "Move claim shop/data? [y/N]" in done.stderr
    told = done.stdout.splitlines()
    steps = [line.partition(":")[0] for line in told if line.startswith("[")]
    assert steps == [
        "[1/6] Held",
        *["[2/6] Snapshotting"] * 2,
        "[3/6] Creating",
        "[4/6] Swapping",
        "[5/6] Cleaning",
    ]
    assert told[-1].startswith("claim shop/data has volume vol-2 in us-east-1b")


async def test_whoever_says_no_has_changed_nothing(cluster: FakeCluster, run: Run):
    done = await run(SHOP_DATA, *TO_B, says="n\n")

    assert (done.exit_code, cluster.moves, real(cluster)) == (1, {}, [])
    assert "nothing was changed" in done.stderr


async def test_while_somebody_thinks_nothing_is_under_way(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
):
    seen: list[object] = []

    def confirm(*_: object) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # else Ctrl-C would wait for the answer
        seen.append(dict(cluster.moves))

    monkeypatch.setattr(asking, "confirm", confirm)
    await run(SHOP_DATA, *TO_B, says="y\n")

    assert seen == [{}]


async def test_where_nobody_can_be_asked_nothing_is_asked_of_the_cluster(
    cluster: FakeCluster, run: Run
):
    done = await run(SHOP_DATA, *TO_B)

    assert (done.exit_code, cluster.log) == (1, [])
    assert done.stderr == (
        "Error: nobody can be asked whether to move claim shop/data: give --yes, or --dry-run for "
        "the plan alone\n"
    )


async def test_yes_asks_nobody(cluster: FakeCluster, run: Run):
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, len(real(cluster))) == (0, 1)
    assert "[y/N]" not in done.output


async def test_a_dry_run_leaves_nothing_behind(cluster: FakeCluster, run: Run):
    done = await run("data", "-n", "shop", *TO_B, "--dry-run")

    assert (done.exit_code, cluster.moves, real(cluster)) == (0, {}, [])
    kept = "PersistentVolume pv-1 keeps vol-1 for 168h, then the volume and its data are deleted"
    assert kept in done.stdout


async def test_a_refused_plan_is_one_sentence_and_no_move(cluster: FakeCluster, run: Run):
    cluster.plan = REFUSED
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, done.stdout, cluster.moves) == (1, "", {})
    assert done.stderr == (
        "Error: claim shop/data cannot be moved so: no node with the driver is in zone us-east-1b\n"
    )


async def test_a_dry_run_belongs_to_its_claim_so_that_a_killed_command_leaves_none(
    cluster: FakeCluster, run: Run
):
    await run(SHOP_DATA, *TO_B, "--dry-run")

    (body,) = cluster.bodies
    owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": CLAIM_UID}
    assert body["metadata"]["ownerReferences"] == [owner]


async def test_a_command_that_is_stopped_while_it_waits_for_the_plan_deletes_the_dry_run(
    cluster: FakeCluster,
):
    cluster.plan = {}
    wish = Wish(NAMESPACE, "data", MoveTarget(zone="us-east-1b"))
    task = asyncio.create_task(command._prepare(cluster.target, [wish], dry_run=True))
    while not any(cluster.asked("GET")):  # noqa: ASYNC110 -- the server has no event for it
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert cluster.moves == {}
    assert len(cluster.asked("DELETE")) == 1


async def test_a_dry_run_that_stays_is_told_with_what_deletes_it_in_the_same_cluster(
    cluster: FakeCluster, run: Run
):
    cluster.faults = [Fault("DELETE", "volumemoves", 403)]
    done = await run(SHOP_DATA, *TO_B, "--dry-run")

    (name,), here = cluster.moves, f"--kubeconfig {cluster.target.kubeconfig}"
    assert f"it does nothing: kubectl {here} -n shop delete volumemove {name}\n" in done.stderr


async def test_without_a_controller_that_moves_it_gives_up_and_says_what_to_look_at(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plan, "PATIENCE_S", 0.01)
    cluster.plan = {}
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, cluster.moves) == (1, {})
    assert "nobody has made a plan for claim shop/data" in done.stderr
    assert "--volume-moves" in done.stderr


async def test_a_dry_run_that_somebody_deletes_is_told(cluster: FakeCluster, run: Run):
    cluster.plan = {}
    cluster.meanwhile = lambda name: cluster.moves.pop(name, None)  # type: ignore[assignment]
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, real(cluster)) == (1, [])
    assert "was deleted by somebody before its plan was made" in done.stderr


# -- the pods are stopped by the move; the volume stays


async def test_with_scale_down_the_move_stops_the_pods_and_nobody_is_told_to(
    cluster: FakeCluster, run: Run
):
    stops = "StatefulSet web is scaled from 3 to 1, and back after the swap"
    plan = PLANNED["plan"] | {"pods": ["web-1", "web-2"], "stops": [stops]}
    web = {"kind": "StatefulSet", "name": "web", "uid": "w", "scaleTo": 1, "replicas": 3}
    cluster.plan = PLANNED | {"plan": plan}
    cluster.way[0] = cluster.plan
    cluster.way[1] = {"phase": "Held", "consumers": [web]}
    cluster.way[-1] = {**cluster.way[-1], "consumers": [web | {"isBack": True}]}
    done = await run(SHOP_DATA, *TO_B, "--scale-down", "--yes")

    assert done.exit_code == 0, done.output
    assert all(each["spec"]["consumers"] == {"policy": "ScaleDown"} for each in cluster.bodies)
    assert f"  - {stops}" in done.stdout
    assert cluster.asked("GET", "pods") == []
    told = done.stdout.splitlines()
    assert told.count("StatefulSet web is scaled from 3 to 1") == 1
    assert told[-2].startswith("StatefulSet web is scaled back to 3")
    assert "start its pods again" not in told[-1]


async def test_with_form_the_move_asks_for_csi(cluster: FakeCluster, run: Run):
    done = await run(SHOP_DATA, "--form", "csi", "--yes")

    assert done.exit_code == 0, done.output
    assert [each["spec"]["to"] for each in cluster.bodies] == [{"form": "csi"}] * 2


async def test_with_restart_the_move_evicts_the_pods_and_nobody_is_told_to_start_them(
    cluster: FakeCluster, run: Run
):
    stops = "StatefulSet web: pod web-1 is evicted, and the one in its place starts after the swap"
    plan = PLANNED["plan"] | {"pods": ["web-1"], "stops": [stops]}
    cluster.plan = PLANNED | {"plan": plan}
    cluster.way[0] = cluster.plan
    done = await run(SHOP_DATA, *TO_B, "--restart", "--without-hold", "--yes")

    assert done.exit_code == 0, done.output
    asked = {"policy": "Restart", "withoutHold": True}
    assert all(each["spec"]["consumers"] == asked for each in cluster.bodies)
    assert " ".join(stops.split()) in " ".join(done.stdout.split())
    assert cluster.asked("GET", "pods") == []
    assert "start its pods again" not in done.stdout


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), {"withoutHold": True}),
        (("--scale-down",), {"policy": "ScaleDown", "withoutHold": True}),
    ],
)
async def test_without_hold_is_for_each_way_in_which_pods_stop(
    words: tuple[str, ...], asked: dict[str, object], cluster: FakeCluster, run: Run
):
    done = await run(SHOP_DATA, *TO_B, *words, "--without-hold", "--yes")

    assert done.exit_code == 0, done.output
    assert [each["spec"]["consumers"] for each in cluster.bodies] == [asked] * 2


def used(gib: float) -> Json:
    """What a kubelet tells of a node with a pod that has the claim mounted."""
    volume = {"usedBytes": int(gib * 2**30), "availableBytes": 2**30, "capacityBytes": 20 * 2**30}
    return {"pods": [{"volume": [volume | {"pvcRef": {"name": CLAIM, "namespace": NAMESPACE}}]}]}


def shrinks(cluster: FakeCluster) -> None:
    """The plan of a move whose pod copies files to a volume of 5 GiB."""
    target = SHAPE | {"sizeGiB": 5}
    plan = PLANNED["plan"] | {"pods": ["web-0"], "target": target, "copiesFiles": True}
    cluster.plan = cluster.way[0] = PLANNED | {"plan": plan}
    pod = {"metadata": {"name": "web-0"}, "spec": {"nodeName": "node-a"}}
    cluster.others[f"/api/v1/namespaces/{NAMESPACE}/pods/web-0"] = pod


async def test_files_that_do_not_fit_are_refused_before_anything_is_touched(
    cluster: FakeCluster, run: Run
):
    shrinks(cluster)
    cluster.others["/api/v1/nodes/node-a/proxy/stats/summary"] = used(7.25)
    done = await run(SHOP_DATA, "--size", "5Gi", "--yes")

    assert (done.exit_code, cluster.moves) == (1, {})
    told = "claim shop/data cannot be moved so: its files take 7.2Gi, and the new volume would have"
    assert told in done.stderr


@pytest.mark.parametrize("known", [used(4.5), {"pods": []}, {"pods": "odd"}, None])
async def test_files_that_fit_and_those_of_which_no_node_tells_are_moved(
    known: Json | None, cluster: FakeCluster, run: Run
):
    shrinks(cluster)
    if known is not None:
        cluster.others["/api/v1/nodes/node-a/proxy/stats/summary"] = known
    done = await run(SHOP_DATA, "--size", "5Gi", "--yes")

    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "words",
    [
        ("--form", "csi"),
        (*TO_B, "--scale-down"),
        (*TO_B, "--restart"),
        (*TO_B, "--no-warm"),
        (*TO_B, "--check"),
    ],
)
async def test_an_option_that_an_older_crd_does_not_know_is_refused_before_anything_is_made(
    words: tuple[str, ...], cluster: FakeCluster, run: Run
):
    cluster.knows = {"claimName", "to", "keepSource", "dryRun", "abort"}
    cluster.knows_of_to = {"zone"}
    done = await run(SHOP_DATA, *words, "--yes")

    assert (done.exit_code, cluster.moves) == (1, {})
    assert "the CRD of VolumeMoves in this cluster is older" in done.stderr
    assert "unknown field" in done.stderr
    assert (await run(SHOP_DATA, *TO_B, "--yes")).exit_code == 0


async def test_all_is_asked_as_the_user_that_is_given(cluster: FakeCluster, run: Run):
    who = ("--as", "eve", "--as-group", "dev", "--as-group", "ops", "--as-uid", "u-1")
    done = await run(SHOP_DATA, *TO_B, "--yes", *who)

    assert done.exit_code == 0, done.output
    assert cluster.asked_as == {("eve", "dev", "ops", "u-1")}


async def test_a_check_is_asked_for_and_named_in_what_pods_stop_for(cluster: FakeCluster, run: Run):
    cluster.plan = PLANNED | {"plan": PLANNED["plan"] | {"checks": True, "pods": ["web-0"]}}
    done = await run(SHOP_DATA, *TO_B, "--check", "--yes")

    assert done.exit_code == 0, done.output
    assert [each["spec"]["check"] for each in cluster.bodies] == [True, True]
    assert "a snapshot, a new volume, its check and the exchange" in " ".join(done.stdout.split())


@pytest.mark.parametrize("checks", [False, True])
async def test_a_move_that_does_not_check_its_volume_is_not_taken_for_one_that_does(
    cluster: FakeCluster, run: Run, *, checks: bool
):
    cluster.put("other", {"phase": "Held"}, check=checks)
    done = await run(SHOP_DATA, *TO_B, "--check", "--yes")

    assert (done.exit_code, cluster.bodies) == (0 if checks else 1, [])
    assert ("leave --check out to follow it" in done.stderr) is not checks


async def test_without_warm_snapshots_pods_stop_at_once(cluster: FakeCluster, run: Run):
    done = await run(SHOP_DATA, *TO_B, "--no-warm", "--yes")

    assert done.exit_code == 0, done.output
    assert [each["spec"]["warm"] for each in cluster.bodies] == [False, False]
    assert "pods stop for it" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("phase", "warm", "follows"),
    [("Planned", True, False), ("Warming", True, False), ("Held", True, True), ("", False, True)],
)
async def test_a_move_that_takes_warm_snapshots_yet_is_not_taken_for_one_without(
    phase: str, cluster: FakeCluster, run: Run, *, warm: bool, follows: bool
):
    cluster.put("other", {"phase": phase}, warm=warm)
    done = await run(SHOP_DATA, *TO_B, "--no-warm", "--yes")

    assert (done.exit_code, cluster.bodies) == (0 if follows else 1, [])
    assert ("leave --no-warm out to follow it" in done.stderr) is not follows


@pytest.mark.parametrize("option", ["--scale-down", "--restart"])
async def test_a_move_that_waits_for_somebody_is_not_taken_for_one_that_stops_pods(
    option: str, cluster: FakeCluster, run: Run
):
    cluster.put("other", {"phase": "Held"})
    done = await run(SHOP_DATA, *TO_B, option, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert "waits until its pods are stopped by somebody" in done.stderr
    assert f"leave {option} out to follow it" in done.stderr


async def test_who_scales_down_and_who_waits_name_two_moves(cluster: FakeCluster):
    to = MoveTarget(zone="us-east-1b")
    waits, scales = Wish(NAMESPACE, "data", to), Wish(NAMESPACE, "data", to, scale_down=True)
    made = wish_rules.body(waits, "mine")

    restarts = Wish(NAMESPACE, "data", to, restart=True)
    weakly = Wish(NAMESPACE, "data", to, restart=True, without_hold=True)
    cold = Wish(NAMESPACE, "data", to, no_warm=True)
    all_of_them = (waits, scales, restarts, weakly, cold)

    assert len({wish_rules.name_of(each, "u", ()) for each in all_of_them}) == 5
    assert wish_rules.is_made_of(msgspec.convert(made, VolumeMove), made)
    for other in (scales, cold):
        assert not wish_rules.is_made_of(
            msgspec.convert(made, VolumeMove), wish_rules.body(other, "mine")
        )
