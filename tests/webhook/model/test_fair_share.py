"""Who gets room, and from whom it is taken."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from webhook.model.fair_share import FairShares, Share


def taken(it: FairShares, peer: str, number: int, size: int = 1) -> list[Share]:
    shares = [it.take(peer, size) for _ in range(number)]
    return [share for share in shares if share is not None]


def test_one_alone_may_have_all_of_it():
    it = FairShares(10)

    assert len(taken(it, "api-server", 12)) == 10
    assert it.held == 10


def test_who_has_most_makes_place_for_who_has_less_with_its_oldest_first():
    it = FairShares(10)
    gone: list[int] = []
    for number, share in enumerate(taken(it, "stranger", 10)):
        share.on_evict = partial(gone.append, number)

    assert len(taken(it, "api-server", 20)) == 5
    assert gone == [0, 1, 2, 3, 4]


def test_who_has_less_loses_nothing_to_who_has_more():
    it = FairShares(10)
    mine = taken(it, "api-server", 3)
    taken(it, "stranger", 100)

    assert not any(share.evicted for share in mine)


def test_a_crowd_of_as_many_addresses_as_there_are_places_leaves_one_place():
    """docs/webhook.md says so: only a client certificate or the network keeps such a crowd out."""
    it = FairShares(10)
    mine = taken(it, "api-server", 3)
    for number in range(20):
        it.take(f"stranger {number}")

    assert [share.evicted for share in mine] == [True, True, False]


def test_a_large_wish_takes_no_more_than_it_needs():
    it = FairShares(100)
    theirs = taken(it, "stranger", 10, size=10)

    assert it.take("api-server", 35) is not None
    assert [share.evicted for share in theirs] == [True] * 4 + [False] * 6
    assert it.held == 95


def test_what_is_larger_than_the_room_gets_none():
    assert FairShares(10).take("api-server", 11) is None


def test_what_is_given_back_is_free_and_only_once():
    it = FairShares(1)
    (mine,) = taken(it, "a", 1)
    it.release(mine)
    it.release(mine)

    assert it.held == 0
    assert it.take("b") is not None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 7), st.booleans())))
def test_never_more_than_there_is(steps: list[tuple[str, int, bool]]):
    it, mine = FairShares(20), list[Share]()
    for peer, size, back in steps:
        if back and mine:
            it.release(mine.pop())
        elif share := it.take(peer, size):
            mine.append(share)
        assert it.held == sum(each.size for each in mine if not each.evicted) <= 20
