"""What a test makes and sees: objects of Kubernetes, and volumes in the strict EC2."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict
from typing import Any

from provisioner.model.volume import normalised_handle
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.strict_ec2.world import Delays
from tests.cluster.replicas import eventually
from tests.sandbox.lab import client

DRIVER = "ebs.csi.aws.com"
PVS = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
CHANGES = frozenset(
    {"CreateVolume", "DeleteVolume", "AttachVolume", "DetachVolume", "CreateTags", "DeleteTags"}
)
CALM: dict[str, Any] = {
    "latency": "none",
    "delays": asdict(Delays()),
    "throttle": "none",
    "faults": None,
    "log": False,
}
"""The strict EC2 as the session's sandbox starts it."""

Json = dict[str, Any]


class Ec2Hand(StrictEc2):
    """A hand on the EC2 of a sandbox, which started it and will stop it."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.ec2 = client(endpoint)

    def watch(self, **settings: Any) -> None:
        """Count and log from here on, with these settings."""
        self.control(reset_counts=True, **(CALM | {"log": True} | settings))

    def changes(self, *actions: str, after_s: float = 0.0, about: str = "") -> list[Json]:
        """Calls that change something, in order; ``after_s`` by EC2's clock."""
        wanted = actions or CHANGES
        return [e for e in self.log(*wanted, about=about) if e["at_s"] > after_s]

    @property
    def now_s(self) -> float:
        """EC2's clock, which its log uses."""
        return float(self.report()["clock_s"])

    def volumes(self) -> list[Json]:
        """All volumes that it shows."""
        found: list[Json] = self.ec2.describe_volumes()["Volumes"]
        return found

    def of_cluster(self, cluster_id: str) -> dict[str, Json]:
        """Volumes with the tag of a cluster, by id."""
        owner = {"Name": f"tag:kubernetes.io/cluster/{cluster_id}", "Values": ["owned"]}
        found = self.ec2.describe_volumes(Filters=[owner])["Volumes"]
        return {volume["VolumeId"]: volume for volume in found}

    def snapshots_of(self, cluster_id: str) -> dict[str, Json]:
        """Snapshots with the tag of a cluster, by id."""
        owner = {"Name": f"tag:kubernetes.io/cluster/{cluster_id}", "Values": ["owned"]}
        found = self.ec2.describe_snapshots(OwnerIds=["self"], Filters=[owner])["Snapshots"]
        return {snapshot["SnapshotId"]: snapshot for snapshot in found}

    def remove(self, volume_ids: Iterable[str]) -> None:
        """Detach and delete volumes by hand; those that are gone do not matter."""
        wanted = set(volume_ids)
        for volume in self.volumes():
            if volume["VolumeId"] in wanted:
                if volume["Attachments"]:
                    self.ec2.detach_volume(VolumeId=volume["VolumeId"], Force=True)
                self.ec2.delete_volume(VolumeId=volume["VolumeId"])


def tags_of(volume: Json) -> dict[str, str]:
    """A described volume's tags."""
    return {tag["Key"]: tag["Value"] for tag in volume.get("Tags", ())}


def tag_list(tags: dict[str, str], kind: str = "volume") -> list[Json]:
    """Tags as CreateVolume (for a ``snapshot``, CreateSnapshot) takes them."""
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": pairs}]


async def make_class(
    api: Api, name: str, *, policy: str = "Delete", immediate: bool = True, driver: str = DRIVER
) -> None:
    """A gp3 class, whose volumes may grow."""
    await api.create(
        CLASSES,
        {
            "metadata": {"name": name},
            "provisioner": driver,
            "parameters": {"type": "gp3"},
            "reclaimPolicy": policy,
            "volumeBindingMode": "Immediate" if immediate else "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        },
    )


def claims_of(namespace: str) -> str:
    """The path of a namespace's claims."""
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


def pods_of(namespace: str) -> str:
    """The path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


async def make_claim(api: Api, namespace: str, name: str, class_name: str) -> Json:
    """A claim of 4 GiB."""
    made: Json = await api.create(
        claims_of(namespace),
        {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": class_name,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "4Gi"}},
            },
        },
    )
    return made


async def refusal_of_claim(api: Api, namespace: str) -> str:
    """What the API server says of one more claim there, "" if it takes it; nothing is kept.

    It learns of a ResourceQuota and of its ``status`` by a watch, and applies none before
    (Kubernetes 1.37.2, apiserver's admission plugin resourcequota): one whose ``status`` can be
    read may not be in force yet.
    """
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}
    try:
        body = {"metadata": {"name": "one-more"}, "spec": spec}
        await api.request("POST", claims_of(namespace), body, dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


async def make_pod(api: Api, namespace: str, name: str, claim: str) -> Json:
    """A pod that uses a claim."""
    made: Json = await api.create(
        pods_of(namespace),
        {
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "main"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        },
    )
    return made


async def items(api: Api, path: str) -> list[Json]:
    """All objects of a collection."""
    found: list[Json] = (await api.get(path))["items"]
    return found


async def bound(api: Api, namespace: str) -> set[str]:
    """The names of claims that are Bound."""
    found = await items(api, claims_of(namespace))
    return {c["metadata"]["name"] for c in found if c["status"].get("phase") == "Bound"}


async def persistent_volumes(api: Api, namespace: str) -> list[Json]:
    """Those whose claim is, or was, in a namespace."""
    return [
        each
        for each in await items(api, PVS)
        if (each["spec"].get("claimRef") or {}).get("namespace") == namespace
    ]


@contextlib.asynccontextmanager
async def temporary_namespace(api: Api) -> AsyncIterator[str]:
    """A fresh namespace, deleted afterwards."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


async def wipe(api: Api, hand: Ec2Hand, namespace: str) -> None:
    """Remove by hand what a test leaves: claims, their persistent volumes, their volumes."""
    await discard(api, pods_of(namespace))
    await discard(api, claims_of(namespace))

    async def no_claims() -> bool:
        return not await items(api, claims_of(namespace))

    await eventually("the claims are gone", no_claims)
    volume_ids = set(hand.of_cluster(namespace))
    named = {each["metadata"]["name"]: each for each in await persistent_volumes(api, namespace)}
    for each in await items(api, ATTACHMENTS):
        if each["spec"]["source"].get("persistentVolumeName") in named:
            await remove(api, f"{ATTACHMENTS}/{each['metadata']['name']}")
    for name, each in named.items():
        volume_ids.add(_volume_of(each["spec"]))
        await remove(api, f"{PVS}/{name}")
    hand.remove(volume_ids)


def _volume_of(spec: Json) -> str:
    named = (
        spec["csi"]["volumeHandle"] if "csi" in spec else spec["awsElasticBlockStore"]["volumeID"]
    )
    return normalised_handle(str(named))


async def remove(api: Api, path: str) -> None:
    """Delete an object, whoever holds it."""
    await discard(api, path)
    await free(api, path)


async def free(api: Api, path: str) -> None:
    """Take all finalizers off an object that is being deleted, if it is still there."""
    with contextlib.suppress(ApiError):
        await api.patch(path, {"metadata": {"finalizers": None}})


async def discard(api: Api, path: str) -> None:
    """Delete an object or a collection that may not be there."""
    try:
        await api.delete(path)
    except ApiError as error:
        if error.status != 404:
            raise
