import pytest

from tests.bench.hands import BenchError
from tests.bench.wait_measure import most_in_a_second
from tests.bench.wait_numbers import Call, Wait, wait_of


def call(action: str, at_s: float, took_s: float, *values: str) -> Call:
    params = {f"VolumeId.{number}": value for number, value in enumerate(values)}
    return Call.of({"action": action, "at_s": at_s, "took_s": took_s, "params": params})


CALLS = [
    call("DescribeInstances", 10.1, 0.2, "i-1"),
    call("AttachVolume", 10.4, 0.3, "vol-2"),
    call("AttachVolume", 10.5, 0.25, "vol-1"),
    call("DescribeVolumes", 12.0, 0.4, "vol-1", "vol-2"),  # ends before vol-1 is attached
    call("DescribeVolumes", 12.5, 0.1, "vol-2"),
    call("DescribeVolumes", 12.6, 0.4, "vol-1"),
    call("DescribeVolumes", 13.1, 0.1, "vol-1"),
]


def wait(told_s: float = 13.05, first: str = "DescribeInstances", volume: str = "vol-1") -> Wait:
    return wait_of(
        {volume},
        action="AttachVolume",
        takes_s=2.0,
        first=first,
        sent_s=10.0,
        told_s=told_s,
        calls=CALLS,
    )


def test_ec2s_own_time_is_its_calls_and_until_it_has_come_about_without_looks() -> None:
    assert wait().own == pytest.approx(0.2 + 0.25 + 2.0)
    assert wait(first="").own == pytest.approx(0.25 + 2.0)


def test_the_rest_is_told_piece_by_piece() -> None:
    found = wait()

    assert (found.before, found.unseen, found.after) == pytest.approx((0.3, 0.25, 0.05))
    assert found.own + found.over == pytest.approx(3.05)


def test_what_comes_about_with_the_call_needs_no_look() -> None:
    found = wait_of(
        {"vol-2"}, action="AttachVolume", takes_s=0.0, sent_s=10.0, told_s=11.0, calls=CALLS
    )

    assert (found.own, found.unseen, found.after) == pytest.approx((0.3, 0.0, 0.3))


@pytest.mark.parametrize(("told_s", "volume"), [(12.9, "vol-1"), (13.05, "vol-3")])
def test_a_wait_that_cannot_be_is_no_number(told_s: float, volume: str) -> None:
    with pytest.raises(BenchError):
        wait(told_s=told_s, volume=volume)


def test_the_busiest_second_counts() -> None:
    assert most_in_a_second([0.0, 0.3, 0.9, 1.0, 1.2, 5.0]) == 4
    assert most_in_a_second([]) == 0
