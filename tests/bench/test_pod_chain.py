"""The chain of a pod: what is EC2's own time, whose the rest is, and whether it keeps the goal."""

import pytest

from tests.bench import pod_chain
from tests.bench.hands import BenchError
from tests.bench.pod_chain import Chain
from tests.bench.wait_numbers import Call

CALLS = [
    Call("DescribeInstances", 0.0, 0.3, frozenset()),  # of the zone, before the volume
    Call("CreateVolume", 1.0, 1.2, frozenset()),
    Call("DescribeVolumes", 2.5, 2.7, frozenset()),
    Call("DescribeInstances", 3.0, 3.1, frozenset()),
    Call("AttachVolume", 3.2, 3.6, frozenset()),
    Call("DescribeVolumes", 5.0, 5.2, frozenset()),
]


def a_chain(attached_s: float) -> Chain:
    seconds = {
        "node selected": 0.02,
        "claim Bound": 2.0,
        "pod scheduled": 0.1,
        "VolumeAttachment created": 0.06,
        "attached": attached_s,
        "volume mounted": 0.15,
        "container runs": 0.05,
    }
    pieces = {what: [each] for what, each in seconds.items()}
    return Chain(pieces, {"claim Bound": [1.9], "attached": [2.5]}, [0.1])


def rows_of(chain: Chain) -> list[str]:
    return pod_chain.markdown(chain).splitlines()


def test_ec2s_own_time_is_its_calls_and_until_they_have_come_about_without_looks() -> None:
    own = pod_chain.own_s(CALLS)

    assert own["claim Bound"] == pytest.approx(0.2 + 1.5)
    assert own["attached"] == pytest.approx(0.1 + 0.4 + 2.0)


def test_a_volume_asked_for_twice_is_no_measure_of_one() -> None:
    with pytest.raises(BenchError, match="2 calls of AttachVolume"):
        pod_chain.own_s([*CALLS, CALLS[4]])


def test_a_piece_and_the_whole_are_held_to_the_goal_beside_ec2s_own_time() -> None:
    rows = rows_of(a_chain(attached_s=2.9))

    assert (
        "| claim Bound | ours, EC2, and the PV controller | 2.00, 2.00 | 1.90 | 0.10, 0.10 |"
        in rows
    )
    assert "| attached | ours and EC2 | 2.90, 2.90 | 2.50 | 0.40, 0.40 |" in rows
    assert "| **all** |  | 5.28, 5.28 | 4.40 | 0.88, 0.88, **missed** |" in rows


def test_what_is_more_is_told_by_whom_it_is_taken() -> None:
    rows = rows_of(a_chain(attached_s=2.6))

    assert "| kubelet and containerd | 0.10, 0.10 |" in rows
    assert "| ours, with the PV controller's binding | 0.30, 0.30 |" in rows
    assert "| kube-scheduler | 0.12, 0.12 |" in rows
    assert "| attach/detach controller | 0.06, 0.06 |" in rows
