"""The webhook caches a large cluster in little memory: views, not objects."""

import gc
import itertools
import tracemalloc
from uuid import UUID

import pytest

from provisioner.metrics import Metrics
from tests.webhook.edges import Kube, a_claim, a_persistent_volume, running
from webhook.reviews.caches import Caches

DRIVER = "ebs.csi.aws.com"
COUNT = 2_000
_WORLDS = itertools.count()
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def world(driver: str, count: int) -> Kube:
    """Persistent volumes, and claims for ours, with names and ids of the usual length."""
    kube, number = Kube(), next(_WORLDS)
    for n in range(count):
        name, zone = f"pvc-{UUID(int=n)}", f"us-east-1{'abc'[n % 3]}"
        pv = a_persistent_volume(name, volume=f"vol-{n:017x}", zone=zone, driver=driver)
        pv["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": f"{driver} {n}"}
        kube.put("persistentvolumes", pv)
        if driver == DRIVER:
            claim = a_claim(f"data-web-{n}", bound=name, namespace=f"shop-{n % 50}")
            applied = f"{n} is the whole manifest of world {number}, " * 12  # never seen before
            claim["metadata"].setdefault("annotations", {})[_APPLIED] = applied
            kube.put("persistentvolumeclaims", claim)
    return kube


async def bytes_for(driver: str, count: int) -> int:
    # The interpreter's table of shared texts may just double, once in ever so many of them.
    return min([await bytes_once(driver, count) for _ in range(2)])


async def bytes_once(driver: str, count: int) -> int:
    kube = world(driver, count)
    gc.collect()
    tracemalloc.start()
    try:
        caches = Caches(kube.client, Metrics(), DRIVER)
        async with running(caches):
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("driver", "most"),
    [
        (DRIVER, 1_200),  # 10,000 of each: 12 MiB of the 35 that the whole process may take
        ("nfs.csi.k8s.io", 16),
    ],
)
async def test_a_volume_and_its_claim_take_a_kibibyte_and_those_of_others_nothing(
    driver: str, most: int
):
    some = await bytes_for(driver, COUNT)
    twice = await bytes_for(driver, 2 * COUNT)

    assert (twice - some) / COUNT < most


async def test_what_tools_write_to_claims_takes_nothing():
    """A whole manifest each, which the tables of common parts must not keep either."""
    assert await bytes_for(DRIVER, COUNT) < 1_200 * COUNT
