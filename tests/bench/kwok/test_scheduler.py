"""What is read of the scheduler, and how it is started."""

import pytest

from tests.bench.kwok import scheduler
from tests.bench.kwok.scheduler import Placed

TEXT = """\
# TYPE scheduler_scheduling_algorithm_duration_seconds histogram
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"} 1
scheduler_scheduling_algorithm_duration_seconds_bucket{le="+Inf"} 40
scheduler_scheduling_algorithm_duration_seconds_sum 35.2
scheduler_scheduling_algorithm_duration_seconds_count 40
# TYPE scheduler_pending_pods gauge
scheduler_pending_pods{queue="active"} 3
"""


def test_a_pods_time_is_that_of_all_by_their_number():
    assert scheduler.read(TEXT) == Placed(40, 35.2)
    assert (Placed(40, 35.2) - Placed(30, 35.0)).each_ms == pytest.approx(20.0)
    assert scheduler.read("").each_ms == 0.0


def test_it_listens_on_loopback_alone_and_tells_metrics_alone():
    argv = scheduler.command_line(["kube-scheduler", "--secure-port=0", "--x=1"], 7, "/certs")
    assert argv == [
        "kube-scheduler",
        "--x=1",
        "--secure-port=7",
        "--bind-address=127.0.0.1",
        "--cert-dir=/certs",
        "--authorization-always-allow-paths=/metrics",
    ]
