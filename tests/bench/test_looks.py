"""Looks at EC2 against the rule's limit, by what was in transition then."""

from tests.bench import looks
from tests.bench.looks import Window
from tests.bench.wait_numbers import Call


def a_call(action: str, at_s: float, *values: str) -> Call:
    return Call(action, at_s, at_s, frozenset(values))


def attaching(things: int, every_s: float, until_s: float = 20.0) -> list[Call]:
    """So many things, looked at all the time; none is ready before the last look."""
    ids = [f"vol-{n}" for n in range(things)]
    begun = [a_call("AttachVolume", -1.0, each) for each in ids]
    times_s = (n * every_s for n in range(int(until_s / every_s)))
    return begun + [a_call("DescribeVolumes", at_s, *ids) for at_s in times_s]


def test_three_looks_a_second_are_allowed_up_to_500_things() -> None:
    assert looks.busiest(attaching(500, every_s=0.25)) == Window(40, 33.0, 500)


def test_two_looks_a_second_are_allowed_above_500_things() -> None:
    assert looks.busiest(attaching(501, every_s=0.25)) == Window(40, 22.0, 501)


def test_a_thing_is_in_transition_until_the_last_look_that_names_it() -> None:
    calls = [a_call("AttachVolume", 0.0, f"vol-{n}") for n in range(600)]
    calls += [a_call("DescribeVolumes", 2.0, *(f"vol-{n}" for n in range(600)))]
    calls += [a_call("DescribeVolumes", 8.0, *(f"vol-{n}" for n in range(100)))]

    found = looks.busiest(calls)

    assert found == Window(2, 2 * 0.5 + 3 * 10.5, 100)


def test_a_volume_is_in_transition_though_its_creation_does_not_name_it() -> None:
    made = [a_call("CreateVolume", 0.0, f"pvc-{n}") for n in range(600)]
    seen = [a_call("DescribeVolumes", 20.0, *(f"vol-{n}" for n in range(600)))]

    found = looks.busiest([*made, a_call("DescribeVolumes", 5.0), *seen])

    assert found == Window(1, 22.0, 600)


def test_a_look_at_instances_is_no_look_at_what_is_in_transition() -> None:
    assert looks.busiest([a_call("DescribeInstances", 0.0)]) is None
