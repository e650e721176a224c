"""Running workloads as those who managed a cluster before us leave them.

Persistent volumes, labels, annotations and tags are field by field those of the removed in-tree
plugin (Kubernetes 1.22 pkg/volume/awsebs and the legacy cloud provider's aws.go), and of
aws-ebs-csi-driver v1.64 with external-provisioner 6.3, for classes of either kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from provisioner.sandbox.api import Api
from tests.cluster import hands
from tests.cluster.hands import DRIVER, PVS, Ec2Hand, Json
from tests.cluster.replicas import eventually
from tests.cluster.sidecars import IN_TREE, MIGRATED_TO, PROVISIONED_BY, PROVISIONER, Sidecars

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
SECRETS = dict.fromkeys(
    (
        "volume.kubernetes.io/provisioner-deletion-secret-name",
        "volume.kubernetes.io/provisioner-deletion-secret-namespace",
    ),
    "",
)


def _affinity(**values: str) -> Json:
    keys = {"zone": ZONE, "region": REGION, "ebs_zone": EBS_ZONE}
    keys |= {"beta_zone": BETA_ZONE, "beta_region": BETA_REGION}
    within = [{"key": keys[k], "operator": "In", "values": [v]} for k, v in values.items()]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": within}]}}}


def _csi(volume_id: str, **affinity: str) -> tuple[Json, Json]:
    identity = {"storage.kubernetes.io/csiProvisionerIdentity": f"1700000000000-1-{DRIVER}"}
    csi = {"driver": DRIVER, "volumeHandle": volume_id, "volumeAttributes": identity}
    meta = {"annotations": {PROVISIONED_BY: DRIVER, **SECRETS}, "finalizers": [PROVISIONER]}
    return meta, {"csi": csi | {"fsType": "ext4"}, **_affinity(**affinity)}


def stock(volume_id: str, zone: str) -> tuple[Json, Json]:
    """Of the stock driver, metadata and spec."""
    return _csi(volume_id, zone=zone)


def stock_of_2023(volume_id: str, zone: str) -> tuple[Json, Json]:
    """Before v1.33 the affinity named the driver's own key."""
    return _csi(volume_id, ebs_zone=zone)


def stock_for_in_tree_class(volume_id: str, zone: str) -> tuple[Json, Json]:
    """A new volume of an old class: in the plugin's form, and handed to the driver."""
    region = zone[:-1]
    meta = {
        "annotations": {PROVISIONED_BY: IN_TREE, MIGRATED_TO: DRIVER, **SECRETS},
        "labels": {ZONE: zone, REGION: region},
        "finalizers": [PROVISIONER],
    }
    source = {"awsElasticBlockStore": {"volumeID": volume_id, "fsType": "ext4"}}
    return meta, source | _affinity(zone=zone, region=region)


def plugin(volume_id: str, zone: str) -> tuple[Json, Json]:
    """Of the plugin of 2018, on a partition: nobody has touched it since."""
    region = zone[:-1]
    created = {"kubernetes.io/createdby": "aws-ebs-dynamic-provisioner"}
    meta = {
        "annotations": {PROVISIONED_BY: IN_TREE, **created},
        "labels": {BETA_ZONE: zone, BETA_REGION: region},
    }
    source = {"volumeID": f"aws://{zone}/{volume_id}", "fsType": "ext4", "partition": 1}
    return meta, {"awsElasticBlockStore": source} | _affinity(beta_zone=zone, beta_region=region)


def stock_tags(claim: Json) -> dict[str, str]:
    """Of the stock driver with extra-create-metadata and no cluster id, its chart's defaults."""
    name = f"pvc-{claim['metadata']['uid']}"
    return {"CSIVolumeName": name, "ebs.csi.aws.com/cluster": "true", **_created_for(claim)}


def plugin_tags(claim: Json) -> dict[str, str]:
    """Of the plugin, in a cluster called "old"."""
    name = f"kubernetes-dynamic-pvc-{claim['metadata']['uid']}"
    owned = {"KubernetesCluster": "old", "kubernetes.io/cluster/old": "owned"}
    return {"Name": name, **owned, **_created_for(claim)}


def _created_for(claim: Json) -> dict[str, str]:
    prefix, meta = "kubernetes.io/created-for", claim["metadata"]
    return {
        f"{prefix}/pvc/name": meta["name"],
        f"{prefix}/pvc/namespace": meta["namespace"],
        f"{prefix}/pv/name": f"pvc-{meta['uid']}",
    }


FORMS: dict[str, tuple[Callable[[str, str], tuple[Json, Json]], Callable[..., dict[str, str]]]] = {
    "stock": (stock, stock_tags),
    "stock-of-2023": (stock_of_2023, stock_tags),
    "stock-in-tree": (stock_for_in_tree_class, stock_tags),
    "plugin": (plugin, plugin_tags),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A pod, named like its claim, and its volume."""

    name: str
    persistent_volume: str
    volume_id: str


@dataclass(frozen=True, slots=True)
class Predecessors:
    """Makes workloads in a namespace; its classes are there under the names of both drivers."""

    api: Api
    hand: Ec2Hand
    namespace: str

    @property
    def sidecars(self) -> Sidecars:
        """Of the stock driver, which took the plugin's attachments over, too."""
        return Sidecars(self.api, self.hand)

    async def workload(self, form: str, zone: str, device: str) -> Workload:
        """A pod that runs with its volume attached."""
        made = await self._volume(form, zone)
        await hands.make_pod(self.api, self.namespace, form, form)
        await self.sidecars.attach(made.persistent_volume, device)
        return made

    async def _volume(self, form: str, zone: str) -> Workload:
        describe, tags = FORMS[form]
        old = form in ("plugin", "stock-in-tree")
        class_name = f"{self.namespace}-{'old' if old else 'new'}"
        claim = await hands.make_claim(self.api, self.namespace, form, class_name)
        written = hands.tag_list(tags(claim))
        volume = self.hand.ec2.create_volume(
            AvailabilityZone=zone, Size=4, VolumeType="gp3", TagSpecifications=written
        )
        name = f"pvc-{claim['metadata']['uid']}"
        meta, source = describe(volume["VolumeId"], zone)
        await self.api.create(
            PVS,
            {
                "metadata": {"name": name, **meta},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "4Gi"},
                    "claimRef": _reference(claim),
                    "persistentVolumeReclaimPolicy": "Delete",
                    "storageClassName": class_name,
                    "volumeMode": "Filesystem",
                    **source,
                },
            },
        )

        async def bound() -> bool:
            return form in await hands.bound(self.api, self.namespace)

        await eventually(f"{form} is Bound", bound)
        return Workload(form, name, volume["VolumeId"])


def _reference(claim: Json) -> dict[str, Any]:
    meta = claim["metadata"]
    kept = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **kept}
