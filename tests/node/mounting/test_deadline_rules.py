"""How long a call waits, given the kubelet's deadline."""

import pytest

from provisioner.node.mounting.deadline_rules import patience_s


@pytest.mark.parametrize(
    ("time_left_s", "waits_s"),
    [(None, 60), (120, 60), (65, 60), (30, 25), (10, 5), (6, 3), (0.2, 0.1), (0, 0)],
)
def test_leaves_time_for_an_answer(time_left_s, waits_s):
    assert patience_s(time_left_s) == pytest.approx(waits_s)
