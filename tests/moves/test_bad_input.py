"""What ``kubectl ebs move`` cannot do: one sentence, and nothing is made."""

from __future__ import annotations

import pytest

from tests.moves.conftest import Run
from tests.moves.fake_cluster import (
    SHOP_DATA,
    TO_B,
    FakeCluster,
    Fault,
)


async def test_a_claim_that_is_not_there(cluster: FakeCluster, run: Run):
    cluster.claim = None
    done = await run("pvc", "typo", "-n", "shop", *TO_B, "--yes")

    assert (done.exit_code, done.stderr) == (1, "Error: there is no pvc shop/typo\n")
    assert cluster.bodies == []


async def test_a_cluster_without_the_kind_is_told_what_to_install(cluster: FakeCluster, run: Run):
    cluster.is_installed = False
    for words in ((SHOP_DATA, *TO_B, "--yes"), ("--list",), ("--resume", "x"), ("--abort", "x")):
        done = await run(*words)

        assert (done.exit_code, cluster.bodies) == (1, [])
        assert "install the component manifests/volume-moves" in done.stderr


@pytest.mark.parametrize("verb", ["create", "get", "delete"])
async def test_a_right_that_is_missing_is_named_before_anything_is_made(
    verb: str, cluster: FakeCluster, run: Run
):
    cluster.denied = {verb}
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert done.stderr == (
        f'Error: you need the verb "{verb}" on volumemoves in namespace shop: have somebody give '
        "you the ClusterRole ebs-provisioner-volume-mover there\n"
    )


async def test_a_refused_request_names_the_right_too(cluster: FakeCluster, run: Run):
    message = 'volumemoves is forbidden: User "eve" cannot list resource "volumemoves"'
    cluster.faults = [Fault("GET", "volumemoves", 403, message=message)]
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, cluster.bodies) == (1, [])
    assert 'you need the verb "list" on volumemoves in namespace shop' in done.stderr


async def test_what_admission_forbids_is_told_in_its_words(cluster: FakeCluster, run: Run):
    cluster.faults = [Fault("POST", "volumemoves", 403, message="policy x: no moves on Friday")]
    done = await run(SHOP_DATA, *TO_B, "--yes")

    assert (done.exit_code, cluster.moves) == (1, {})
    assert "no moves on Friday" in done.stderr


async def test_reviews_of_access_that_fail_stop_nobody(cluster: FakeCluster, run: Run):
    cluster.faults = [Fault("POST", "selfsubjectaccessreviews", 500, times=3)]

    assert (await run(SHOP_DATA, *TO_B, "--yes")).exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to-zone", "b"), "name the claim that is to move"),
        ((SHOP_DATA,), "say what is to change: --to-zone"),
        ((SHOP_DATA, "--to-zone", ""), "--to-zone is empty"),
        ((SHOP_DATA, "--size", "many"), "'many' is not a quantity"),
        ((SHOP_DATA, "--size", "0"), "--size 0 is nothing"),
        ((SHOP_DATA, *TO_B, "--keep-source", "7d"), "--keep-source '7d' is not a number of hours"),
        ((SHOP_DATA, *TO_B, "--yes", "--dry-run"), "--dry-run changes nothing"),
        ((SHOP_DATA, "--list"), "--list stands alone: leave pvc/shop/data out"),
        (("--resume", "a", "--abort", "a"), "--resume and --abort exclude each other"),
        (("--abort", "a", *TO_B), "--abort takes the name of a VolumeMove alone"),
        (("--resume", "a", "--yes"), "leave --yes out"),
        (("--resume", "a", "--scale-down"), "leave --scale-down out"),
        (("--resume", "a", "--restart"), "leave --restart out"),
        ((SHOP_DATA, *TO_B, "--restart", "--scale-down"), "exclude each other"),
        (("--resume", "a", "--no-warm"), "leave --no-warm out"),
        (("--abort", "a", "--no-warm"), "--no-warm says nothing with --abort"),
        ((SHOP_DATA, "--no-warm"), "say what is to change: --to-zone"),
        (("--resume", "a", "--check"), "leave --check out"),
        (("--abort", "a", "--check"), "--check says nothing with --abort"),
        ((SHOP_DATA, *TO_B, "-o", "json"), "-o json is for the list"),
        (("deploy/web", *TO_B), "no deploy is moved: name claims, such as pvc/data, or sts/NAME"),
        (("sts/web", "sts/db", *TO_B), "name one StatefulSet"),
        (("sts/web", *TO_B, "--at-once", "2", "--scale-down"), "--at-once says nothing"),
        ((SHOP_DATA, *TO_B, "--at-once", "2"), "--at-once is for a StatefulSet"),
        (("pvc/a", "pvc/a", *TO_B), "claim a is named twice"),
        (("pvc/shop/a", "pvc/lab/b", *TO_B), "of one namespace"),
        (("node", "a", *TO_B), "this command is for claims, not for a node"),
        (("a/b/c", *TO_B), "'a/b' cannot be the name"),
        (("--resume", ""), "'' cannot be the name"),
        ((SHOP_DATA, "-n", "lab", *TO_B), "is in namespace shop, but -n says lab"),
    ],
)
async def test_options_that_do_not_go_together_are_one_sentence(
    words: tuple[str, ...], says: str, cluster: FakeCluster, run: Run
):
    done = await run(*words, says="y\n")

    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert says in sentence
    assert (done.exit_code, cluster.log) == (2, [])
