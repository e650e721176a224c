"""``kubectl ebs move pvc/A pvc/B``: claims that go together."""

from __future__ import annotations

import pytest

from tests.moves.conftest import Run
from tests.moves.fake_cluster import AFTER, PLANNED, TO_B, FakeCluster, Fault, dry, real

BOTH = ("pvc/shop/data", "pvc/shop/logs")


@pytest.fixture(autouse=True)
def logs(cluster: FakeCluster) -> None:
    cluster.put_claim("logs")


async def test_claims_that_go_together_are_planned_asked_and_moved_at_once(
    cluster: FakeCluster, run: Run
):
    done = await run(*BOTH, *TO_B, says="y\n")

    assert done.exit_code == 0, done.output
    plans, made = [[e for e in cluster.bodies if dry(e) is is_dry] for is_dry in (True, False)]
    for bodies in (plans, made):
        with_ = {each["spec"]["claimName"]: each["spec"]["movedWith"] for each in bodies}
        assert with_ == {"data": ["logs"], "logs": ["data"]}
    assert "Move claims shop/data and shop/logs? [y/N]" in done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["logs", "vol-logs", "20", "GiB", "zone", "us-east-1a", "zone", "us-east-1b"] in rows
    assert done.stdout.count("the claim gets another UID") == 1
    assert "data: claim shop/data has volume vol-2" in done.stdout
    assert "logs: claim shop/logs has volume vol-2" in done.stdout


async def test_if_one_cannot_be_moved_none_is(cluster: FakeCluster, run: Run):
    cluster.plans["logs"] = {"phase": "Refused", "message": "quota"}
    done = await run(*BOTH, *TO_B, "--yes")

    assert (done.exit_code, real(cluster), cluster.moves) == (1, [], {})
    assert done.stderr == "Error: claim shop/logs cannot be moved so: quota\n"


async def test_a_claim_that_is_as_asked_is_passed_over(cluster: FakeCluster, run: Run):
    as_asked = {"phase": "Refused", "message": "is already as the move asks", "asAsked": True}
    cluster.plans["logs"] = as_asked
    done = await run(*BOTH, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    assert [each["spec"]["claimName"] for each in real(cluster)] == ["data"]
    assert "movedWith" not in real(cluster)[0]["spec"]
    assert "claim shop/logs is passed over: is already as the move asks" in done.stdout
    plans = [each for each in cluster.bodies if dry(each) and each["spec"]["claimName"] == "data"]
    # What is agreed to is what is done: the pods of the other one do not stop.
    assert [each["spec"].get("movedWith") for each in plans] == [["logs"], None]

    cluster.plan = as_asked
    again = await run("pvc/shop/data", "pvc/shop/logs", *TO_B, "--yes")
    assert again.exit_code == 0, again.output


async def test_what_began_alone_is_followed_and_the_other_one_joins_it(
    cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": "Planned"}, movedWith=["logs"])
    done = await run(*BOTH, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    (made,) = real(cluster)
    assert (made["spec"]["claimName"], made["spec"]["movedWith"]) == ("logs", ["data"])


async def test_a_move_under_way_that_does_not_go_by_the_other_one_is_not_waited_for(
    cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": "Planned"})
    await run(*BOTH, *TO_B, "--yes")

    (made,) = real(cluster)
    assert "movedWith" not in made["spec"]


async def test_if_one_is_refused_after_all_the_other_one_is_aborted(cluster: FakeCluster, run: Run):
    def refuse(name: str) -> None:
        move = cluster.moves[name]
        if move["spec"]["claimName"] == "logs" and not move["spec"].get("dryRun"):
            move["status"] = {"phase": "Refused", "message": "quota"}
        elif move["status"].get("phase") == "Held":
            cluster.way = [PLANNED, {"phase": "Held"}]  # it waits

    cluster.meanwhile = refuse
    done = await run(*BOTH, *TO_B, "--yes")

    assert done.exit_code == 1
    assert "logs: VolumeMove" in done.stdout
    assert "is aborted: claim shop/data has its old volume" in done.stdout


async def test_if_one_is_not_made_the_other_one_is_aborted(cluster: FakeCluster, run: Run):
    cluster.way = [PLANNED, {"phase": "Held"}]
    cluster.denied_claims = {"logs"}
    done = await run(*BOTH, *TO_B, "--yes")

    assert done.exit_code == 1
    assert "policy: no moves of this claim" in done.stderr
    (left,) = cluster.moves.values()
    assert (left["spec"]["claimName"], left["spec"]["abort"]) == ("data", True)


async def test_a_lost_reply_makes_no_second_move_of_either(cluster: FakeCluster, run: Run):
    cluster.faults = [Fault("POST", "volumemoves", AFTER, times=4)]
    done = await run(*BOTH, *TO_B, "--yes")

    assert done.exit_code == 0, done.output
    assert sorted(each["spec"]["claimName"] for each in cluster.moves.values()) == ["data", "logs"]


async def test_abort_and_resume_of_one_are_of_both(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Creating"}, movedWith=["logs"])
    cluster.put("other", {"phase": "Creating"}, claimName="logs", movedWith=["data"])
    cluster.put("alone", {"phase": "Creating"}, claimName="third")
    done = await run("--abort", "shop/mine")

    assert done.exit_code == 0, done.output
    assert len(cluster.bodies) == 2
    assert "logs: VolumeMove shop/other is aborted" in done.stdout
    assert cluster.moves["alone"]["status"]["phase"] == "Creating"


async def test_of_two_the_one_that_is_late_goes_on_and_is_told(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Swapping"}, movedWith=["logs"])
    cluster.put("other", {"phase": "Creating"}, claimName="logs", movedWith=["data"])
    done = await run("--abort", "shop/mine")

    assert done.exit_code == 0, done.output
    assert "VolumeMove shop/mine is in the phase Swapping and goes on" in done.stderr
    assert cluster.moves["other"]["status"]["phase"] == "Aborted"


async def test_one_that_has_promised_to_swap_is_undone_with_the_first_of_them(
    cluster: FakeCluster, run: Run
):
    cluster.put("mine", {"phase": "Creating"}, movedWith=["logs"])
    ready = {"phase": "Creating", "ready": True}
    cluster.put("other", ready, claimName="logs", movedWith=["data"])
    done = await run("--abort", "shop/other")

    assert done.exit_code == 0, done.output
    assert "goes on" not in done.stderr
    phases = {name: each["status"]["phase"] for name, each in cluster.moves.items()}
    assert phases == {"mine": "Aborted", "other": "Aborted"}


async def test_claims_that_were_moved_together_go_back_together(cluster: FakeCluster, run: Run):
    """Their pods would find no node if one went back alone."""
    done = {"phase": "Done", "phaseSince": "2026-11-01T00:00:00+00:00"}
    cluster.put("mine", done, movedWith=["logs", "third"])
    cluster.put("other", done, claimName="logs", movedWith=["data", "third"])
    cluster.put("alone", done, claimName="third", movedWith=["data", "logs"])
    later = {"phase": "Done", "phaseSince": "2026-11-02T00:00:00+00:00"}
    cluster.put("since", later, claimName="third")
    back = await run("--abort", "shop/mine", "--yes")

    assert back.exit_code == 0, back.output
    asked = {
        e["spec"]["claimName"]: (e["spec"]["to"], e["spec"]["movedWith"]) for e in real(cluster)
    }
    assert asked == {
        "data": ({"source": "mine"}, ["logs"]),
        "logs": ({"source": "other"}, ["data"]),
    }


async def test_if_all_have_promised_or_swapped_it_is_too_late(cluster: FakeCluster, run: Run):
    cluster.put("mine", {"phase": "Swapping"}, movedWith=["logs"])
    ready = {"phase": "Creating", "ready": True}
    cluster.put("other", ready, claimName="logs", movedWith=["data"])
    done = await run("--abort", "shop/other")

    assert done.exit_code == 1
    assert "cannot be aborted any more" in done.stderr
