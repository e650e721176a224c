"""What is read of Kubernetes' own programs."""

import pytest

from tests.bench.kwok import components
from tests.bench.kwok.components import AllPlaced, Placed

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
    assert components.read(TEXT) == Placed(40, 35.2)
    assert (Placed(40, 35.2) - Placed(30, 35.0)).each_ms == pytest.approx(20.0)
    assert components.read("").each_ms == 0.0


def test_what_a_scheduler_placed_in_each_of_its_lives_counts_once():
    placed = AllPlaced()

    for pods, took_s in [(30, 3.0), (40, 4.0), (2, 0.5), (2, 0.5), (7, 1.0)]:
        placed.note(Placed(pods, took_s))

    assert placed.total == Placed(47, 5.0)


def test_patches_of_nodes_are_those_of_their_status_with_any_answer():
    of_nodes = 'resource="nodes",scope="resource",subresource="status"'
    text = f"""\
apiserver_request_total{{code="200",{of_nodes},verb="PATCH",version="v1"}} 2001
apiserver_request_total{{code="409",{of_nodes},verb="PATCH",version="v1"}} 2
apiserver_request_total{{code="200",{of_nodes},verb="GET",version="v1"}} 9
apiserver_request_total{{code="200",resource="pods",subresource="status",verb="PATCH"}} 9
apiserver_request_sli_duration_seconds_count{{{of_nodes},verb="PATCH"}} 9
"""
    assert components.patches_of_nodes(text) == 2003
    assert components.patches_of_nodes("") == 0
