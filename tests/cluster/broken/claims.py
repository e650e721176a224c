"""Claims that no call of EC2 could help: what they name, ask for, or wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.volume_move import GATE
from tests.cluster import copies, growing, hands
from tests.cluster.broken import quiet_nodes
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.cluster import CLASSES, PVS, Json
from tests.cluster.place import Place

matrix = Matrix(Section.CLAIM_PENDING)
broken = matrix.broken

ELSEWHERE = "didn't match PersistentVolume's node affinity"
"""Seen with Kubernetes 1.36. Older schedulers: "had volume node affinity conflict"."""


async def kubernetes_says(place: Place, reason: str, *words: str, name: str = "data") -> None:
    """Wait for an event about an object, whoever writes it."""
    await growing.told(place, reason, *words, name=name)


@broken("The claim names a class that does not exist", "ClassNotFound", check="claims-of-no-class")
@asynccontextmanager
async def no_such_class(place: Place) -> AsyncIterator[str]:
    await place.claim(f"{place.name}-nowhere")
    await kubernetes_says(place, "ProvisioningFailed", "not found")
    yield "pvc data"


@broken("The class of the claim was deleted before its pod came", "ClassNotFound")
@asynccontextmanager
async def class_deleted(place: Place) -> AsyncIterator[str]:
    claim = await place.waiting_claim()
    await kubernetes_says(place, "WaitForFirstConsumer")
    await place.api.delete(f"{CLASSES}/{place.name}-waits")
    await kubernetes_says(place, "ProvisioningFailed", "not found")
    await place.pod(claim)
    yield "pod data"


@broken("The class has a parameter that can never work", "InvalidClass", check="classes")
@asynccontextmanager
async def impossible_class(place: Place) -> AsyncIterator[str]:
    await place.claim(await place.storage_class(parameters={"type": "gp3", "iops": "many"}))
    await place.told("InvalidClass")
    yield "pvc data"


@broken("The claim requests more than a volume can have", "InvalidRequest")
@asynccontextmanager
async def impossible_claim(place: Place) -> AsyncIterator[str]:
    name = await place.storage_class()
    await place.claim(name, resources={"requests": {"storage": "100Ti"}})
    await place.told("too large")
    yield "pvc data"


@broken("A ResourceQuota of the namespace is used up", "ResourceQuotaExceeded")
@asynccontextmanager
async def namespace_is_full(place: Place) -> AsyncIterator[str]:
    """The API server refuses the claim, so a StatefulSet never gets its pod."""
    quotas = f"/api/v1/namespaces/{place.name}/resourcequotas"
    hard = {"hard": {"persistentvolumeclaims": "0"}}
    await place.api.create(quotas, {"metadata": {"name": "storage"}, "spec": hard})

    async def in_force() -> bool:
        return "exceeded quota" in await hands.refusal_of_claim(place.api, place.name)

    await place.cluster.until("the quota is in force", in_force)
    path = await _stateful_set(place, await place.storage_class())
    await kubernetes_says(place, "FailedCreate", "exceeded quota", name="db")
    yield "pvc data-db-0"
    await place.api.delete(f"{quotas}/storage")
    await place.remove(path)


async def _stateful_set(place: Place, class_name: str) -> str:
    labels = {"app": place.name}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": class_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "main"}]},
    }
    spec = {
        "serviceName": "none",
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    path = f"/apis/apps/v1/namespaces/{place.name}/statefulsets"
    await place.api.create(path, {"metadata": {"name": "db"}, "spec": spec})
    return f"{path}/db"


@broken("The claim is deleted while a pod uses it", "ClaimInUse", section=Section.VOLUME_STAYS)
@asynccontextmanager
async def deleted_in_use(place: Place) -> AsyncIterator[str]:
    claim = await place.claim(await place.storage_class())
    await place.bound()
    pod = await place.pod(claim)
    await place.node_of(pod)
    await place.api.delete(f"{place.claims}/data")
    yield "pvc data"


@broken(
    "A finalizer that nobody removes keeps a Released volume",
    "FinalizerStuck",
    section=Section.VOLUME_STAYS,
)
@asynccontextmanager
async def finalizer_of_nobody(place: Place) -> AsyncIterator[str]:
    pv = await place.a_volume()
    path = f"{PVS}/{pv['metadata']['name']}"
    held = [*pv["metadata"].get("finalizers", ()), "example.com/hold"]
    await place.api.patch(path, {"metadata": {"finalizers": held}})
    await place.api.delete(f"{place.claims}/data")

    async def is_held() -> bool:
        found = await place.api.get(path)
        meta = found["metadata"]
        return "deletionTimestamp" in meta and meta["finalizers"] == ["example.com/hold"]

    await place.cluster.until("only that finalizer is left", is_held, 60)
    yield f"pv {pv['metadata']['name']}"
    await place.api.patch(path, {"metadata": {"finalizers": None}})


@broken("The snapshot that the claim is to be made from does not exist", "SourceMissing")
@asynccontextmanager
async def no_such_source(place: Place) -> AsyncIterator[str]:
    await place.claim(await place.storage_class(), **copies.of_snapshot("nowhere"))
    await place.told("nowhere")
    yield "pvc data"


@broken("The claim is smaller than the snapshot that it is made from", "InvalidClaim")
@asynccontextmanager
async def source_too_large(place: Place) -> AsyncIterator[str]:
    name = await place.storage_class()
    await place.claim(name, **copies.size("3Gi"))
    await place.bound()
    async with copies.a_snapshot(place):
        await place.claim(name, "small", **copies.of_snapshot("monday"))
        await place.told("InvalidClaim", name="small")
        yield "pvc small"
        await place.remove(f"{place.claims}/small")


# -- pods that the scheduler places nowhere


async def unscheduled(place: Place, pod: Json, words: str) -> str:
    name = pod["metadata"]["name"]
    await kubernetes_says(place, "FailedScheduling", words, name=name)
    return f"pod {name}"


@broken(
    "The pod selects nodes outside the zone of its volume",
    "PodExcludesVolumeZone",
    section=Section.POD_PENDING,
)
@asynccontextmanager
async def selects_another_zone(place: Place) -> AsyncIterator[str]:
    await quiet_nodes.a_volume(place)
    selector = {copies.ZONE_LABEL: "us-east-1b"}
    pod = await place.pod({"metadata": {"name": "data"}}, nodeSelector=selector)
    yield await unscheduled(place, pod, ELSEWHERE)


@broken(
    "Two volumes of one pod are in different zones",
    "VolumesInDifferentZones",
    section=Section.POD_PENDING,
)
@asynccontextmanager
async def two_zones(place: Place) -> AsyncIterator[str]:
    await quiet_nodes.a_volume(place)
    await quiet_nodes.a_volume(place, "more", "us-east-1b")
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "more")
    ]
    pod = await place.pod({"metadata": {"name": "both"}}, volumes=volumes)
    yield await unscheduled(place, pod, ELSEWHERE)


@broken(
    "A VolumeMove holds the pod back, and no controller with `--volume-moves` works",
    "HeldForVolumeMove",
    section=Section.POD_PENDING,
    words=(
        "VolumeMove shop/data-to-b does not exist any more",
        "their CustomResourceDefinition is not installed",
        "remove the gate by hand",
    ),
)
@asynccontextmanager
async def held_back(place: Place) -> AsyncIterator[str]:
    await quiet_nodes.a_volume(place)
    await place.pod({"metadata": {"name": "data"}}, schedulingGates=[{"name": GATE}])
    notes = {"annotations": {HELD_FOR_MOVE: "shop/data-to-b"}}
    await place.api.patch(f"{place.pods}/data", {"metadata": notes})
    yield "pod data"


@broken(
    "No node in the volume's zone takes another volume",
    "NodesFull",
    check="node-limits",
    section=Section.POD_PENDING,
    words=(
        "the only one in us-east-1a that the pod's nodeSelector (",
        "Other nodes in us-east-1a have room",
        "create it without that nodeSelector",
    ),
)
@asynccontextmanager
async def nodes_are_full(place: Place) -> AsyncIterator[str]:
    """A node that may have one volume has one, by a pod that it runs."""
    await quiet_nodes.a_volume(place)
    await quiet_nodes.a_volume(place, "more")
    async with quiet_nodes.a_node(place, attachable=1) as instance:
        first = await quiet_nodes.start_pod(place, instance)
        pod = await place.pod(
            {"metadata": {"name": "more"}},
            nodeSelector={"kubernetes.io/hostname": instance.private_dns_name},
            tolerations=[{"operator": "Exists"}],
        )
        yield await unscheduled(place, pod, "max volume count")
        for each in (first, pod):
            await quiet_nodes.end_pod(place, each["metadata"]["name"])
