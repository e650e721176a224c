"""How many snapshots of moves are pending at once."""

from provisioner.ec2.pending_snapshots import MOST_PENDING, PendingSnapshots
from provisioner.model.ebs_snapshot import EVERY_S

QUOTA = 100  # pending snapshots of an account: AWS general reference, EBS endpoints and quotas


def of_most(most: int) -> tuple[PendingSnapshots, list[str]]:
    woken: list[str] = []
    return PendingSnapshots(woken.append, most=most), woken


def test_some_places_of_the_account_are_left_to_the_snapshots_of_others():
    assert QUOTA * 0.85 <= MOST_PENDING < QUOTA


def test_who_finds_no_place_is_woken_when_one_is_free_in_the_order_of_asking():
    pending, woken = of_most(2)
    for who in "ab":
        assert pending.waits_s(who, 0.0) == 0.0
        pending.begin(who)

    assert [pending.waits_s(who, 0.0) for who in "cd"] == [EVERY_S] * 2
    pending.end("a")
    pending.end("b")

    assert woken == ["c", "d"]
    assert pending.waits_s("c", 1.0) == 0.0


def test_who_has_a_place_keeps_it_when_it_asks_again():
    pending, _ = of_most(1)
    pending.begin("a")

    assert pending.waits_s("a", 0.0) == 0.0
    assert pending.waits_s("b", 0.0) == EVERY_S


def test_after_a_refusal_nobody_asks_until_a_while_has_passed():
    pending, woken = of_most(10)
    pending.begin("a")

    assert pending.refused("a", 100.0) == EVERY_S
    assert pending.waits_s("b", 105.0) == EVERY_S - 5.0
    assert pending.waits_s("b", 100.0 + EVERY_S) == 0.0
    assert woken == []


def test_after_a_refusal_the_end_of_a_snapshot_of_ours_opens_one_place():
    pending, woken = of_most(10)
    for who in "abc":
        pending.begin(who)
    pending.refused("b", 100.0)
    pending.refused("c", 100.0)

    pending.end("a")

    assert woken == ["b"]
    assert pending.waits_s("b", 101.0) == 0.0


def test_who_has_ended_while_it_waited_is_not_woken():
    pending, woken = of_most(1)
    pending.begin("a")
    pending.waits_s("b", 0.0)
    pending.waits_s("c", 0.0)

    pending.end("b")
    pending.end("a")

    assert woken == ["c"]
