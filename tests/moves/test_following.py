"""A move that is followed, left and followed again, and one that is aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from provisioner.inspect.command_line import KubeTarget
from provisioner.kube.impersonation_rules import Impersonation
from provisioner.moves import command, follow
from provisioner.moves.subject_rules import Subject
from tests.moves.conftest import Run
from tests.moves.fake_cluster import (
    AFTER,
    BEFORE,
    NAMESPACE,
    PLANNED,
    FakeCluster,
    Fault,
    Json,
)


async def test_whoever_leaves_is_told_how_to_come_back(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
):
    cluster.way = [PLANNED, {"phase": "Held"}]
    cluster.put("mine")
    other = Impersonation("eve", groups=("dev", "on call"))
    target = KubeTarget(cluster.target.kubeconfig, "test", "shop", impersonate=other)
    task = asyncio.create_task(command._resume(target, Subject(NAMESPACE, ("mine",))))
    while len(cluster.asked("GET")) < 4:  # noqa: ASYNC110 -- the server has no event for it
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert capsys.readouterr().err == (
        "VolumeMove shop/mine goes on. To follow it: "
        "kubectl ebs move --context test -n shop --resume mine "
        "--as eve --as-group dev --as-group 'on call'\n"
    )
    assert cluster.bodies == []


async def test_resume_follows_to_the_end(cluster: FakeCluster, run: Run):
    cluster.put("mine")
    done = await run("--resume", "shop/mine")

    assert done.exit_code == 0
    assert "[4/6] Swapping" in done.stdout


_SUMMARY = "/api/v1/nodes/node-a/proxy/stats/summary"


def measured(gib: Mapping[str, float]) -> Json:
    """What a kubelet tells of the pod that copies files, by the end of its claims' names."""
    size = {"availableBytes": 2**30, "capacityBytes": 20 * 2**30}
    volumes = [
        size
        | {"usedBytes": int(used * 2**30)}
        | {"pvcRef": {"name": f"move-move-1-{end}", "namespace": NAMESPACE}}
        for end, used in gib.items()
    ]
    return {"pods": [{"volume": volumes}]}


@pytest.mark.parametrize(
    ("gib", "told"),
    [
        (
            {"from": 4.0, "to": 1.0},
            "Copying: a pod copies the files to the new volume 25 % of 4.0Gi",
        ),
        (
            {"from": 4.0, "to": 4.5},
            "Copying: a pod copies the files to the new volume 99 % of 4.0Gi",
        ),
        ({}, "Copying: a pod copies the files to the new volume\n"),
    ],
    ids=["a quarter", "it compares them", "no node tells"],
)
async def test_of_files_that_are_copied_it_is_told_how_many_bytes_are_there(
    gib: Mapping[str, float], told: str, cluster: FakeCluster, run: Run
):
    copies(cluster, gib)
    done = await run("--resume", "shop/mine")

    assert told in done.stdout


def copies(cluster: FakeCluster, gib: Mapping[str, float]) -> None:
    """A move whose pod copies files for some looks, and its node."""
    cluster.way = [PLANNED, *[{"phase": "Copying"}] * 6, {"phase": "Done"}]
    cluster.put("mine")
    pod = {"metadata": {"name": "move-move-1"}, "spec": {"nodeName": "node-a"}}
    cluster.others[f"/api/v1/namespaces/{NAMESPACE}/pods/move-move-1"] = pod
    cluster.others[_SUMMARY] = measured(gib)


async def test_a_node_that_answers_no_more_leaves_what_was_told_before(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(follow, "_MEASURE_AGAIN_S", 0.0)
    copies(cluster, {"from": 4.0, "to": 1.0})

    def forget(_: str) -> None:
        if len(cluster.asked("GET", "pods")) > 1:
            cluster.others.pop(_SUMMARY, None)

    cluster.meanwhile = forget
    done = await run("--resume", "shop/mine")

    lines = [line for line in done.stdout.splitlines() if line.startswith("Copying")]
    assert [line.rpartition("volume")[2] for line in lines] == [" 25 % of 4.0Gi"]


async def test_who_may_not_ask_nodes_does_so_once(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(follow, "_MEASURE_AGAIN_S", 0.0)
    copies(cluster, {})
    cluster.faults = [Fault("GET", "pods", 403, times=99)]
    done = await run("--resume", "shop/mine")

    assert done.exit_code == 0, done.output
    assert len(cluster.asked("GET", "pods")) == 1


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
    here = f"--kubeconfig {cluster.target.kubeconfig}"
    again = f"kubectl ebs move {here} -n shop --resume mine"
    assert f"{again}; once it is Done, --abort goes back" in done.stderr


async def test_whoever_aborts_while_a_move_waits_for_a_pod_can_go_back_at_once(
    cluster: FakeCluster, run: Run
):
    cluster.put("to-b", {"phase": "Cleaning"}, consumers={"policy": "Restart"})
    done = await run("--abort", "shop/to-b")

    assert done.exit_code == 1
    assert "waits for no pod any more: give the same command once it is Done" in done.stderr
    assert cluster.moves["to-b"]["spec"]["abort"] is True


@pytest.mark.parametrize(
    ("phase", "says", "code"),
    [
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
