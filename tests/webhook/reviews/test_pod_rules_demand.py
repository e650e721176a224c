from collections.abc import Iterator

from tests.webhook.reviews.pods import ZONE, A, B, term
from webhook.model.review import Json
from webhook.reviews.pod_rules import Demand


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
