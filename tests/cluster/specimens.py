"""Volumes that a sweep for orphans meets, made by hand in EC2, and what names some of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from provisioner.model import tags
from provisioner.model.names import CLUSTER_NAME, UNCLAIMED
from provisioner.sandbox.api import Api
from tests.cluster import hands
from tests.cluster.hands import Ec2Hand, Json


def owner_tags(
    cluster_id: str, *, policy: str = "Delete", uid: str = "", namespace: str = "default"
) -> dict[str, str]:
    """The tags that our CreateVolume writes for a claim, the mark among them."""
    owner = tags.Owner(
        claim_namespace=namespace,
        claim_name="gone",
        persistent_volume_name=f"pvc-{uid or uuid.uuid4()}",
        reclaim_policy=policy,
    )
    return dict(tags.of_new_volume(owner, cluster_id=cluster_id, extra={}))


def make_volume(hand: Ec2Hand, zone: str, written: dict[str, str]) -> str:
    """A volume of 4 GiB with these tags; its id."""
    made = hand.ec2.create_volume(
        AvailabilityZone=zone, Size=4, VolumeType="gp3", TagSpecifications=hands.tag_list(written)
    )
    return str(made["VolumeId"])


def without(written: dict[str, str], *keys: str) -> dict[str, str]:
    """Tags but for some."""
    return {key: value for key, value in written.items() if key not in keys}


@dataclass
class Specimens:
    """One volume for each sentence about orphans, by the sentence's subject."""

    cluster_id: str
    namespace: str
    zone: str
    instance_id: str
    ids: dict[str, str] = field(default_factory=dict)
    written: dict[str, dict[str, str]] = field(default_factory=dict)

    def _make(self, hand: Ec2Hand, subject: str, written: dict[str, str]) -> str:
        self.written[subject] = written
        self.ids[subject] = make_volume(hand, self.zone, written)
        return self.ids[subject]

    def _tags(self, **changes: str) -> dict[str, str]:
        return owner_tags(self.cluster_id, namespace=self.namespace, **changes)

    async def make(self, hand: Ec2Hand, api: Api) -> None:
        """Make all of them, before any controller looks."""
        claim = await hands.make_claim(api, self.namespace, "living", "")
        self._make(hand, "delete", self._tags())
        self._make(hand, "retain", self._tags(policy="Retain"))
        self._make(hand, "recycle", self._tags(policy="Recycle"))
        self._make(hand, "unmarked", without(self._tags(), UNCLAIMED))
        self._make(hand, "unmarked too", without(self._tags(), UNCLAIMED))
        self._make(hand, "other cluster", owner_tags(f"{self.cluster_id}-2"))
        half = without(self._tags(), CLUSTER_NAME)
        self._make(hand, "one cluster tag of two", half)
        self._make(hand, "living claim", self._tags(uid=claim["metadata"]["uid"]))
        attached = self._make(hand, "attached", self._tags())
        hand.ec2.attach_volume(VolumeId=attached, InstanceId=self.instance_id, Device="/dev/xvdbz")
        csi = self._make(hand, "named", self._tags())
        await self._name(api, "csi", {"csi": {"driver": hands.DRIVER, "volumeHandle": csi}})
        in_tree = self._make(hand, "named in-tree", self._tags())
        source = {"volumeID": f"aws://{self.zone}/{in_tree}", "fsType": "ext4"}
        await self._name(api, "in-tree", {"awsElasticBlockStore": source})

    def make_young(self, hand: Ec2Hand) -> str:
        """One more, too young to be swept; its id."""
        return self._make(hand, "young", self._tags())

    async def _name(self, api: Api, name: str, source: Json) -> None:
        await api.create(
            hands.PVS,
            {
                "metadata": {"name": f"{self.namespace}-{name}"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "4Gi"},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "by-hand",
                    **source,
                },
            },
        )

    async def clean_up(self, hand: Ec2Hand, api: Api) -> None:
        """Remove what is left of them."""
        for name in ("csi", "in-tree"):
            await hands.remove(api, f"{hands.PVS}/{self.namespace}-{name}")
        await hands.wipe(api, hand, self.namespace)
        hand.remove(self.ids.values())


def options(min_age_s: float) -> tuple[str, ...]:
    """Of a controller that sweeps twice a second."""
    age = ("--orphan-min-age", f"{min_age_s:g}s")
    return ("--no-leader-elect", *age, "--orphan-sweep-interval", "0.5s")


def names(call: Json, volume_id: str) -> bool:
    """Whether a logged call is about a volume."""
    return volume_id in call["params"].values()


def sweeps(hand: Ec2Hand, cluster_id: str) -> list[Json]:
    """The lists of a sweep: both tags of the cluster, and no other filter."""
    ours = f"tag:kubernetes.io/cluster/{cluster_id}"
    return [
        call
        for call in hand.changes("DescribeVolumes", about=ours)
        if call["params"].get("Filter.1.Name") == ours
        and "Filter.2.Name" in call["params"]
        and "Filter.3.Name" not in call["params"]
    ]
