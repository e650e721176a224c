"""What the webhook keeps of the cluster, and that it keeps nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.kube import wire
from provisioner.kube.informer import Informer
from provisioner.kube.resources import Projection
from provisioner.metrics import Metrics
from provisioner.model.names import CLONE_ACROSS_ZONES
from tests.bench import standing
from tests.webhook.edges import (
    Kube,
    a_claim,
    a_csi_node,
    a_node,
    a_persistent_volume,
    running,
    settled,
)
from webhook.model.cluster_view import ClaimView, ClassView, NodeView, VolumeView
from webhook.model.review import Json
from webhook.reviews.caches import Caches, nodes, registrations

DRIVER = "ebs.csi.aws.com"
ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
A, B = "us-east-1a", "us-east-1b"


@asynccontextmanager
async def caches_of(kube: Kube) -> AsyncIterator[Caches]:
    caches = Caches(kube.client, Metrics(), DRIVER)
    async with running(caches):
        yield caches


async def volume_view(persistent_volume: Json) -> VolumeView | None:
    kube = Kube()
    kube.put("persistentvolumes", persistent_volume)
    async with caches_of(kube) as caches:
        return caches.volume(persistent_volume["metadata"]["name"])


def a_class(name: str = "fast", **fields: Any) -> Json:
    return {"metadata": {"name": name}, "provisioner": DRIVER, **fields}


def term(key: str, *values: str, operator: str = "In") -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def placed(*terms: Json, labels: dict[str, str] | None = None) -> Json:
    pv = a_persistent_volume(zone=None, labels=labels)
    pv["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(terms)}}
    return pv


def in_tree(pv: Json) -> Json:
    """The same in the form of the in-tree plugin."""
    pv["spec"]["awsElasticBlockStore"] = {"volumeID": pv["spec"].pop("csi")["volumeHandle"]}
    return pv


async def test_a_claim_is_kept_as_the_volume_it_is_bound_to_and_its_class():
    kube = Kube()
    claims = a_claim("data", bound="pv"), a_claim("new"), a_claim("wish", asks_for="theirs")
    kube.put("persistentvolumeclaims", *claims)

    async with caches_of(kube) as caches:
        assert caches.claim("shop/data") == ClaimView("pv", "fast", "uid-shop/data")
        assert caches.claim("shop/new") == ClaimView("", "fast")
        assert caches.claim("shop/wish") == ClaimView("", "")
        assert caches.claim("other/data") is None


async def test_the_class_of_a_claim_may_still_be_an_annotation():
    kube = Kube()
    claim = a_claim("old", storage_class="")
    claim["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "slow"}
    kube.put("persistentvolumeclaims", claim)

    async with caches_of(kube) as caches:
        assert caches.claim("shop/old") == ClaimView("", "slow")


async def test_caches_follow_the_cluster():
    kube = Kube()
    kube.put("persistentvolumeclaims", a_claim("data"))

    async with caches_of(kube) as caches:
        await settled()
        kube.put("persistentvolumes", a_persistent_volume("pv"))
        kube.put("persistentvolumeclaims", a_claim("data", bound="pv"))
        await settled()
        bound, volume = caches.claim("shop/data"), caches.volume("pv")
        kube.remove("persistentvolumes", "pv")
        await settled()

        assert bound == ClaimView("pv", "fast", "uid-shop/data")
        assert volume is not None
        seen = (volume.volume_id, volume.zones, volume.claim_namespace, volume.claim_uid)
        assert seen == ("vol-1", frozenset({A}), "shop", "uid-shop/data")
        assert caches.volume("pv") is None


async def test_persistent_volumes_are_found_by_the_volume_that_they_are_on():
    kube = Kube()
    first, second = a_persistent_volume("a"), a_persistent_volume("b")
    kube.put("persistentvolumes", first)

    async with caches_of(kube) as caches:
        await settled()
        kube.put("persistentvolumes", second, a_persistent_volume("c", volume="vol-2"))
        await settled()
        assert caches.backed_by("vol-1") == ("a", "b")
        kube.put("persistentvolumes", a_persistent_volume("a", volume="vol-2"))
        await settled()
        assert (caches.backed_by("vol-1"), caches.backed_by("vol-2")) == (("b",), ("c", "a"))
        kube.remove("persistentvolumes", "b")
        await settled()
        assert caches.backed_by("vol-1") == ()


@pytest.mark.parametrize(
    ("persistent_volume", "zones"),
    [
        (placed(term(ZONE, A)), {A}),
        (placed(term("topology.ebs.csi.aws.com/zone", A)), {A}),
        (placed(term(ZONE, A), term(ZONE, B)), {A, B}),
        (placed(term(ZONE, A), {"matchFields": [{"key": "metadata.name"}]}), None),
        (placed(term("kubernetes.io/os", "linux")), None),
        (placed(term(ZONE, A), labels={ZONE: B}), {A}),
        (in_tree(placed({"matchExpressions": None}, labels={ZONE: B})), {B}),
        (a_persistent_volume(zone=None), None),
        (a_persistent_volume(zone=None, labels={ZONE: A}), None),
        (placed(term(ZONE, A)) | {"metadata": {"name": "pv", "deletionTimestamp": "2026"}}, None),
        (in_tree(a_persistent_volume(zone=None, labels={ZONE: A})), {A}),
        (in_tree(a_persistent_volume(zone=None, labels={BETA_ZONE: A})), {A}),
        (in_tree(a_persistent_volume(zone=None, labels={ZONE: f"{A}__{B}"})), {A, B}),
        (in_tree(a_persistent_volume(zone=None, labels={ZONE: ""})), None),
        (in_tree(a_persistent_volume(zone=None, labels={ZONE: "rack-7"})), None),
        (placed(term(ZONE, "rack-7")), None),
        (
            {
                "metadata": {"name": "pv"},
                "spec": {"csi": {"driver": DRIVER, "volumeHandle": "vol-1"}, "nodeAffinity": None},
            },
            None,
        ),
        (
            {
                "metadata": {"name": "pv"},
                "spec": {
                    "csi": {"driver": DRIVER, "volumeHandle": "vol-1"},
                    "nodeAffinity": {"required": None},
                },
            },
            None,
        ),
    ],
)
async def test_the_zones_of_a_volume_are_those_of_its_affinity_else_in_tree_of_its_label(
    persistent_volume: Json, zones: Iterable[str] | None
):
    view = await volume_view(persistent_volume)

    assert view is not None
    assert (view.volume_id, view.zones) == ("vol-1", None if zones is None else frozenset(zones))


async def test_an_in_tree_volume_is_kept_by_its_bare_id():
    spec = {"awsElasticBlockStore": {"volumeID": f"aws://{A}/vol-9"}}

    view = await volume_view({"metadata": {"name": "old", "labels": {ZONE: A}}, "spec": spec})

    assert view is not None
    assert (view.volume_id, view.zones, view.claim_uid) == ("vol-9", frozenset({A}), "")


async def test_how_volumes_are_placed_is_kept_once_for_all_that_are_placed_alike():
    one, two = [await volume_view(placed(term(ZONE, A), labels={ZONE: A})) for _ in range(2)]
    other = await volume_view(placed(term(ZONE, A), labels={ZONE: B}))

    assert one is not None
    assert two is not None
    assert other is not None
    assert one.placement is two.placement
    assert one.placement != other.placement


@pytest.mark.parametrize(
    "persistent_volume",
    [
        placed(term(ZONE, A)) | {"metadata": {"name": "pv", "deletionTimestamp": "2026"}},
        a_persistent_volume(volume="not-a-volume"),
        a_persistent_volume(driver="ebs.csi.eks.amazonaws.com"),
    ],
    ids=["being deleted", "of no volume", "of EKS Auto Mode"],
)
async def test_how_one_is_placed_that_is_not_ours_to_repair_is_not_kept(persistent_volume: Json):
    view = await volume_view(persistent_volume)

    assert view is not None
    assert view.placement == b""


async def test_nothing_at_all_is_kept_of_volumes_and_classes_of_other_drivers():
    kube = Kube()
    kube.put("persistentvolumes", a_persistent_volume("nfs", driver="nfs.csi.k8s.io"))
    kube.put("persistentvolumes", {"metadata": {"name": "bare"}, "spec": {"nfs": {"path": "/"}}})
    kube.put("storageclasses", a_class("nfs") | {"provisioner": "nfs.csi.k8s.io"})

    async with caches_of(kube) as caches:
        await settled()
        kube.put("persistentvolumes", a_persistent_volume("late", driver="nfs.csi.k8s.io"))
        await settled()

        assert [caches.volume(name) for name in ("nfs", "bare", "late")] == [None] * 3
        assert caches.storage_class("nfs") is None
        assert kept_by(caches.volumes) + kept_by(caches._classes) == []


def kept_by(informer: Informer[Any]) -> list[Any]:
    return list(informer.values())


async def test_what_is_kept_of_a_volume_is_its_view_name_and_version():
    kube = Kube()
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000}
    kube.put("persistentvolumes", a_persistent_volume(annotations=annotations, uid="u"))

    async with caches_of(kube) as caches:
        (kept,) = kept_by(caches.volumes)

    assert (kept.name, kept.metadata.resource_version) == ("pv", "11")
    assert set(structs.asdict(kept.metadata)) == {"key", "resource_version"}
    assert (kept.metadata.name, kept.metadata.namespace) == ("pv", "")


@pytest.mark.parametrize(
    ("projection", "made"),
    [(nodes(), standing.node), (registrations(DRIVER), standing.csi_node)],
    ids=["Node", "CSINode"],
)
def test_what_nobody_asks_of_nodes_is_kept_in_no_table_of_common_parts(
    projection: Projection[Any], made: Callable[[int], Json]
):
    def see(n: int) -> None:
        wire.decode_object(projection.resource, msgspec.json.encode(made(n)), projection.trim)

    tables = wire._text, wire._value
    see(70_000)  # no other test has made it
    before = [table.cache_info().misses for table in tables]

    see(70_300)  # in the same zone

    assert [table.cache_info().misses for table in tables] == before


async def test_of_a_claim_the_name_is_kept_once():
    kube = Kube()
    kube.put("persistentvolumeclaims", a_claim("data", bound="pv", namespace="shop"))

    async with caches_of(kube) as caches:
        (kept,) = kept_by(caches._claims)
        (key,) = caches._claims._store._objects

    assert (kept.name, kept.metadata.namespace) == ("data", "shop")
    assert kept.key is key


async def test_equal_zones_are_kept_once():
    kube = Kube()
    kube.put("persistentvolumes", *(a_persistent_volume(f"pv-{n}") for n in range(3)))
    kube.put("nodes", *(a_node(f"node-{n}") for n in range(3)))
    kube.put("csinodes", *(a_csi_node(f"node-{n}") for n in range(3)))

    async with caches_of(kube) as caches:
        volumes = [caches.volume(f"pv-{n}") for n in range(3)]

        assert len({id(volume.zones) for volume in volumes if volume}) == 1
        assert len({id(node) for node in caches.nodes_by_name.values()}) == 1
        assert len(caches.node_views()) == 1


@pytest.mark.parametrize(
    ("fields", "view"),
    [
        ({"volumeBindingMode": "WaitForFirstConsumer"}, ClassView(waits=True, zones=None)),
        ({"volumeBindingMode": "Immediate"}, ClassView(waits=False, zones=None)),
        ({}, ClassView(waits=False, zones=None)),
        ({"provisioner": "kubernetes.io/aws-ebs"}, ClassView(waits=False, zones=None)),
        (
            {"provisioner": "kubernetes.io/aws-ebs", "parameters": {"zones": f"{A}, {B}"}},
            ClassView(waits=False, zones=frozenset({A, B})),
        ),
        ({"parameters": {"typ": "gp3"}}, ClassView(waits=False, zones=None)),
        (
            {"metadata": {"name": "fast", "annotations": {CLONE_ACROSS_ZONES: "true"}}},
            ClassView(waits=False, zones=None, goes_across=True),
        ),
        (
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": [A, B]}]}]},
            ClassView(waits=False, zones=frozenset({A, B})),
        ),
    ],
)
async def test_a_class_is_kept_as_how_it_binds_and_where(fields: Json, view: ClassView):
    kube = Kube()
    kube.put("storageclasses", a_class(**fields))

    async with caches_of(kube) as caches:
        assert caches.storage_class("fast") == view


async def test_a_node_is_its_topology_and_whether_pods_and_the_driver_are_there():
    kube = Kube()
    labels = {
        "kubernetes.io/hostname": "node-1",
        "topology.kubernetes.io/region": "us-east-1",
        ZONE: A,
    }
    kube.put("nodes", {"metadata": {"name": "node-1", "labels": labels}})
    kube.put("nodes", a_node("bare", zone=None), a_node("cordoned", cordoned=True))
    kube.put("csinodes", a_csi_node("node-1"), a_csi_node("cordoned", "other.csi"))

    async with caches_of(kube) as caches:
        assert caches.nodes_by_name == {
            "node-1": NodeView(
                (("topology.kubernetes.io/region", "us-east-1"), (ZONE, A)),
                A,
                schedulable=True,
                has_driver=True,
            ),
            "bare": NodeView((), None, schedulable=True, has_driver=False),
            "cordoned": NodeView(((ZONE, A),), A, schedulable=False, has_driver=False),
        }


async def test_a_node_and_its_driver_come_and_go_in_any_order():
    kube = Kube()
    async with caches_of(kube) as caches:
        await settled()

        async def now() -> bool | None:
            await settled()
            node = caches.node("node-1")
            return node.has_driver if node else None

        kube.put("csinodes", a_csi_node())
        seen = [await now()]
        kube.put("nodes", a_node())
        seen.append(await now())
        kube.put("csinodes", a_csi_node("node-1", "other.csi"))
        seen.append(await now())
        kube.put("csinodes", a_csi_node())
        seen.append(await now())
        kube.remove("csinodes", "node-1")
        seen.append(await now())
        kube.remove("nodes", "node-1")
        seen.append(await now())

    assert seen == [None, True, False, True, False, None]


async def test_the_caches_are_synced_when_every_kind_was_listed():
    kube, let_go = Kube(), asyncio.Event()
    listed = kube.list

    async def slow(resource: Any, **given: Any) -> Any:
        if resource.plural == "csinodes":
            await let_go.wait()
        return await listed(resource, **given)

    kube.list = slow  # type: ignore[method-assign]
    caches = Caches(kube.client, Metrics(), DRIVER)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(caches.run())
        await settled()
        before = caches.is_synced
        let_go.set()
        await caches.synced()
        following.cancel()

    assert (before, caches.is_synced) == (False, True)
