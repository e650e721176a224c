"""``--abort`` of a move that is done: back to the old volume, by a move of its own."""

from __future__ import annotations

import pytest

from tests.moves.conftest import Run
from tests.moves.fake_cluster import PLANNED, FakeCluster, dry, real

KEPT = {"persistentVolume": "pv-0", "volumeID": "vol-0"}
BACK = PLANNED | {"kept": KEPT}
BACK["plan"] = PLANNED["plan"] | {"notes": ["what was written since is lost"]}


async def test_abort_of_a_move_that_is_done_shows_what_is_lost_asks_and_moves_back(
    cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": "Done"})
    cluster.plan = cluster.way[0] = BACK
    done = await run("--abort", "shop/mine", says="y\n")

    assert done.exit_code == 0, done.output
    dry_run, made = cluster.bodies
    assert (dry(dry_run), dry(made)) == (True, False)
    assert made["spec"] == {"claimName": "data", "to": {"source": "mine"}}
    assert "gets its volume from before VolumeMove mine again; nothing is copied" in done.stdout
    assert "  - what was written since is lost" in done.stdout
    assert "volume      vol-1        vol-0" in done.stdout
    assert "The newer volume:" in done.stdout
    assert "Give claim shop/data its volume from before mine again? [y/N]" in done.stderr


async def test_whoever_does_not_want_to_go_back_has_changed_nothing(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Done"})
    cluster.plan = BACK
    no = await run("--abort", "shop/mine", says="n\n")
    nobody = await run("--abort", "shop/mine")

    assert (no.exit_code, nobody.exit_code) == (1, 1)
    assert [*cluster.moves] == ["mine"]
    assert real(cluster) == []
    assert "give --yes" in nobody.stderr


async def test_going_back_twice_is_one_move(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Done"})
    cluster.plan = cluster.way[0] = BACK
    words = ("--abort", "shop/mine", "--yes", "--scale-down", "--keep-source", "2h")
    first = await run(*words)
    assert cluster.claim is not None
    (made,) = [each for each in cluster.moves.values() if each["metadata"]["name"] != "mine"]
    cluster.claim["spec"]["volumeName"] = f"pvc-{made['metadata']['uid']}"
    again = await run(*words)

    assert (first.exit_code, again.exit_code, len(real(cluster))) == (0, 0, 1)
    assert real(cluster)[0]["spec"] == {
        "claimName": "data",
        "to": {"source": "mine"},
        "keepSource": "2h",
        "consumers": {"policy": "ScaleDown"},
    }
    assert "has done this" in again.stdout


@pytest.mark.parametrize("option", ["--dry-run", "--scale-down", "--without-hold"])
async def test_options_of_going_back_do_not_abort_a_move_that_is_under_way(
    option: str, cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": "Held"})
    done = await run("--abort", "shop/mine", option)

    assert (done.exit_code, cluster.bodies) == (2, [])
    assert f"{option} with --abort is for a move that is done" in done.stderr


async def test_the_plan_of_going_back_can_be_looked_at_alone(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Done"})
    cluster.plan = BACK
    done = await run("--abort", "shop/mine", "--dry-run")

    assert (done.exit_code, [*cluster.moves], real(cluster)) == (0, ["mine"], [])
    assert "  - what was written since is lost" in done.stdout


async def test_going_back_without_a_loss_is_aborted_if_a_node_has_had_the_newer_volume_since(
    cluster: FakeCluster, run: Run
):
    """A pod has started, and has written, while the question stood."""
    cluster.put("mine", {"phase": "Done"})
    cluster.plan = PLANNED | {"kept": KEPT | {"isAll": True}}
    cluster.way[0] = PLANNED | {"kept": KEPT | {"isAll": False}}
    done = await run("--abort", "shop/mine", says="y\n")

    assert done.exit_code == 1
    assert "what it would lose" in done.stdout
    assert cluster.bodies[-1]["spec"] == {"abort": True}
    assert "is aborted: claim shop/data has its old volume" in done.stdout
