"""Where a volume is made after EC2 has refused it."""

from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.placement.consumer_rules import Consumers
from provisioner.controller.placement.failover_rules import (
    NO_REFUSALS,
    Moved,
    Refusals,
    beside_siblings,
    for_any_node,
    instead_of_node,
    on_that_node,
)
from provisioner.controller.placement.zone_rules import NoZone, spread
from provisioner.model.errors import Reason
from provisioner.model.zone import Place
from tests.builders import a_node
from tests.controller.placement.test_consumer_rules import A, B, C, nodes
from tests.pods import a_placed_volume, a_pod, tainted

FULL, NOT_OFFERED = Reason.ZONE_OUT_OF_CAPACITY, Reason.TYPE_NOT_IN_ZONE
POD = a_pod()
FREE = Consumers((POD,), nodes())


def refused(*places: Place, reason: Reason = FULL) -> Refusals:
    """Twice in the first place, once in each other one."""
    found = NO_REFUSALS
    for place in (*places[:1], *places):
        found = found.and_in(place, reason, others_too=False)
    return found


def test_one_refusal_leaves_the_scheduler_its_choice_and_two_take_it():
    once = NO_REFUSALS.and_in(A, FULL, others_too=False)

    assert not once.exclude(A)
    assert refused(A).exclude(A)
    assert not refused(A).exclude(B)


def test_what_others_were_refused_counts_as_one():
    assert NO_REFUSALS.and_in(A, FULL, others_too=True).exclude(A)


def test_refusals_in_two_zones_count_together():
    both = NO_REFUSALS.and_in(A, FULL, others_too=False).and_in(B, NOT_OFFERED, others_too=False)

    assert both.exclude(A)
    assert both.exclude(B)
    assert str(both) == "us-east-1a (ZoneOutOfCapacity), us-east-1b (VolumeTypeNotInZone)"


def test_the_volume_is_made_where_a_node_can_take_the_pod():
    only_c = Consumers((POD,), nodes(b=tainted(a_node("node-b", zone=B.zone), "gpu")))

    moved = instead_of_node(only_c, refused(A), {})

    assert isinstance(moved, Moved)
    assert moved.where == C
    for word in ("us-east-1a (ZoneOutOfCapacity)", "us-east-1c", "node-c", "shop/web"):
        assert word in moved.why


def test_a_zone_that_has_refused_others_lately_is_the_last_choice():
    for avoid in (B, C):
        moved = instead_of_node(FREE, refused(A), {avoid: NOT_OFFERED})
        assert isinstance(moved, Moved)
        assert moved.where.zone not in {A.zone, avoid.zone}

    moved = instead_of_node(FREE, refused(A), dict.fromkeys((A, B, C), FULL))
    assert isinstance(moved, Moved)
    assert moved.where.zone != A.zone


def test_claims_of_one_pod_fail_over_to_one_zone():
    two = [a_pod("web", "data", "logs"), a_pod("web", "logs", "data")]

    chosen = {instead_of_node(Consumers((p,), nodes()), refused(A), {}) for p in two}

    assert len(chosen) == 1


def test_without_another_zone_it_waits_and_says_why():
    held = Consumers((POD,), nodes(), (a_placed_volume(zone=A.zone),))

    waits = instead_of_node(held, refused(A), {})

    assert isinstance(waits, NoZone)
    assert (waits.reason, waits.choose_again, waits.retry_after_s) == (FULL, False, 60.0)
    assert "us-east-1b: PersistentVolume pv-of-logs of pod shop/web is elsewhere" in waits.message


def test_it_waits_shortly_for_a_volume_in_the_making_which_may_be_refused_too():
    waits = instead_of_node(Consumers((POD,), nodes(), (), frozenset({A})), refused(A), {})

    assert isinstance(waits, NoZone)
    assert waits.retry_after_s == 2.0


def test_a_pod_that_a_volume_keeps_away_from_its_node_gets_the_other_beside_it():
    held = Consumers((POD,), nodes(), (a_placed_volume(zone=C.zone),))

    moved = beside_siblings("node-a", held, NO_REFUSALS, {})

    assert isinstance(moved, Moved)
    assert moved.where == C
    assert moved.why == (
        "another volume of the pod cannot be used on node node-a, which the scheduler chose; "
        "creating the volume in us-east-1c, where node node-c (or another one) can run pod "
        "shop/web; the pod will follow its volume"
    )


def test_where_no_node_is_beside_that_volume_the_scheduler_is_asked_again():
    held = Consumers((POD,), nodes(), (a_placed_volume(zone="us-east-1d"),))

    asks = beside_siblings("node-a", held, NO_REFUSALS, {})

    assert isinstance(asks, NoZone)
    assert (asks.reason, asks.choose_again) == (Reason.NO_ZONE, True)
    assert "pv-of-logs of pod shop/web is elsewhere" in asks.message


def test_for_a_volume_in_the_making_it_waits_shortly_instead():
    held = Consumers((POD,), nodes(A), (), frozenset({B}))

    waits = beside_siblings("node-a", held, NO_REFUSALS, {})

    assert isinstance(waits, NoZone)
    assert (waits.choose_again, waits.retry_after_s) == (False, 2.0)


def test_beside_the_other_volume_it_is_not_made_where_ec2_has_refused_it():
    held = Consumers((POD,), nodes(), (a_placed_volume(zone=C.zone),))
    once = NO_REFUSALS.and_in(C, FULL, others_too=False)

    asks = beside_siblings("node-a", held, once, {})

    assert isinstance(asks, NoZone)
    assert (asks.reason, asks.choose_again) == (FULL, True)


def test_once_all_zones_have_refused_it_waits():
    waits = instead_of_node(FREE, refused(A, B, C, reason=NOT_OFFERED), {})

    assert isinstance(waits, NoZone)
    assert waits.reason is NOT_OFFERED


def test_without_a_known_pod_the_scheduler_is_asked_again():
    asks = instead_of_node(Consumers((), nodes()), refused(A), {})

    assert isinstance(asks, NoZone)
    assert asks.choose_again


def test_a_pod_that_is_on_its_node_already_cannot_move():
    waits = on_that_node("node-a", refused(A))

    assert (waits.reason, waits.choose_again) == (FULL, False)
    assert "'node-a'" in waits.message


PLACES = st.lists(st.sampled_from([A, B, C, Place(A.zone, "arn")]), unique=True, min_size=1)


@given(PLACES, st.text(), st.sets(st.sampled_from([A, B, C])), st.sets(st.sampled_from([A, B, C])))
def test_a_claim_that_binds_at_once_goes_on_with_what_has_not_refused_it(
    candidates, name, refused_in, avoid
):
    refusals = refused(*sorted(refused_in)) if refused_in else NO_REFUSALS
    left = {place for place in candidates if place not in refused_in}

    where = for_any_node(candidates, name, refusals, dict.fromkeys(avoid, NOT_OFFERED))

    if not left:
        assert isinstance(where, NoZone)
        assert where.retry_after_s == 60.0
        return
    assert not isinstance(where, NoZone)
    first = candidates[spread(name) % len(candidates)]
    chosen = where.where if isinstance(where, Moved) else where
    place = Place(chosen.zone, chosen.outpost_arn)
    assert place in left
    assert place not in avoid or left <= avoid
    assert isinstance(where, Moved) is (place != first)


def test_a_claim_that_is_passed_on_is_told_what_its_zone_has_refused_others():
    candidates = [A, B, C]
    name = next(n for n in "abcdefgh" if candidates[spread(n) % 3] == A)

    moved = for_any_node(candidates, name, NO_REFUSALS, {A: NOT_OFFERED})

    assert isinstance(moved, Moved)
    assert moved.where == B
    assert moved.why == (
        "EC2 recently refused such volumes in us-east-1a (VolumeTypeNotInZone); creating the "
        "volume in us-east-1b"
    )


@given(PLACES, st.text())
def test_a_claim_that_was_refused_nowhere_gets_the_zone_that_the_stock_provisioner_takes(
    candidates, name
):
    place = candidates[spread(name) % len(candidates)]

    assert for_any_node(candidates, name, NO_REFUSALS, {}) == place
