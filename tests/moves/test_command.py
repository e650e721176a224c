"""``kubectl ebs move`` against an API server: what it asks, makes, shows and leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from provisioner.inspect.command_line import KubeTarget
from provisioner.model.volume_move import MoveTarget, VolumeMove
from provisioner.moves import command, plan, wish_rules
from provisioner.moves.wish_rules import Wish
from tests.moves.conftest import Run
from tests.moves.fake_cluster import (
    AFTER,
    BEFORE,
    CLAIM_UID,
    NAMESPACE,
    PLANNED,
    FakeCluster,
    Fault,
)

CLAIM = "pvc/shop/data"
TO_B = ("--to-zone", "us-east-1b")
REFUSED = {"phase": "Refused", "message": "no node with the driver is in zone us-east-1b"}


def real(cluster: FakeCluster) -> list[dict[str, Any]]:
    """The moves that were made to be carried out."""
    return [each for each in cluster.bodies if "claimName" in each["spec"] and not dry(each)]


def dry(body: dict[str, Any]) -> bool:
    return bool(body["spec"].get("dryRun"))


async def test_the_plan_is_shown_then_asked_then_the_move_is_followed_to_its_end(
    cluster: FakeCluster, run: Run
):
    done = await run(CLAIM, *TO_B, "--keep-source", "24h", says="y\n")

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
    done = await run(CLAIM, *TO_B, says="n\n")

    assert (done.exit_code, cluster.moves, real(cluster)) == (1, {}, [])
    assert "nothing was changed" in done.stderr


async def test_while_somebody_thinks_nothing_is_under_way(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
):
    seen: list[object] = []

    def confirm(_: Wish) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # else Ctrl-C would wait for the answer
        seen.append(dict(cluster.moves))

    monkeypatch.setattr(command, "_confirm", confirm)
    await run(CLAIM, *TO_B, says="y\n")

    assert seen == [{}]


async def test_where_nobody_can_be_asked_nothing_is_asked_of_the_cluster(
    cluster: FakeCluster, run: Run
):
    done = await run(CLAIM, *TO_B)

    assert (done.exit_code, cluster.log) == (1, [])
    assert done.stderr == (
        "Error: nobody can be asked whether to move claim shop/data: give --yes, or --dry-run for "
        "the plan alone\n"
    )


async def test_yes_asks_nobody(cluster: FakeCluster, run: Run):
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, len(real(cluster))) == (0, 1)
    assert "[y/N]" not in done.output


async def test_a_dry_run_leaves_nothing_behind(cluster: FakeCluster, run: Run):
    done = await run("data", "-n", "shop", *TO_B, "--dry-run")

    assert (done.exit_code, cluster.moves, real(cluster)) == (0, {}, [])
    assert "PersistentVolume pv-1 keeps vol-1 for 168h, then it is deleted" in done.stdout


async def test_a_refused_plan_is_one_sentence_and_no_move(cluster: FakeCluster, run: Run):
    cluster.plan = REFUSED
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, done.stdout, cluster.moves) == (1, "", {})
    assert done.stderr == (
        "Error: claim shop/data cannot be moved so: no node with the driver is in zone us-east-1b\n"
    )


async def test_a_dry_run_belongs_to_its_claim_so_that_a_killed_command_leaves_none(
    cluster: FakeCluster, run: Run
):
    await run(CLAIM, *TO_B, "--dry-run")

    (body,) = cluster.bodies
    owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": CLAIM_UID}
    assert body["metadata"]["ownerReferences"] == [owner]


async def test_a_command_that_is_stopped_while_it_waits_for_the_plan_deletes_the_dry_run(
    cluster: FakeCluster,
):
    cluster.plan = {}
    wish = Wish(NAMESPACE, "data", MoveTarget(zone="us-east-1b"))
    task = asyncio.create_task(command._prepare(cluster.target, wish, dry_run=True))
    while not any(cluster.asked("GET")):  # noqa: ASYNC110 -- the server has no event for it
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert cluster.moves == {}
    assert len(cluster.asked("DELETE")) == 1


async def test_without_a_controller_that_moves_it_gives_up_and_says_what_to_look_at(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plan, "PATIENCE_S", 0.01)
    cluster.plan = {}
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, cluster.moves) == (1, {})
    assert "nobody has made a plan for claim shop/data" in done.stderr
    assert "--volume-moves" in done.stderr


async def test_a_dry_run_that_somebody_deletes_is_told(cluster: FakeCluster, run: Run):
    cluster.plan = {}
    cluster.meanwhile = lambda name: cluster.moves.pop(name, None)  # type: ignore[assignment]
    done = await run(CLAIM, *TO_B, "--yes")

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
    done = await run(CLAIM, *TO_B, "--scale-down", "--yes")

    assert done.exit_code == 0, done.output
    assert all(each["spec"]["consumers"] == {"policy": "ScaleDown"} for each in cluster.bodies)
    assert f"  - {stops}" in done.stdout
    assert cluster.asked("GET", "pods") == []
    told = done.stdout.splitlines()
    assert told.count("StatefulSet web is scaled from 3 to 1") == 1
    assert told[-2].startswith("StatefulSet web is scaled back to 3")
    assert "start its pods again" not in told[-1]


async def test_with_form_the_move_asks_for_csi(cluster: FakeCluster, run: Run):
    done = await run(CLAIM, "--form", "csi", "--yes")

    assert done.exit_code == 0, done.output
    assert [each["spec"]["to"] for each in cluster.bodies] == [{"form": "csi"}] * 2


async def test_with_restart_the_move_evicts_the_pods_and_nobody_is_told_to_start_them(
    cluster: FakeCluster, run: Run
):
    stops = "StatefulSet web: pod web-1 is evicted, and the one in its place starts after the swap"
    plan = PLANNED["plan"] | {"pods": ["web-1"], "stops": [stops]}
    cluster.plan = PLANNED | {"plan": plan}
    cluster.way[0] = cluster.plan
    done = await run(CLAIM, *TO_B, "--restart", "--without-hold", "--yes")

    assert done.exit_code == 0, done.output
    asked = {"policy": "Restart", "withoutHold": True}
    assert all(each["spec"]["consumers"] == asked for each in cluster.bodies)
    assert " ".join(stops.split()) in " ".join(done.stdout.split())
    assert cluster.asked("GET", "pods") == []
    assert "start its pods again" not in done.stdout


@pytest.mark.parametrize(
    "words", [("--form", "csi"), (*TO_B, "--scale-down"), (*TO_B, "--restart")]
)
async def test_an_option_that_an_older_crd_does_not_know_is_refused_before_anything_is_made(
    words: tuple[str, ...], cluster: FakeCluster, run: Run
):
    cluster.knows = {"claimName", "to", "keepSource", "dryRun", "abort"}
    cluster.knows_of_to = {"zone"}
    done = await run(CLAIM, *words, "--yes")

    assert (done.exit_code, cluster.moves) == (1, {})
    assert "the CRD of VolumeMoves in this cluster is older" in done.stderr
    assert "unknown field" in done.stderr
    assert (await run(CLAIM, *TO_B, "--yes")).exit_code == 0


@pytest.mark.parametrize("option", ["--scale-down", "--restart"])
async def test_a_move_that_waits_for_somebody_is_not_taken_for_one_that_stops_pods(
    option: str, cluster: FakeCluster, run: Run
):
    cluster.put("other", {"phase": "Held"})
    done = await run(CLAIM, *TO_B, option, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert "waits until its pods are stopped by somebody" in done.stderr
    assert f"leave {option} out to follow it" in done.stderr


async def test_who_scales_down_and_who_waits_name_two_moves(cluster: FakeCluster):
    to = MoveTarget(zone="us-east-1b")
    waits, scales = Wish(NAMESPACE, "data", to), Wish(NAMESPACE, "data", to, scale_down=True)
    made = wish_rules.body(waits, "mine")

    restarts = Wish(NAMESPACE, "data", to, restart=True)
    weakly = Wish(NAMESPACE, "data", to, restart=True, without_hold=True)
    all_of_them = (waits, scales, restarts, weakly)

    assert len({wish_rules.name_of(each, "u", ()) for each in all_of_them}) == 4
    assert wish_rules.is_made_of(msgspec.convert(made, VolumeMove), made)
    assert not wish_rules.is_made_of(
        msgspec.convert(made, VolumeMove), wish_rules.body(scales, "mine")
    )


# -- bad input: one sentence, and nothing is made


async def test_a_claim_that_is_not_there(cluster: FakeCluster, run: Run):
    cluster.claim = None
    done = await run("pvc", "typo", "-n", "shop", *TO_B, "--yes")

    assert (done.exit_code, done.stderr) == (1, "Error: there is no pvc shop/typo\n")
    assert cluster.bodies == []


async def test_a_cluster_without_the_kind_is_told_what_to_install(cluster: FakeCluster, run: Run):
    cluster.is_installed = False
    for words in ((CLAIM, *TO_B, "--yes"), ("--list",), ("--resume", "x"), ("--abort", "x")):
        done = await run(*words)

        assert (done.exit_code, cluster.bodies) == (1, [])
        assert "install the component manifests/volume-moves" in done.stderr


@pytest.mark.parametrize("verb", ["create", "get", "delete"])
async def test_a_right_that_is_missing_is_named_before_anything_is_made(
    verb: str, cluster: FakeCluster, run: Run
):
    cluster.denied = {verb}
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert done.stderr == (
        f'Error: you need the verb "{verb}" on volumemoves in namespace shop: have somebody give '
        "you the ClusterRole ebs-provisioner-volume-mover there\n"
    )


async def test_a_refused_request_names_the_right_too(cluster: FakeCluster, run: Run):
    message = 'volumemoves is forbidden: User "eve" cannot list resource "volumemoves"'
    cluster.faults = [Fault("GET", "volumemoves", 403, message=message)]
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert 'you need the verb "list" on volumemoves in namespace shop' in done.stderr


async def test_what_admission_forbids_is_told_in_its_words(cluster: FakeCluster, run: Run):
    cluster.faults = [Fault("POST", "volumemoves", 403, message="policy x: no moves on Friday")]
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, cluster.moves) == (1, {})
    assert "no moves on Friday" in done.stderr


async def test_reviews_of_access_that_fail_stop_nobody(cluster: FakeCluster, run: Run):
    cluster.faults = [Fault("POST", "selfsubjectaccessreviews", 500, times=3)]

    assert (await run(CLAIM, *TO_B, "--yes")).exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to-zone", "b"), "name the claim that is to move"),
        ((CLAIM,), "say what is to change: --to-zone"),
        ((CLAIM, "--to-zone", ""), "--to-zone is empty"),
        ((CLAIM, "--size", "many"), "'many' is not a quantity"),
        ((CLAIM, "--size", "0"), "--size 0 is nothing"),
        ((CLAIM, *TO_B, "--keep-source", "7d"), "--keep-source '7d' is not a number of hours"),
        ((CLAIM, *TO_B, "--yes", "--dry-run"), "--dry-run changes nothing"),
        ((CLAIM, "--list"), "--list stands alone: leave pvc/shop/data out"),
        (("--resume", "a", "--abort", "a"), "--resume and --abort exclude each other"),
        (("--abort", "a", *TO_B), "--abort takes the name of a VolumeMove alone"),
        (("--resume", "a", "--yes"), "leave --yes out"),
        (("--resume", "a", "--scale-down"), "leave --scale-down out"),
        (("--abort", "a", "--restart"), "leave --restart out"),
        ((CLAIM, *TO_B, "--restart", "--scale-down"), "exclude each other"),
        ((CLAIM, *TO_B, "--scale-down", "--without-hold"), "--without-hold is for --restart"),
        ((CLAIM, *TO_B, "-o", "json"), "-o json is for the list"),
        (("sts/web", *TO_B), "claims are moved one by one, no sts"),
        (("node", "a", *TO_B), "this command is for claims, not for a node"),
        (("a/b/c", *TO_B), "'a/b' cannot be the name"),
        (("--resume", ""), "'' cannot be the name"),
        ((CLAIM, "-n", "lab", *TO_B), "is in namespace shop, but -n says lab"),
    ],
)
async def test_options_that_do_not_go_together_are_one_sentence(
    words: tuple[str, ...], says: str, cluster: FakeCluster, run: Run
):
    done = await run(*words, says="y\n")

    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert says in sentence
    assert (done.exit_code, cluster.log) == (2, [])


# -- run twice, replies lost, killed


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_lost_reply_makes_no_second_move(when: str, cluster: FakeCluster, run: Run):
    cluster.faults = [Fault("POST", "volumemoves", when, times=2)]
    done = await run(CLAIM, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    assert len(cluster.moves) == 1
    assert {each["metadata"]["name"] for each in real(cluster)} == {*cluster.moves}


async def test_whether_a_move_was_made_is_not_guessed(cluster: FakeCluster, run: Run):
    planned = await run(CLAIM, *TO_B, "--dry-run")
    assert planned.exit_code == 0
    cluster.plan = PLANNED
    wish = Wish(NAMESPACE, "data", MoveTarget(zone="us-east-1b"))
    prepared = await command._prepare(cluster.target, wish, dry_run=False)
    assert prepared is not None
    cluster.faults = [Fault("POST", "volumemoves", BEFORE, times=9)]

    with pytest.raises(Exception, match="it may be there: look with kubectl ebs move --list"):
        await command._carry_out(cluster.target, wish, prepared)


async def test_the_same_command_finds_the_move_that_it_began(cluster: FakeCluster, run: Run):
    there = cluster.put("mine", {"phase": "Creating"} | {k: PLANNED[k] for k in ("plan", "source")})
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (0, [])
    assert "VolumeMove shop/mine is moving this claim already" in done.stdout
    assert cluster.moves == {"mine": there}


async def test_a_claim_that_is_being_exchanged_need_not_be_there(cluster: FakeCluster, run: Run):
    cluster.claim = None
    cluster.put("mine", {"phase": "Swapping"})

    assert (await run(CLAIM, *TO_B, "--yes")).exit_code == 0
    assert cluster.bodies == []


async def test_two_who_run_it_at_once_share_one_move(cluster: FakeCluster):
    wish = Wish(NAMESPACE, "data", MoveTarget(zone="us-east-1b"))

    async def one() -> int:
        prepared = await command._prepare(cluster.target, wish, dry_run=False)
        assert prepared is not None
        await both_are_there.wait()
        return await command._carry_out(cluster.target, wish, prepared)

    both_are_there = asyncio.Barrier(2)
    assert list(await asyncio.gather(one(), one())) == [0, 0]
    assert len(cluster.moves) == 1


async def test_another_move_of_the_claim_is_not_followed_by_mistake(cluster: FakeCluster, run: Run):
    cluster.put("other", {"phase": "Held"}, to={"zone": "us-east-1c"})
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert "to something else (zone us-east-1c)" in done.stderr
    assert "--abort other" in done.stderr


async def test_a_command_that_is_run_again_after_the_end_does_nothing(
    cluster: FakeCluster, run: Run
):
    made = cluster.put("mine", {"phase": "Done"})
    assert cluster.claim is not None
    cluster.claim["spec"]["volumeName"] = f"pvc-{made['metadata']['uid']}"
    done = await run(CLAIM, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (0, [])
    assert "VolumeMove shop/mine has done this" in done.stdout


async def test_after_a_move_that_was_aborted_the_next_one_has_another_name(
    cluster: FakeCluster, run: Run
):
    await run(CLAIM, *TO_B, "--yes")
    (first,) = cluster.moves
    cluster.moves[first]["status"] = {"phase": "Aborted"}
    done = await run(CLAIM, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    assert [*cluster.moves] == [first, f"{first}-2"]


async def test_a_plan_that_has_changed_since_it_was_agreed_to_is_aborted(
    cluster: FakeCluster, run: Run
):
    source = {**PLANNED["source"], "volumeID": "vol-9"}
    cluster.way[0] = PLANNED | {"source": source}
    done = await run(CLAIM, *TO_B, "--yes")

    assert done.exit_code == 1
    assert "has changed since you agreed to the plan" in done.stdout
    assert cluster.bodies[-1]["spec"] == {"abort": True}
    assert "is aborted: claim shop/data has its old volume" in done.stdout


async def test_an_owner_that_came_since_the_plan_was_agreed_to_aborts_the_move(
    cluster: FakeCluster, run: Run
):
    stops = ["Deployment late is scaled from 1 to 0, and back after the swap"]
    cluster.way[0] = PLANNED | {"plan": {**PLANNED["plan"], "stops": stops}}
    done = await run(CLAIM, *TO_B, "--yes")

    assert done.exit_code == 1
    assert "or an owner of its pods has changed since you agreed to the plan" in done.stdout
    assert cluster.bodies[-1]["spec"] == {"abort": True}


# -- followed, left, and followed again


async def test_whoever_leaves_is_told_how_to_come_back(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
):
    cluster.way = [PLANNED, {"phase": "Held"}]
    cluster.put("mine")
    target = KubeTarget(cluster.target.kubeconfig, "test", "shop")
    task = asyncio.create_task(command._resume(target, NAMESPACE, "mine"))
    while len(cluster.asked("GET")) < 4:  # noqa: ASYNC110 -- the server has no event for it
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert capsys.readouterr().err == (
        "VolumeMove shop/mine goes on. To follow it: "
        "kubectl ebs move -n shop --resume mine --context test\n"
    )
    assert cluster.bodies == []


async def test_resume_follows_to_the_end(cluster: FakeCluster, run: Run):
    cluster.put("mine")
    done = await run("--resume", "shop/mine")

    assert done.exit_code == 0
    assert "[4/6] Swapping" in done.stdout


async def test_a_move_that_is_not_there_cannot_be_resumed(cluster: FakeCluster, run: Run):
    for option in ("--resume", "--abort"):
        done = await run(option, "typo", "-n", "shop")
        assert (done.exit_code, "there is no VolumeMove shop/typo" in done.stderr) == (1, True)


def after_a_look(cluster: FakeCluster, fault: Fault) -> None:
    """Have requests fail once the move has been looked at twice."""
    looks = iter(range(99))

    def begin(_: str) -> None:
        if next(looks) == 1:
            cluster.faults = [fault]

    cluster.meanwhile = begin


async def test_an_api_server_that_is_away_for_a_while_is_told_once(cluster: FakeCluster, run: Run):
    cluster.put("mine")
    after_a_look(cluster, Fault("GET", "volumemoves", 503, times=3))
    done = await run("--resume", "shop/mine")

    assert done.exit_code == 0, done.output
    assert done.stdout.count("the move goes on, and so does the look at it") == 1


async def test_a_right_that_is_taken_away_ends_the_look_and_not_the_move(
    cluster: FakeCluster, run: Run
):
    message = 'User "eve" cannot get resource "volumemoves"'
    cluster.put("mine")
    after_a_look(cluster, Fault("GET", "volumemoves", 403, times=99, message=message))
    done = await run("--resume", "shop/mine")

    assert done.exit_code == 1
    assert "VolumeMove shop/mine goes on. To follow it: kubectl ebs move" in done.stderr
    assert 'you need the verb "get"' in done.stderr


@pytest.mark.parametrize(
    ("bound_to", "says", "code"),
    [
        ("pv-1", "claim shop/data has its old volume", 1),
        ("pvc-move-1", "claim shop/data has the new volume", 0),
        ("pv-7", "the PersistentVolume of claim shop/data is pv-7 now", 1),
        (None, "claim shop/data is not there", 1),
    ],
)
async def test_of_a_move_that_somebody_deletes_it_is_said_what_the_claim_has(
    bound_to: str | None, says: str, code: int, cluster: FakeCluster, run: Run
):
    made = cluster.put("mine", {"phase": "Held", "source": PLANNED["source"]})
    assert made["metadata"]["uid"] == "move-1"
    looks = iter(range(9))

    def delete(name: str) -> None:
        if next(looks) == 2:
            cluster.moves.pop(name)
            assert cluster.claim is not None
            cluster.claim["spec"]["volumeName"] = bound_to
            cluster.claim = cluster.claim if bound_to else None

    cluster.meanwhile = delete
    done = await run("--resume", "shop/mine")

    assert (done.exit_code, says in done.stdout) == (code, True), done.output


async def test_a_move_of_the_same_name_that_somebody_makes_is_not_taken_for_ours(
    cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": "Held", "source": PLANNED["source"]})
    looks = iter(range(99))

    def replace(name: str) -> None:
        if next(looks) == 2:
            cluster.put(name, {"phase": "Done"})

    cluster.meanwhile = replace
    done = await run("--resume", "shop/mine")

    assert (done.exit_code, "was deleted by somebody" in done.stdout) == (1, True)


# -- aborted


async def test_abort_follows_until_everything_is_undone(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Creating"})
    done = await run("--abort", "shop/mine")

    assert done.exit_code == 0, done.output
    assert cluster.bodies == [{"metadata": {"uid": "move-1"}, "spec": {"abort": True}}]
    assert "VolumeMove shop/mine is aborted: claim shop/data has its old volume" in done.stdout


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_an_abort_whose_reply_is_lost_is_sent_again(
    when: str, cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": "Held"})
    cluster.faults = [Fault("PATCH", "volumemoves", when)]

    assert (await run("--abort", "shop/mine")).exit_code == 0
    assert len(cluster.asked("PATCH")) == 2


async def test_what_cannot_be_aborted_any_more_is_not_asked(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Swapping"})
    done = await run("--abort", "shop/mine")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert "is in the phase Swapping and cannot be aborted any more" in done.stderr
    assert "kubectl ebs move -n shop --resume mine" in done.stderr


@pytest.mark.parametrize(
    ("phase", "says", "code"),
    [
        ("Done", "it was too late to abort: claim shop/data has volume", 1),
        ("Aborted", "is aborted: claim shop/data has its old volume", 0),
        ("Refused", "is refused, and nothing was touched", 1),
    ],
)
async def test_a_move_that_has_ended_is_not_aborted(
    phase: str, says: str, code: int, cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": phase})
    done = await run("--abort", "shop/mine")

    assert (done.exit_code, cluster.bodies) == (code, [])
    assert says in done.stdout


# -- listed


async def test_without_arguments_the_moves_are_listed_those_under_way_first(
    cluster: FakeCluster, run: Run
):
    cluster.put("a", {"phase": "Done", "message": "old"})
    cluster.put("b", {"phase": "Snapshotting", "progressPercent": 7})
    cluster.put("c", {"phase": "Planned"}, dryRun=True)
    done = await run()

    heading, *rows = done.stdout.splitlines()
    assert heading.split() == [*["NAMESPACE", "NAME", "CLAIM", "TO", "PHASE", "AGE", "MESSAGE"]]
    assert [row.split()[1] for row in rows] == ["b", "c", "a"]
    assert "Snapshotting 7 %" in rows[0]
    assert "Planned (dry run)" in rows[1]
    assert (await run("--list")).stdout == done.stdout


async def test_the_list_is_there_for_scripts(cluster: FakeCluster, run: Run):
    assert (await run("--list")).stdout == "No VolumeMoves found.\n"
    cluster.put("a", {"phase": "Held"})

    (listed,) = json.loads((await run("-o", "json")).stdout)
    assert listed == {
        "namespace": "shop",
        "name": "a",
        "claim": "data",
        "to": {"zone": "us-east-1b"},
        "dryRun": False,
        "phase": "Held",
        "progressPercent": 0,
        "message": "",
    }


async def test_whoever_may_only_see_one_namespace_sees_its_moves(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
):
    path = Path(cluster.target.kubeconfig or "")
    config = json.loads(path.read_text())
    config["contexts"][0]["context"]["namespace"] = "shop"
    path.write_text(json.dumps(config))
    cluster.put("mine", {"phase": "Held"})
    message = 'User "eve" cannot list resource "volumemoves"'
    cluster.faults = [Fault("GET", "volumemoves", 403, message=message)]

    assert await command._list(KubeTarget(str(path), None, ""), as_json=False) == 0
    shown = capsys.readouterr()
    assert "mine" in shown.out
    assert 'only namespace shop is shown: you need the verb "list" on volumemoves' in shown.err
