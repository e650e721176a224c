"""The reconciler: what came past the webhook is completed, and what cannot be is told once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from provisioner.kube import wire
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.kube.informer import Informer
from provisioner.kube.lease import Leases
from provisioner.model.backoff import Backoff
from provisioner.model.errors import Ec2Error, KubeError, Reason
from tests.webhook.edges import Ec2, Kube, a_persistent_volume
from webhook.metrics import WebhookMetrics
from webhook.model.cluster_view import NodeView
from webhook.model.review import Json
from webhook.repairs import flow, rules
from webhook.repairs.flow import FOUGHT_OVER, WRONG_AFFINITY, Repairs
from webhook.reviews import caches
from webhook.reviews import zone_lookup as lookup
from webhook.reviews.zone_lookup import ZoneLookup

DRIVER = "ebs.csi.aws.com"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
A, B = "us-east-1a", "us-east-1b"
VOLUME = "vol-0123456789abcdef0"
PVS = "persistentvolumes"


def a_view(zone: str = A, **labels: str) -> NodeView:
    told = {ZONE: zone} | labels
    return NodeView(tuple(sorted(told.items())), zone, schedulable=True, has_driver=True)


@dataclass
class Writable(Kube):
    """Also takes merge patches; ``refusals`` are raised first, one a patch."""

    refusals: list[KubeError] = field(default_factory=list)
    affinity_is_fixed: bool = True  # without the feature gate MutablePVNodeAffinity
    patched: list[str] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    lists: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def list(self, resource: Any, **more: Any) -> wire.Listing[Any]:
        self.lists += 1
        return await super().list(resource, **more)

    async def patch(self, resource: Any, name: str, body: Json, **_: Any) -> Any:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        self.patched.append(name)
        self.news.set()
        if self.refusals:
            raise self.refusals.pop(0)
        found = self.objects[PVS, name]
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise KubeError(Reason.CONFLICT, "it has changed")
        there, wished = found["spec"].get("nodeAffinity"), body.get("spec", {}).get("nodeAffinity")
        if self.affinity_is_fixed and there is not None and wished not in (None, there):
            raise KubeError(Reason.REJECTED, "spec.nodeAffinity: field is immutable")
        changed = msgspec.json.decode(msgspec.json.encode(found))
        labels = changed["metadata"].get("labels", {}) | body["metadata"].get("labels", {})
        changed["metadata"]["labels"] = {k: v for k, v in labels.items() if v is not None}
        changed["spec"] |= body.get("spec", {})
        self.put(PVS, changed)
        return wire.decode_object(resource, msgspec.json.encode(changed))


@dataclass
class Lease:
    """A lease that is always free; ``lose`` takes it away."""

    lost: asyncio.Event = field(default_factory=asyncio.Event)
    taken_again: asyncio.Event = field(default_factory=asyncio.Event)

    async def acquire(self) -> None:
        await asyncio.sleep(0)
        if self.lost.is_set():
            self.taken_again.set()
        self.lost.clear()

    async def hold(self) -> None:
        await self.lost.wait()


@dataclass
class World:
    kube: Writable = field(default_factory=Writable)
    ec2: Ec2 = field(default_factory=lambda: Ec2({VOLUME: A}))
    nodes: list[NodeView] = field(default_factory=lambda: [a_view()])
    lease: Lease = field(default_factory=Lease)
    metrics: WebhookMetrics = field(default_factory=WebhookMetrics)
    events: list[tuple[Regarding, str, str]] = field(default_factory=list)

    def record(self, regarding: Regarding, *, warning: bool, reason: str, message: str) -> None:
        assert warning
        self.events.append((regarding, reason, message))
        self.kube.news.set()

    async def until(self, so: Callable[[], object]) -> None:
        """Wait until something is so; looked at after each write and each event."""
        async with asyncio.timeout(10):
            while not so():
                self.kube.news.clear()
                await self.kube.news.wait()

    def labels(self, name: str = "pv") -> dict[str, str]:
        found: dict[str, str] = self.kube.objects[PVS, name]["metadata"].get("labels", {})
        return found

    def affinity(self, name: str = "pv") -> Any:
        return self.kube.objects[PVS, name]["spec"].get("nodeAffinity")

    def count(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.metrics.registry.get_sample_value("ebs_webhook_repairs_total", labels) or 0.0

    @asynccontextmanager
    async def repairing(
        self, *, all_again_s: float = 600.0, label_rest_s: float = 60.0
    ) -> AsyncIterator[None]:
        lookup = ZoneLookup(self.ec2.volumes, self.metrics)
        volumes = Informer(self.kube.client, caches.volumes(DRIVER), self.metrics)
        work = Repairs(
            client=self.kube.client,
            volumes=volumes,
            nodes=lambda: self.nodes,
            lookup=lookup,
            leases=cast("Leases", self.lease),
            events=cast("EventRecorder", self),
            metrics=self.metrics,
            driver=DRIVER,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flow, "_ALL_AGAIN_S", all_again_s)
            patch.setattr(rules, "_REST", Backoff(label_rest_s, 3600.0))
            running = [asyncio.create_task(volumes.run())]
            await volumes.synced.wait()
            running.append(asyncio.create_task(work.run()))
            try:
                yield
            finally:
                for each in running:
                    each.cancel()
                await asyncio.gather(*running, return_exceptions=True)
                await lookup.close()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "_AGAIN", Backoff(0.01, 60.0))


def a_pv(name: str = "pv", **more: Any) -> Json:
    return a_persistent_volume(name, **({"volume": VOLUME, "zone": None} | more))


def pinned(zone: str) -> Json:
    within = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [within]}]}}


async def test_a_bare_persistent_volume_gets_labels_and_affinity(world: World):
    world.kube.put(PVS, a_pv(labels={"team": "shop"}))

    async with world.repairing():
        await world.until(world.affinity)

    assert world.labels() == {"team": "shop", ZONE: A}
    assert world.affinity() == pinned(A)
    assert world.count("repaired") == 1


async def test_the_affinity_has_the_key_that_nodes_have(world: World):
    key = "topology.ebs.csi.aws.com/zone"
    world.nodes[:] = [NodeView(((key, A),), A, schedulable=True, has_driver=True)]
    world.kube.put(PVS, a_pv())

    async with world.repairing():
        await world.until(world.affinity)

    assert world.affinity()["required"]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [A]}]}
    ]


async def test_one_that_appears_later_gets_them_too(world: World):
    world.kube.put(PVS, a_pv("other", zone=A, labels={}))

    async with world.repairing():
        await world.until(lambda: world.labels("other"))
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)

    assert (world.labels(), world.affinity()) == ({ZONE: A}, pinned(A))


async def test_who_repairs_lists_nothing_that_the_caches_of_reviews_have(world: World):
    world.kube.put(PVS, a_pv("first"))

    async with world.repairing():
        await world.until(lambda: world.labels("first"))
        world.lease.lost.set()
        await asyncio.wait_for(world.lease.taken_again.wait(), 10)
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)

    assert world.kube.lists == 1


async def test_an_in_tree_one_gets_them_too(world: World):
    source = {"volumeID": f"aws://{B}/{VOLUME}"}
    world.kube.put(PVS, {"metadata": {"name": "pv"}, "spec": {"awsElasticBlockStore": source}})

    async with world.repairing():
        await world.until(world.affinity)

    assert (world.labels(), world.affinity()) == ({ZONE: A}, pinned(A))


async def test_a_wrong_label_is_corrected_where_the_affinity_is_right(world: World):
    world.kube.put(PVS, a_pv(zone=A, labels={ZONE: B}))

    async with world.repairing():
        await world.until(lambda: world.labels() == {ZONE: A})

    assert world.affinity() == pinned(A)


async def test_a_wrong_label_is_removed_where_nodes_lack_the_right_one(world: World):
    world.kube.put(PVS, a_pv(zone=A, labels={ZONE: A, REGION: "us-west-2"}))

    async with world.repairing():
        await world.until(lambda: world.labels() == {ZONE: A})


@pytest.mark.parametrize("labels", [{}, {ZONE: B}], ids=["removed", "changed"])
async def test_a_label_that_somebody_takes_away_later_comes_back(
    world: World, labels: dict[str, str]
):
    world.kube.put(PVS, a_pv("other"))

    async with world.repairing():
        await world.until(lambda: world.labels("other"))
        world.kube.put(PVS, a_pv(zone=A, labels={ZONE: A}))
        world.kube.put(PVS, a_pv(zone=A, labels=labels))
        await world.until(lambda: world.labels() == {ZONE: A})


async def test_of_a_complete_one_nothing_is_read_and_nothing_written(world: World):
    world.kube.put(PVS, a_pv("complete", zone=A, labels={ZONE: A}), a_pv())

    async with world.repairing():
        await world.until(lambda: world.labels("pv"))

    assert world.kube.patched == ["pv"]
    assert world.kube.read == ["persistentvolumes pv"]


async def test_a_complete_one_that_appears_later_is_no_question_to_ec2_by_itself(world: World):
    other = "vol-0aaaaaaaaaaaaaaa0"
    world.ec2.zones[other] = A

    async with world.repairing():
        world.kube.put(PVS, a_pv("first"))
        await world.until(lambda: world.labels("first"))
        world.kube.put(PVS, a_pv("complete", volume=other, zone=A, labels={ZONE: A}))
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)

    assert {each for asked in world.ec2.asked for each in asked} == {VOLUME}


async def test_it_is_when_all_are_looked_at_again(world: World):
    other = "vol-0aaaaaaaaaaaaaaa0"
    world.ec2.zones[other] = B

    async with world.repairing(all_again_s=0.05):
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)
        world.kube.put(PVS, a_pv("wrong", volume=other, zone=A, labels={ZONE: A}))
        await world.until(lambda: world.events)

    assert world.events[0][0].name == "wrong"


async def test_ec2_is_asked_once_about_each_however_many_there_are_and_however_often_all_are_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """A volume never moves: what an affinity says of it needs no second proof."""
    monkeypatch.setattr(lookup, "_MOST_ZONES", 10)
    ids = [f"vol-{number:017x}" for number in range(1, 301)]
    world.ec2.zones.update(dict.fromkeys(ids, A))
    world.kube.put(PVS, *(a_pv(each, volume=each, zone=A, labels={ZONE: A}) for each in ids))
    missing = "vol-0dead000000000000"
    world.kube.put(PVS, a_pv("lost", volume=missing, zone=A))

    def looks_at_all() -> int:
        return sum(missing in asked for asked in world.ec2.asked) // 2

    async with world.repairing(all_again_s=0.05):
        async with asyncio.timeout(30):
            while looks_at_all() < 3:  # noqa: ASYNC110 -- a fake tells nobody
                await asyncio.sleep(0.01)

    asked = Counter(each for asked in world.ec2.asked for each in asked)
    assert {asked[each] for each in ids} == {1}


async def test_one_whose_affinity_changes_is_proven_anew(world: World):
    """Where the API server has the feature gate MutablePVNodeAffinity."""
    world.nodes.append(a_view(B))
    world.kube.put(PVS, a_pv(zone=A, labels={ZONE: A}))

    async with world.repairing(all_again_s=0.05):
        async with asyncio.timeout(30):
            while not world.ec2.asked:  # noqa: ASYNC110 -- a fake tells nobody
                await asyncio.sleep(0.01)
        world.ec2.zones.clear()
        world.kube.put(PVS, a_pv("other", volume=VOLUME, zone=A, labels={ZONE: A}))
        world.ec2.zones[VOLUME] = A
        world.kube.put(PVS, a_pv(zone=B, labels={ZONE: B}))
        await world.until(lambda: world.events)

    assert world.events[0][0].name == "pv"


async def test_a_wrong_affinity_is_told_once_with_what_to_do(world: World):
    world.kube.put(PVS, a_pv(zone=B, uid="uid-1"))
    looks = 0

    async def count_a_look() -> None:
        nonlocal looks
        looks += 1
        world.kube.news.set()

    world.kube.first = count_a_look

    async with world.repairing(all_again_s=0.01, label_rest_s=0.0):
        await world.until(lambda: looks >= 4)

    ((regarding, reason, message),) = world.events
    assert (regarding.kind, regarding.name, regarding.uid) == ("PersistentVolume", "pv", "uid-1")
    assert reason == WRONG_AFFINITY
    assert A in message
    assert B in message
    assert "create both again" in message
    assert world.affinity() == pinned(B)  # never touched
    assert world.count("warned") == 1


async def test_an_api_server_that_keeps_affinities_is_asked_once_to_change_one(world: World):
    other = "vol-0aaaaaaaaaaaaaaa0"
    world.ec2.zones[other] = A
    world.kube.put(PVS, a_pv(zone=B, labels={ZONE: A}))

    async with world.repairing():
        await world.until(lambda: world.events)
        world.kube.put(PVS, a_pv("two", volume=other, zone=B, labels={ZONE: A}))
        await world.until(lambda: len(world.events) == 2)

    assert world.kube.patched == ["pv"]


async def test_an_api_server_that_was_upgraded_to_change_affinities_is_found_out(world: World):
    world.kube.put(PVS, a_pv(zone=B, labels={ZONE: A}))

    async with world.repairing(all_again_s=0.05):
        await world.until(lambda: world.events)
        world.kube.affinity_is_fixed = False
        await world.until(lambda: world.affinity() == pinned(A))

    assert len(world.events) == 1


async def test_a_wrong_affinity_is_corrected_where_the_api_server_lets_it_change(world: World):
    world.kube.affinity_is_fixed = False
    world.kube.put(PVS, a_pv(zone=B, labels={ZONE: B}))

    async with world.repairing():
        await world.until(lambda: world.affinity() == pinned(A))

    assert world.labels() == {ZONE: A}
    assert world.events == []
    assert world.count("repaired") == 1


async def test_a_repair_waits_for_ec2_where_the_zone_was_forgotten_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lookup, "_MOST_ZONES", 1)
    other = "vol-0aaaaaaaaaaaaaaa0"
    world.ec2.zones[other] = A
    world.kube.put(PVS, a_pv(), a_pv("two", volume=other))

    async with world.repairing():
        await world.until(lambda: world.affinity() and world.affinity("two"))

    assert [len(each) for each in world.ec2.asked] == [2, 1]
    doubts = {"source": "ec2", "outcome": "doubt"}
    assert not world.metrics.registry.get_sample_value("ebs_webhook_lookups_total", doubts)


async def test_what_ec2_did_not_say_is_asked_again(world: World):
    failures = [Ec2Error(Reason.UNREACHABLE, "away", action="DescribeVolumes")] * 3

    async def fail() -> None:
        if failures:
            raise failures.pop()

    world.ec2.first = fail
    world.kube.put(PVS, a_pv())

    async with world.repairing():
        await world.until(world.affinity)

    assert not failures
    assert world.labels() == {ZONE: A}


async def test_of_a_volume_that_is_missing_nothing_is_written(world: World):
    world.kube.put(PVS, a_pv("lost", volume="vol-0dead000000000000"))

    async def tell() -> None:
        world.kube.news.set()

    world.ec2.first = tell

    async with world.repairing():
        await world.until(lambda: len(world.ec2.asked) >= 2)
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)

    assert world.kube.patched == ["pv"]
    assert "nodeAffinity" not in world.kube.objects[PVS, "lost"]["spec"]


@pytest.mark.parametrize(
    "other",
    [
        a_pv("other", driver="efs.csi.aws.com"),
        a_pv("other", deletionTimestamp="2026-11-21T00:00:00Z"),
        a_pv("other", volume="no-volume-id"),
        {"metadata": {"name": "other"}, "spec": {"hostPath": {"path": "/"}}},
        {"metadata": {"name": "other", "labels": None}, "spec": {}},
    ],
    ids=["another driver's", "being deleted", "no volume id", "no EBS", "nothing"],
)
async def test_others_are_left_alone(world: World, other: Json):
    world.kube.put(PVS, other, a_pv())

    async with world.repairing():
        await world.until(world.affinity)

    assert world.kube.patched == ["pv"]
    assert "other" not in str(world.kube.read)


async def test_a_write_that_came_too_late_is_decided_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.kube.put(PVS, a_pv())
    raced = False

    async def somebody_else() -> None:
        nonlocal raced
        if not raced:
            raced = True
            meant = world.kube.patch

            async def late(resource: Any, name: str, body: Json, **more: Any) -> Any:
                monkeypatch.setattr(world.kube, "patch", meant)
                world.kube.put(PVS, a_pv(zone=A))
                return await meant(resource, name, body, **more)

            monkeypatch.setattr(world.kube, "patch", late)

    world.kube.first = somebody_else

    async with world.repairing():
        await world.until(world.labels)

    assert world.kube.patched == ["pv", "pv"]
    assert (world.labels(), world.affinity()) == ({ZONE: A}, pinned(A))


async def test_labels_that_somebody_changes_back_at_once_are_left_alone_for_a_while(world: World):
    world.kube.put(PVS, a_pv("fought", zone=A, labels={ZONE: B}))

    async with world.repairing():
        await world.until(lambda: world.labels("fought") == {ZONE: A})
        world.kube.put(PVS, a_pv("fought", zone=A, labels={ZONE: B}))
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)
        world.kube.remove(PVS, "fought")  # made anew, it does not wait
        world.kube.put(PVS, a_pv("fought", zone=A, labels={ZONE: B}))
        await world.until(lambda: world.labels("fought") == {ZONE: A})

    assert world.kube.patched == ["fought", "pv", "fought"]
    assert world.events == []


async def test_who_fights_over_labels_is_told_once(world: World):
    world.kube.put(PVS, a_pv(zone=A, labels={ZONE: B}, uid="uid-1"))

    async with world.repairing(label_rest_s=0.01):
        for _ in range(4):
            await world.until(lambda: world.labels() == {ZONE: A})
            world.kube.put(PVS, a_pv(zone=A, labels={ZONE: B}, uid="uid-1"))

    ((regarding, reason, message),) = world.events
    assert (regarding.name, regarding.uid, reason) == ("pv", "uid-1", FOUGHT_OVER)
    assert f"something else keeps changing {ZONE}," in message
    assert A in message


@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.FORBIDDEN])
async def test_what_somebody_refuses_does_not_stop_the_others(world: World, reason: Reason):
    world.kube.refusals = [KubeError(reason, "another webhook says no", status=422)]
    world.kube.put(PVS, a_pv("refused"))

    async with world.repairing():
        await world.until(lambda: world.kube.patched)
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)

    assert world.kube.patched == ["refused", "pv"]
    assert world.count("refused") == 1


@pytest.mark.parametrize("reason", [Reason.FORBIDDEN, Reason.UNREACHABLE, Reason.CONFLICT])
async def test_however_many_fail_the_rest_is_repaired(
    world: World, monkeypatch: pytest.MonkeyPatch, reason: Reason
):
    meant = world.kube.patch

    async def fails(resource: Any, name: str, body: Json, **more: Any) -> Any:
        if name.startswith("bad"):
            raise KubeError(reason, "no")
        return await meant(resource, name, body, **more)

    monkeypatch.setattr(world.kube, "patch", fails)
    world.kube.put(PVS, *(a_pv(f"bad-{number}") for number in range(150)), a_pv())

    async with world.repairing():
        await world.until(world.affinity)


async def test_labels_are_added_when_nodes_have_come(world: World):
    world.nodes.clear()
    world.kube.put(PVS, a_pv())

    async with world.repairing(all_again_s=0.05):
        await world.until(world.affinity)
        assert world.labels() == {}
        world.nodes.append(a_view(**{REGION: "us-east-1"}))
        await world.until(world.labels)

    assert world.labels() == {ZONE: A, REGION: "us-east-1"}


async def test_a_label_that_nodes_lack_is_no_reason_to_look_at_each_one(world: World):
    world.kube.put(PVS, *(a_pv(f"pv-{n}", zone=A, labels={ZONE: A}) for n in range(50)))
    world.kube.put(PVS, a_pv())

    async with world.repairing(all_again_s=0.01):
        await world.until(world.affinity)

    assert REGION not in world.labels()
    assert set(world.kube.read) == {"persistentvolumes pv"}


async def test_many_are_repaired_a_few_at_a_time(world: World):
    volumes = {f"vol-0{number:016x}": (A, B)[number % 2] for number in range(500)}
    world.ec2.zones |= volumes
    world.nodes.append(a_view(B))
    world.kube.put(PVS, *(a_pv(f"pv-{volume}", volume=volume) for volume in volumes))

    async with world.repairing():
        await world.until(lambda: len(world.kube.patched) >= len(volumes))

    for volume, zone in volumes.items():
        assert world.affinity(f"pv-{volume}") == pinned(zone)
    assert world.kube.most_under_way <= 64
    assert len(world.ec2.asked) <= 5


async def test_after_a_lost_lease_it_waits_for_the_lease_again(world: World):
    world.kube.put(PVS, a_pv("first"))

    async with world.repairing():
        await world.until(lambda: world.labels("first"))
        assert world.metrics.registry.get_sample_value("ebs_webhook_leader") == 1
        world.lease.lost.set()
        await asyncio.wait_for(world.lease.taken_again.wait(), 10)
        world.kube.put(PVS, a_pv())
        await world.until(world.affinity)

    assert world.kube.patched == ["first", "pv"]
    assert world.metrics.registry.get_sample_value("ebs_webhook_leader") == 0
