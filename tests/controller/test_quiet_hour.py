"""An hour in which nothing happens, in virtual time: what the whole controller asks meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Any, cast

import msgspec
import pytest

from provisioner.controller.app import Controller
from provisioner.controller.shared.settings import Settings
from provisioner.kube import informer
from provisioner.kube.client import KubeClient
from provisioner.kube.lease import LEASES, Lease, LeaseSettings
from provisioner.kube.resources import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Resource,
)
from provisioner.kube.wire import WatchLine
from provisioner.metrics import Metrics
from provisioner.model.persistent_volume import PROVISIONER_FINALIZER, finalizer_of_attacher
from tests.builders import (
    DRIVER,
    UID,
    a_claim,
    a_class,
    a_csi_node,
    a_node,
    a_persistent_volume,
    a_volume,
    an_attachment,
)
from tests.controller.cloud import Cloud
from tests.controller.full_zones import with_volume
from tests.controller.shared.test_caches import KINDS
from tests.documents import section
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.kube.behind import Behind
from webhook.certificates.rotation_rules import Waits

# But VolumeMoves, which are off by default.
ALL_KINDS = (*KINDS, ATTRIBUTES_CLASSES)
HOUR_S = 3600.0
_SETTLES_S = 607.0  # no multiple of a pause, or it is chance what happens within the hour


class Kube(Behind):
    """Its watches end when they should, as the API server's do. Counts requests by kind.

    Args:
        leases: those of the cluster, which several replicas write to.
        lacks: kinds that it does not serve.
    """

    def __init__(
        self, leases: dict[str, dict[str, Any]], *, lacks: Collection[Resource[Any]] = ()
    ) -> None:
        super().__init__(serves=tuple(each for each in ALL_KINDS if each not in lacks))
        self.counts: Counter[str] = Counter()
        self._leases = leases

    async def served(self) -> frozenset[tuple[str, str]]:
        self.counts["get /api"] += 1
        self.counts["get /apis"] += 1
        return await super().served()

    async def create(self, resource: Resource[Any], body: Any, namespace: str = "") -> Any:
        self.counts[f"post {resource.plural}"] += 1
        assert resource is LEASES
        return self._saved(body["metadata"]["name"], body)

    def _saved(self, name: str, body: dict[str, Any]) -> Lease:
        self.version += 1
        before = self._leases.get(name, {"metadata": {}, "spec": {}})
        metadata = {**before["metadata"], **body["metadata"], "name": name}
        metadata["resourceVersion"] = str(self.version)
        self._leases[name] = {"metadata": metadata, "spec": {**before["spec"], **body["spec"]}}
        return msgspec.convert(self._leases[name], Lease)

    async def list(self, resource: Resource[Any], *, most: int = 0, **more: Any) -> Any:
        self.counts[f"{'page' if most else 'list'} {resource.plural}"] += 1
        return await super().list(resource, most=most, **more)

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        self.counts[f"get {resource.plural}"] += 1
        if resource is LEASES and name in self._leases:
            return msgspec.convert(self._leases[name], Lease)
        return await super().get(resource, name, namespace)

    async def patch(self, resource: Resource[Any], name: str, _: Any, **more: Any) -> Any:
        self.counts[f"patch {resource.plural}"] += 1
        if resource is LEASES:
            return self._saved(name, _)
        return await super().patch(resource, name, _, **more)

    async def watch(
        self, resource: Resource[Any], *, resource_version: str, timeout_s: int, **_: Any
    ) -> AsyncGenerator[WatchLine]:
        self.counts[f"watch {resource.plural}"] += 1
        await asyncio.sleep(timeout_s)
        nothing: tuple[WatchLine, ...] = ()
        for line in nothing:
            yield line


class Ec2(Cloud):
    """It has the volume, in an inventory too; notes by which tags it was asked."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.inventories: Counter[str] = Counter()

    def _answer(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if action == "DescribeSnapshots":
            return {"Snapshots": [], "NextToken": None}
        tags = {each["Name"] for each in params.get("Filters", ()) if "tag" in each["Name"]}
        if action != "DescribeVolumes" or not tags:
            return super()._answer(action, params)
        of_unclaimed = any("unclaimed" in str(each) for each in params["Filters"])
        self.inventories["unclaimed" if of_unclaimed else "all"] += 1
        return {"Volumes": [] if of_unclaimed else [a_volume()], "NextToken": None}


def settled(kube: Kube) -> None:
    """One volume of everything, bound and attached."""
    finalizers = (PROVISIONER_FINALIZER, finalizer_of_attacher(DRIVER))
    kube.put(STORAGE_CLASSES, a_class())
    kube.put(NODES, a_node())
    kube.put(CSI_NODES, a_csi_node())
    kube.put(PERSISTENT_VOLUMES, a_persistent_volume(finalizers=finalizers))
    kube.put(CLAIMS, with_volume(a_claim(), f"pvc-{UID}"))
    kube.put(ATTACHMENTS, an_attachment(attached=True))


class Replica:
    """A controller. Its leases go by virtual time, and losing them does not end the test run."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self.kube, self.ec2, self.stop = kube, Ec2(clock), asyncio.Event()
        client, settings = cast("KubeClient", kube), Settings(cluster_id="bench")
        self.controller = Controller(settings, client, client, self.ec2, Metrics())
        leases: Any = self.controller.leases
        for each in (leases, *leases._leases):
            each._clock = clock
        leases._on_lost = lambda: pytest.fail("a lease was lost")
        self._running = asyncio.create_task(self.controller.run(self.stop))

    @property
    def counts(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        """What it has asked the API server, EC2, and EC2 for inventories."""
        return self.kube.counts, self.ec2.counts, self.ec2.inventories

    async def end(self) -> None:
        self.stop.set()
        await self._running
        self.ec2.limiter.close()


async def hour(
    clock: Clock, lacks: Collection[Resource[Any]]
) -> list[tuple[Counter[str], Counter[str], Counter[str]]]:
    """The counts of a leader and of its standby."""
    leases: dict[str, dict[str, Any]] = {}
    replicas: list[Replica] = []
    for _ in range(2):
        kube = Kube(leases, lacks=lacks)
        settled(kube)
        replicas.append(Replica(kube, clock))
        await asyncio.sleep(_SETTLES_S)
        assert kube.counts["list persistentvolumes"] == 1  # or what counts is not what is asked
    assert [each.controller.leading.is_set() for each in replicas] == [True, False]
    for counts in (counts for each in replicas for counts in each.counts):
        counts.clear()
    await asyncio.sleep(HOUR_S)
    found = [cast("Any", tuple(map(Counter, each.counts))) for each in replicas]
    for each in reversed(replicas):
        await each.end()
    return found


def besides_watches(counts: Counter[str], kinds: Collection[Resource[Any]]) -> Counter[str]:
    """The other requests; each kind is watched again after five to ten minutes."""
    watches = {f"watch {each.plural}": counts[f"watch {each.plural}"] for each in kinds}
    assert all(6 <= count <= 12 for count in watches.values()), watches
    return Counter({what: count for what, count in counts.items() if what not in watches})


@pytest.mark.parametrize("lacks", [(), (ATTRIBUTES_CLASSES,)], ids=["all kinds", "one is missing"])
def test_in_a_quiet_hour_nothing_is_listed_and_all_volumes_are_described_once(
    lacks: tuple[Resource[Any], ...],
) -> None:
    leader, standby = in_virtual_time(lambda clock: hour(clock, lacks))

    kinds = [each for each in ALL_KINDS if each not in lacks]
    discovery = {"get /api": 240, "get /apis": 240} if lacks else {}
    assert besides_watches(leader[0], kinds) == {"patch leases": 2_880, **discovery}
    looks = besides_watches(standby[0], kinds)
    assert 1_920 <= looks.pop("get leases") <= 2_880  # four leases each 5 to 7.5 s
    assert looks == discovery
    assert leader[1:] == ({"DescribeVolumes": 13}, {"unclaimed": 12, "all": 1})
    assert not any(standby[1:])


def test_what_the_page_says_of_the_average_follows_from_the_settings() -> None:
    told = section("design/scale", "A quiet hour")
    pause_s = LeaseSettings("", (), "").retry_s
    renewals, reads = HOUR_S / pause_s, HOUR_S / (1.25 * pause_s)
    certificate = 3 * HOUR_S / (0.9 * Waits().check_s)
    watches = HOUR_S / ((informer._WATCH_MIN_S + informer._WATCH_MAX_S) / 2)

    leader, standby = (4 * each + len(ALL_KINDS) * watches for each in (renewals, reads))
    webhook = renewals + reads + 2 * (certificate + 8 * watches)

    assert f"{4 * reads:,.0f} on average" in told
    assert f"({certificate:.0f} requests an hour" in told
    assert f"the lease of the repairs ({renewals:.0f}) or reads it ({reads:.0f} on average)" in told
    sums = [round(each, -1) for each in (leader, standby, webhook)]
    assert "{:,.0f} the leader, {:,.0f} its standby, {:,.0f} both".format(*sums) in told
    assert f"some {round(sum(sums), -2):,.0f} requests an hour" in told
