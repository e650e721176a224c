from collections.abc import Iterable

import pytest

from provisioner.kube.store import SLICE, Store
from provisioner.kube.wire import Listing
from provisioner.model.meta import KubeObject, ObjectMeta

Change = tuple[str | None, str | None]


def an_object(name: str, version: str, zone: str = "", uid: str = "") -> KubeObject:
    labels = {"zone": zone} if zone else None
    return KubeObject(
        metadata=ObjectMeta(name=name, resource_version=version, labels=labels, uid=uid)
    )


def zone_of(obj: KubeObject) -> Iterable[str]:
    return obj.labels.values()


def version_of(obj: KubeObject | None) -> str | None:
    return obj.metadata.resource_version if obj else None


class Told:
    """What subscribers were told: the versions before and after."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def __call__(self, old: KubeObject | None, new: KubeObject | None) -> None:
        self.changes.append((version_of(old), version_of(new)))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def store(told: Told) -> Store[KubeObject]:
    """Filled by a list at version 10 that holds ``a`` at version 5."""
    filled: Store[KubeObject] = Store({"zone": zone_of})
    filled.replace(Listing([an_object("a", "5", "east")], "10"))
    filled.subscribe(told)
    told.changes.clear()
    return filled


def names(objects: Iterable[KubeObject]) -> list[str]:
    return [obj.name for obj in objects]


def test_a_late_subscriber_is_told_what_is_there(store: Store[KubeObject]) -> None:
    late = Told()
    store.subscribe(late)

    assert late.changes == [(None, "5")]


def test_tells_additions_changes_and_deletions(store: Store[KubeObject], told: Told) -> None:
    store.apply(an_object("b", "11"))
    store.apply(an_object("b", "12"))
    store.remove("b", "13")

    assert told.changes == [(None, "11"), ("11", "12"), ("12", None)]


def test_a_subscriber_that_fails_stops_nobody(store: Store[KubeObject]) -> None:
    def fails(old: KubeObject | None, new: KubeObject | None) -> None:
        raise ValueError

    later = Told()
    store.subscribe(fails)
    store.subscribe(later)
    store.apply(an_object("b", "11"))

    assert later.changes[-1] == (None, "11")


def test_an_index_follows_its_objects(store: Store[KubeObject]) -> None:
    store.apply(an_object("b", "11", "east"))
    store.apply(an_object("c", "12", "west"))
    both = names(store.keyed("zone", "east"))
    store.apply(an_object("a", "13", "west"))
    store.remove("c", "14")

    assert both == ["a", "b"]
    assert names(store.keyed("zone", "east")) == ["b"]
    assert names(store.keyed("zone", "west")) == ["a"]
    assert store.keyed("zone", "nowhere") == []


def test_the_echo_of_an_own_write_is_told_once(store: Store[KubeObject], told: Told) -> None:
    store.observe(an_object("a", "11"))
    store.apply(an_object("a", "11"))

    assert told.changes == [("5", "11")]


def test_an_older_state_in_the_watch_does_not_undo_an_own_write(
    store: Store[KubeObject], told: Told
) -> None:
    store.observe(an_object("a", "12"))
    store.apply(an_object("a", "11"))

    assert told.changes == [("5", "12")]


def test_an_older_answer_is_ignored(store: Store[KubeObject], told: Told) -> None:
    store.apply(an_object("a", "12"))
    store.observe(an_object("a", "11"))

    assert told.changes == [("5", "12")]


def test_versions_are_numbers_not_texts(store: Store[KubeObject], told: Told) -> None:
    store.apply(an_object("a", "99"))
    store.apply(an_object("a", "100"))

    assert told.changes == [("5", "99"), ("99", "100")]


def test_an_answer_does_not_bring_a_deleted_object_back(
    store: Store[KubeObject], told: Told
) -> None:
    store.advance("15")  # the watch showed its creation at 12 and its deletion at 14
    store.observe(an_object("b", "12"))

    assert store.get("b") is None
    assert told.changes == []


def test_an_object_made_again_survives_the_deletion_of_the_old_one(
    store: Store[KubeObject],
) -> None:
    store.observe(an_object("a", "14", uid="new"))
    store.remove("a", "12")

    found = store.get("a")
    assert found is not None
    assert found.uid == "new"


def test_a_new_list_tells_lost_deletions_and_changes(store: Store[KubeObject], told: Told) -> None:
    store.apply(an_object("b", "11", "east"))
    store.apply(an_object("c", "12"))
    told.changes.clear()

    store.replace(
        Listing([an_object("b", "11", "east"), an_object("c", "18"), an_object("d", "19")], "20")
    )

    assert told.changes == [("5", None), ("12", "18"), (None, "19")]
    assert names(store.keyed("zone", "east")) == ["b"]


def test_a_new_list_keeps_what_was_written_after_it(store: Store[KubeObject]) -> None:
    store.observe(an_object("b", "21"))
    store.replace(Listing([], "20"))

    assert names(store.values()) == ["b"]


def test_what_can_no_longer_be_read_is_kept_as_it_was(store: Store[KubeObject]) -> None:
    store.replace(Listing([], "20", unreadable_keys=("a",)))

    assert names(store.values()) == ["a"]


def test_versions_that_run_backwards_mean_a_restored_etcd(
    store: Store[KubeObject], told: Told
) -> None:
    store.apply(an_object("b", "900"))
    store.advance("1000")
    told.changes.clear()

    store.replace(Listing([an_object("a", "4")], "30"))

    assert told.changes == [("900", None), ("5", "4")]
    assert (store.version, store.restores) == ("30", 1)


@pytest.mark.parametrize("at", ["901", "1000000800"], ids=["passed", "bumped"])
def test_a_list_is_the_authority_for_all_that_is_known_up_to_its_version(
    store: Store[KubeObject], told: Told, at: str
) -> None:
    store.apply(an_object("b", "900", "east"))
    store.advance("900")
    told.changes.clear()

    store.replace(Listing([an_object("a", "5", "west"), an_object("b", "700", "west")], at))

    assert told.changes == [("5", "5"), ("900", "700")]
    assert names(store.keyed("zone", "west")) == ["a", "b"]
    assert store.restores == 1
    store.apply(an_object("b", str(int(at) + 1)))  # in the new world the watch counts
    assert told.changes[-1] == ("700", str(int(at) + 1))


def test_an_own_write_of_before_a_restore_does_not_outlive_it(store: Store[KubeObject]) -> None:
    store.observe(an_object("a", "1500"))  # the kind is quiet: its watch is at 10 still
    asked_at = store.newest

    store.replace(Listing([an_object("a", "7")], "1100"), asked_at)

    assert version_of(store.get("a")) == "7"
    assert store.restores == 1


def test_what_was_written_while_a_list_was_on_its_way_proves_no_restore(
    store: Store[KubeObject],
) -> None:
    asked_at = store.newest
    store.observe(an_object("a", "21"))

    store.replace(Listing([an_object("a", "15")], "20"), asked_at)

    assert version_of(store.get("a")) == "21"
    assert store.restores == 0


def test_a_cache_that_is_emptied_says_nothing_of_a_restore(store: Store[KubeObject]) -> None:
    store.replace(Listing([], ""))

    assert (len(store.values()), store.version, store.restores) == (0, "", 0)
    store.observe(an_object("a", "3"))
    assert store.get("a") is not None


def many(count: int, version: str = "5") -> list[KubeObject]:
    return [an_object(f"obj-{n}", version) for n in range(count)]


def test_a_long_list_is_taken_in_a_slice_at_a_time_and_its_version_last(told: Told) -> None:
    store: Store[KubeObject] = Store({"zone": zone_of})
    store.subscribe(told)

    most, before = 0, 0
    for _ in store.replacing(Listing(many(10 * SLICE), "10")):
        most, before = max(most, len(told.changes) - before), len(told.changes)
        assert store.version == ""

    assert most == SLICE
    assert (store.version, len(store.values())) == ("10", 10 * SLICE)


def test_what_is_written_while_a_list_is_taken_in_is_kept(store: Store[KubeObject]) -> None:
    for n, _ in enumerate(store.replacing(Listing(many(3 * SLICE), "20"))):
        if n == 1:
            store.observe(an_object("mine", "21"))
            store.observe(an_object(f"obj-{3 * SLICE - 1}", "22"))

    assert store.get("mine") is not None
    assert version_of(store.get(f"obj-{3 * SLICE - 1}")) == "22"
    assert store.get("a") is None


def test_an_answer_does_not_bring_back_what_a_list_that_is_taken_in_has_not(
    store: Store[KubeObject],
) -> None:
    for _ in store.replacing(Listing(many(3 * SLICE), "20")):
        store.observe(an_object("ghost", "19"))
        store.observe(an_object("a", "18"))

    assert store.get("ghost") is None
    assert store.get("a") is None


def test_those_held_back_are_told_a_slice_of_objects_at_a_time() -> None:
    store: Store[KubeObject] = Store({})
    store.replace(Listing(many(4 * SLICE), "10"))
    first, second = Told(), Told()
    store.hold_back()
    store.subscribe(first)
    store.subscribe(second)
    assert first.changes == []

    told_by_then = [len(first.changes) for _ in store.introducing()]

    assert told_by_then == [SLICE, 2 * SLICE, 3 * SLICE, 4 * SLICE]
    assert first.changes == second.changes == [(None, "5")] * (4 * SLICE)
    later = Told()
    store.subscribe(later)
    assert len(later.changes) == 4 * SLICE


def test_what_changes_before_its_turn_is_told_as_it_was_and_then_as_it_is() -> None:
    store: Store[KubeObject] = Store({})
    store.replace(Listing(many(2 * SLICE), "10"))
    held_back = Told()
    store.hold_back()
    store.subscribe(held_back)
    store.apply(an_object("obj-0", "11"))  # nothing is told before the introduction has begun
    introducing = store.introducing()
    next(introducing)
    held_back.changes.clear()

    store.apply(an_object(f"obj-{2 * SLICE - 1}", "12"))
    store.remove(f"obj-{2 * SLICE - 2}", "13")
    store.apply(an_object("new", "14"))
    changed = [(None, "5"), ("5", "12"), (None, "5"), ("5", None), (None, "14")]
    assert held_back.changes == changed

    held_back.changes.clear()
    assert list(introducing) == [None]
    assert held_back.changes == [(None, "5")] * (SLICE - 2)
    store.apply(an_object("obj-0", "15"))
    assert held_back.changes[-1] == ("11", "15")


def test_an_object_of_the_past_is_not_brought_back_by_a_watch(store: Store[KubeObject]) -> None:
    store.apply(an_object("gone", "9"))
    store.advance("9")

    assert store.get("gone") is None
    assert store.version == "10"


def test_what_cannot_be_read_is_known_until_it_can_or_is_gone(store: Store[KubeObject]) -> None:
    store.replace(Listing([], "11", unreadable_keys=("a", "b", "c")))
    store.apply(an_object("a", "12"))
    store.remove("b", "13")
    assert set(store.unreadable) == {"c"}

    store.replace(Listing([], "14"))
    assert not store.unreadable


def test_an_older_event_does_not_make_readable_what_is_not(store: Store[KubeObject]) -> None:
    store.replace(Listing([], "14", unreadable_keys=("a", "b")))
    store.cannot_read("c", "16")

    store.apply(an_object("a", "13"))  # a watch that is behind
    store.remove("b", "12")
    store.apply(an_object("c", "15"))
    assert set(store.unreadable) == {"a", "b", "c"}

    store.cannot_read("a", "11")
    store.apply(an_object("a", "17"))
    store.cannot_read("a", "16")
    assert set(store.unreadable) == {"b", "c"}


def test_what_was_deleted_since_an_event_is_not_there_unread(store: Store[KubeObject]) -> None:
    store.cannot_read("gone", "9")

    assert not store.unreadable
