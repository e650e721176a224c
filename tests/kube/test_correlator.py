import pytest

from provisioner.kube.events import BURST, REFILL_S, SIMILAR_S, Correlator, Regarding

CLAIM = Regarding("PersistentVolumeClaim", "v1", "data", "web", "uid-1", "5")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def correlator(clock: Clock) -> Correlator:
    return Correlator(clock)


def fail(correlator: Correlator, message: str, about: Regarding = CLAIM) -> str | None:
    series = correlator.record(about, warning=True, reason="ProvisioningFailed", message=message)
    return f"{series.count}x {series.message}" if series else None


def test_the_same_event_is_counted(correlator: Correlator) -> None:
    newer = Regarding("PersistentVolumeClaim", "v1", "data", "web", "uid-1", "6")

    assert fail(correlator, "no") == "1x no"
    assert fail(correlator, "no", newer) == "2x no"


def test_other_messages_reasons_and_objects_are_other_events(correlator: Correlator) -> None:
    again = Regarding("PersistentVolumeClaim", "v1", "data", "web", "uid-2", "9")
    fail(correlator, "no")

    assert fail(correlator, "never") == "1x never"
    assert fail(correlator, "no", again) == "1x no"


def test_more_than_ten_similar_events_become_one(correlator: Correlator) -> None:
    told = [fail(correlator, f"request {n}") for n in (*range(12), 11, 3)]

    assert told[9:] == [
        "1x request 9",
        "1x (combined from similar events): request 10",
        "2x (combined from similar events): request 11",
        "3x (combined from similar events): request 11",
        "2x request 3",
    ]


def test_similar_events_long_ago_do_not_count(correlator: Correlator, clock: Clock) -> None:
    for n in range(12):
        fail(correlator, f"request {n}")
    clock.now += SIMILAR_S + 1

    assert fail(correlator, "request 12") == "1x request 12"


def test_one_object_gets_a_burst_and_then_one_event_each_300_s(
    correlator: Correlator, clock: Clock
) -> None:
    told = [fail(correlator, "no") for _ in range(BURST + 5)]
    clock.now += REFILL_S
    later = [fail(correlator, "no"), fail(correlator, "no")]

    assert [found is None for found in told] == [False] * BURST + [True] * 5
    assert later == [f"{BURST + 6}x no", None]


def test_one_object_does_not_use_up_the_events_of_another(correlator: Correlator) -> None:
    for _ in range(BURST + 5):
        fail(correlator, "no")

    assert fail(correlator, "no", Regarding("PersistentVolume", "v1", "pv-1")) == "1x no"


def test_a_wall_clock_that_is_set_back_takes_no_tokens_away(
    correlator: Correlator, clock: Clock
) -> None:
    fail(correlator, "no")
    clock.now -= 86_400

    assert fail(correlator, "no") == "2x no"


def test_only_so_many_objects_are_remembered(correlator: Correlator) -> None:
    for n in range(5000):
        fail(correlator, "no", Regarding("PersistentVolume", "v1", f"pv-{n}"))

    assert len(correlator._series) == len(correlator._buckets) == len(correlator._similar) == 4096


def test_what_cannot_matter_any_more_is_forgotten(correlator: Correlator, clock: Clock) -> None:
    for n in range(1000):
        fail(correlator, "no", Regarding("PersistentVolume", "v1", f"pv-{n}"))
        clock.now += 60

    assert len(correlator._series) == 61  # an Event lives for an hour
    assert len(correlator._similar) == SIMILAR_S / 60 + 1
    assert len(correlator._buckets) == BURST * REFILL_S / 60 + 1  # then it is full again


def test_an_object_that_fails_all_day_is_counted_all_day(
    correlator: Correlator, clock: Clock
) -> None:
    for n in range(1000):
        fail(correlator, "no", Regarding("PersistentVolume", "v1", f"pv-{n}"))
        told = fail(correlator, "no")
        clock.now += REFILL_S

    assert told == "1000x no"
