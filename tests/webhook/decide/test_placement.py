from collections.abc import Iterator

from tests.webhook.decide.pods import EBS_ZONE, ZONE, A, B, C, term
from webhook.decide.placement import Demand
from webhook.model.review import Json
from webhook.model.views import NodeView


class Counted(list[Json]):
    """Terms that count how often somebody goes through them."""

    looks = 0

    def __iter__(self) -> Iterator[Json]:
        self.looks += 1
        return super().__iter__()


def test_the_terms_of_a_pod_are_gone_through_once_for_a_zone():
    terms = Counted([term(ZONE, "In", A)])
    demand = Demand((terms,))

    verdicts = [demand.allows(zone) for zone in (A, B, A, B, B)]

    assert verdicts == [True, False, True, False, False]
    assert terms.looks == 2


def test_a_pod_without_demands_names_no_zone_and_excludes_none():
    assert Demand().named == frozenset()
    assert not Demand().excludes([A])


class Unseen(list[NodeView | None]):
    """Nodes that nobody needs to look at."""

    def __iter__(self) -> Iterator[NodeView | None]:
        raise AssertionError("somebody walked over all nodes")


def test_nodes_are_not_walked_over_while_another_reason_allows_a_zone():
    demand = Demand(([term(ZONE, "In", A)],), Unseen())

    assert not demand.excludes([B, A])
    assert demand.left_of(frozenset({A, B})) == {A}


def test_zones_that_only_nodes_allow_are_left():
    racks = [a_rack(A), a_rack(B)]
    demand = Demand(([term(ZONE, "In", "rack")],), racks)

    assert not demand.excludes([A])
    assert demand.left_of(frozenset({A, B, C})) == {A, B}
    assert demand.excludes([C])


def test_of_nodes_and_terms_that_are_too_many_to_hold_against_each_other_nothing_is_said():
    elsewhere = [term(ZONE, "In", B)] * 4096
    once, twice = Demand((elsewhere,), [a_rack(A)]), Demand((elsewhere,), [a_rack(A), a_rack(A, 2)])

    assert once.excludes([A])
    assert not twice.excludes([A])


def a_rack(zone: str, number: int = 0) -> NodeView:
    labels = ((EBS_ZONE, zone), (ZONE, f"rack{number or ''}"))
    return NodeView(labels, None, schedulable=True, has_driver=True)
