"""What EC2's limits leave for so many moves."""

from dataclasses import replace
from statistics import median

import pytest

from provisioner.ec2.limiter import Rate
from tests.bench.counted_controller import what
from tests.bench.moves_numbers import Limits, bound_s, delay

LIMITS = Limits(
    snapshots=Rate(100, 5), pending=100, creates=Rate(100, 5), call_s=0.25, snapshot_s=8, create_s=2
)
ONE_S = 0.25 + 8 + 0.25 + 2


def test_few_moves_take_as_long_as_one():
    assert [bound_s(count, LIMITS) for count in (0, 1, 100)] == [0.0, ONE_S, ONE_S]


def test_beyond_the_burst_the_bucket_of_snapshots_decides():
    assert bound_s(200, LIMITS) == pytest.approx(20 + ONE_S)


def test_long_snapshots_are_taken_as_many_as_may_be_pending():
    long = replace(LIMITS, snapshot_s=600.0)

    assert bound_s(200, long) == pytest.approx(600.25 + ONE_S + 592)


def test_volumes_of_snapshots_that_are_complete_together_wait_for_their_own_bucket():
    free = replace(LIMITS, snapshots=Rate(1000, 1000), pending=1000)

    assert bound_s(200, free) == pytest.approx(20 + ONE_S)


def test_volumes_of_others_take_tokens_from_the_same_bucket():
    free = replace(LIMITS, snapshots=Rate(1000, 1000), pending=1000)

    assert bound_s(200, free, [8.25] * 10) == pytest.approx(22 + ONE_S)
    assert bound_s(200, free, [0.0] * 10) == pytest.approx(20 + ONE_S), "the bucket is full again"
    assert bound_s(1, LIMITS, [100.0]) == ONE_S


def test_a_wait_beside_moves_is_compared_with_the_same_share_of_those_without():
    assert delay([1.0, 2.0, 4.0], [3.0, 2.0, 1.0], median) == 0.0
    assert delay([1.0, 2.0, 4.0], [5.0, 2.0, 1.0], max) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("GET", "/api/v1/namespaces/default/pods", "LIST pods"),
        ("GET", "/api/v1/persistentvolumes/pvc-1", "GET persistentvolumes"),
        ("POST", "/api/v1/namespaces/default/events", "POST events"),
        (
            "PATCH",
            "/apis/ebs-provisioner.io/v1alpha1/namespaces/default/volumemoves/a/status",
            "PATCH volumemoves/status",
        ),
        ("GET", "/apis", "GET /apis"),
    ],
)
def test_requests_are_told_without_the_names_in_them(method: str, path: str, told: str):
    assert what(method, path) == told
