"""Series that alerts look at, before anything has happened."""

import pytest

from provisioner.metrics import Metrics


@pytest.mark.parametrize("flow", ["provision", "modify", "snapshot"])
def test_a_quota_that_is_used_up_is_counted_from_zero_so_that_its_first_error_is_an_increase(flow):
    labels = {"flow": flow, "reason": "QuotaExceeded"}

    found = Metrics().registry.get_sample_value("ebs_provisioner_flow_failures_total", labels)

    assert found == 0
