"""Three clusters that do not know of each other share the quota of one account."""

import pytest

from provisioner.ec2.limiter import documented
from tests.ec2.shared_account import lived

CLUSTERS, EACH = 3, 200
RATE = documented("CreateVolume")
FLOOR_S = (CLUSTERS * EACH - RATE.burst) / RATE.per_s


@pytest.mark.parametrize("seed", range(4))
def test_they_use_all_of_it_and_none_is_left_behind(seed: int):
    account = lived(CLUSTERS, EACH, RATE, seed=seed)

    ended_s = [cluster.ended_s for cluster in account.clusters]
    assert max(ended_s) < FLOOR_S * 1.1
    assert min(ended_s) > FLOOR_S * 0.8
    # Two thirds of these are of the first burst, which each believes to have for itself.
    assert account.throttled < 0.3 * (CLUSTERS * EACH + account.throttled)


def test_one_alone_is_hardly_throttled():
    account = lived(1, 300, RATE, seed=1)

    assert account.throttled < 0.03 * 300
    assert account.clusters[0].ended_s < (300 - RATE.burst) / RATE.per_s * 1.08
