"""Faults, each as a person or AWS would make it, that an alert of manifests/monitoring tells of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from provisioner.model import tags
from provisioner.sandbox import installation
from provisioner.sandbox.real_node.node import KUBELET, PLUGIN, RealNode
from tests.cluster import growing, real_pods
from tests.cluster.cluster import PVS, Json, handle_of
from tests.cluster.keepers import former, issued
from tests.cluster.move_stories import MOVES
from tests.cluster.place import Place
from tests.cluster.prometheus import Prometheus
from tests.cluster.replicas import Replica, WebhookReplica

REFUSED_KEY = "AKIAREFUSED"
OLD_CERTIFICATE = "old-certificate"
ATTACHED, DELETED = 5, 6
"""Claims whose volumes cannot be attached, and claims that are deleted."""
MOVED = "moved"
"""A claim that is to get another volume."""
EVERY_S = 3.0


@dataclass(frozen=True)
class World:
    """One sandbox in which all of them are made.

    Attributes:
        place: where claims and pods are.
        prometheus: what sees the faults.
        grows, torn: claims of pods that run on the first node.
        nameless: a replica that is to have no good credentials.
        old: a replica of the webhook that is to serve an old certificate.
        webhook: the other replica of it.
    """

    place: Place
    prometheus: Prometheus
    nameless: Replica
    old: WebhookReplica
    webhook: WebhookReplica
    grows: str = "grows"
    torn: str = "torn"

    @property
    def node(self) -> RealNode:
        """The node with the pods."""
        return real_pods.fleet_of(self.place.cluster.sandbox).nodes[0]

    @property
    def other_node(self) -> RealNode:
        """The node whose kubelet and plugin go away."""
        return real_pods.fleet_of(self.place.cluster.sandbox).nodes[1]


def move_in(place: Place) -> str:
    """The path of the VolumeMove that waits."""
    return f"{MOVES}/namespaces/{place.name}/volumemoves/{MOVED}"


Fault = Callable[[World], Awaitable[dict[str, str] | None]]


async def again_and_again(work: Callable[[str], Awaitable[object]], names: Sequence[str]) -> None:
    """Users go on: the controller's own retries, once a minute, are too rare for windows in small."""
    for name in names:
        await work(name)
        await asyncio.sleep(EVERY_S)


async def credentials_expire(world: World) -> None:
    """AWS no longer accepts the keys of one replica."""
    await world.place.cluster.control(refused_keys={REFUSED_KEY: "ExpiredToken"})
    world.nameless.begin()
    world.prometheus.scrape("ebs-provisioner-controller", world.nameless.address)


async def quota_is_used_up(world: World) -> None:
    """Before it reports this, the controller searches for a minute for what it may have created."""
    await world.place.cluster.control(quotas={"gib": {"st1": 100}})
    name = await world.place.storage_class("st1", parameters={"type": "st1"})
    await again_and_again(
        partial(world.place.claim, name, resources={"requests": {"storage": "125Gi"}}),
        [f"cold-{number}" for number in range(3)],
    )


async def zone_is_full(world: World) -> dict[str, str]:
    await world.place.cluster.control(capacity=[{"zone": "us-east-1a", "type": "sc1"}])
    name = await world.place.storage_class("sc1", parameters={"type": "sc1"})
    await world.place.claim(name, "colder", resources={"requests": {"storage": "125Gi"}})
    return {"zone": "us-east-1a", "type": "sc1", "reason": "ZoneOutOfCapacity"}


async def not_permitted(world: World, action: str, pv: Json) -> None:
    """The role of the controller has lost a right to one volume."""
    await world.place.cluster.fault(
        *(action, "error"),
        match={"VolumeId": handle_of(pv)},
        n=1000,
        code="UnauthorizedOperation",
        message="You are not authorized to perform this operation.",
        http_status=403,
    )


async def attaching_is_not_permitted(world: World) -> dict[str, str]:
    volumes = [await world.place.bound(f"load-{number}") for number in range(ATTACHED)]
    for each in volumes:
        await not_permitted(world, "AttachVolume", each)
    await again_and_again(world.place.attachment, [each["metadata"]["name"] for each in volumes])
    return {"reason": "PermissionDenied"}


async def somebody_uses_up_the_calls(world: World) -> dict[str, str]:
    """Of each five seconds, EC2 leaves one DeleteVolume to us, and one is not permitted either."""
    await not_permitted(world, "DeleteVolume", await world.place.bound(f"load-{ATTACHED}"))
    await world.place.cluster.control(throttle={"DeleteVolume": [1, 0.2]})
    for number in range(ATTACHED, ATTACHED + DELETED):
        await world.place.api.delete(f"{world.place.claims}/load-{number}")
    return {"action": "DeleteVolume"}


async def a_volume_was_modified_too_often(world: World) -> None:
    await world.place.cluster.control(modification_budget=1)
    name = await world.place.storage_class("grows", allowVolumeExpansion=True)
    await world.place.claim(name, "twice", volumeMode="Block")
    await world.place.bound("twice")
    await growing.ask(world.place, "2Gi", name="twice")
    await growing.has_size(world.place, "2Gi", name="twice")
    await growing.ask(world.place, "3Gi", name="twice")


async def a_move_is_not_permitted(world: World) -> dict[str, str]:
    """A move needs a volume of a type that the role may not create; it has waited for 31 minutes."""
    place = world.place
    await place.cluster.fault(
        *("CreateVolume", "error"),
        match={"VolumeType": "gp2"},
        n=1000,
        code="UnauthorizedOperation",
        message="You are not authorized to perform this operation.",
        http_status=403,
    )
    name = await place.storage_class("gp2", parameters={"type": "gp2"})
    path = move_in(place)
    await place.api.create(
        path.rpartition("/")[0],
        {
            "apiVersion": "ebs-provisioner.io/v1alpha1",
            "kind": "VolumeMove",
            "metadata": {"name": MOVED},
            "spec": {"claimName": MOVED, "to": {"storageClassName": name}},
        },
    )

    async def is_refused() -> bool:
        status = (await place.api.get(path)).get("status", {})
        return status.get("phase") == "Creating" and "PermissionDenied" in status["message"]

    await place.cluster.until("a move that is refused its volume", is_refused)
    since = datetime.now(UTC) - timedelta(minutes=31)
    status = {"phaseSince": since.isoformat(timespec="seconds")}
    await place.api.patch(f"{path}/status", {"status": status})
    return {"phase": "Creating"}


async def somebody_makes_a_volume_with_our_tags(world: World) -> None:
    sandbox = world.place.cluster.sandbox
    written = [{"Key": k, "Value": v} for k, v in tags.of_cluster(sandbox.cluster_id).items()]
    await asyncio.to_thread(
        world.place.cluster.ec2.create_volume,
        AvailabilityZone="us-east-1a",
        Size=1,
        TagSpecifications=[{"ResourceType": "volume", "Tags": written}],
    )


async def the_kubelet_is_gone_when_the_plugin_starts(world: World) -> dict[str, str]:
    background, node = world.place.cluster.background, world.other_node
    await background.call(node.kill(KUBELET))
    await background.call(node.restart(PLUGIN))
    return {"instance": node.probes}


async def the_plugin_dies(world: World) -> dict[str, str]:
    node = world.other_node
    await world.place.cluster.background.call(node.kill(PLUGIN))
    return {"instance": node.probes}


async def a_volume_is_detached_by_force(world: World) -> dict[str, str]:
    volume_id = await real_pods.volume_of(world.place, world.torn)
    await asyncio.to_thread(world.place.cluster.ec2.detach_volume, VolumeId=volume_id, Force=True)
    return {"volume_id": volume_id, "namespace": world.place.name, "claim": world.torn}


async def a_superblock_is_overwritten(world: World) -> dict[str, str]:
    """The volume grows, and its file system cannot."""
    volume_id = await real_pods.volume_of(world.place, world.grows)
    disks = real_pods.fleet_of(world.place.cluster.sandbox).disks
    device = disks.device_of(volume_id, world.node.instance.instance_id)
    assert device
    zeros = ("dd", "if=/dev/zero", f"of=/dev/{device}", "bs=4096", "count=1", "conv=fsync")
    code, _, errors = await world.node.host.run(*zeros)
    assert code == 0, errors
    await growing.ask(world.place, "2Gi", name=world.grows)
    return {"instance": world.node.probes}


async def an_old_certificate_is_served(world: World) -> dict[str, str]:
    """Somebody else manages the certificate, and it has ten days left."""
    body = {
        "metadata": {"name": OLD_CERTIFICATE},
        "stringData": {key: value.decode() for key, value in former(issued(80)).items()},
    }
    path = f"/api/v1/namespaces/{installation.WEBHOOK_NAMESPACE}/secrets"
    await world.place.api.create(path, body)
    world.old.begin()
    world.prometheus.scrape("ebs-webhook", world.old.address)
    return {"instance": world.old.address}


async def an_object_is_too_much_to_read(world: World) -> dict[str, str]:
    term = {
        "matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]}
        ]
    }
    affinity = {"required": {"nodeSelectorTerms": [term] * 600}}
    await world.place.static_pv("vol-0123456789abcdef0", "large", nodeAffinity=affinity)
    await world.place.api.delete(f"{PVS}/{world.place.name}-large")
    return {"reason": "TooManyParts"}


async def the_controller_dies(world: World) -> None:
    await world.place.cluster.stop()


async def all_webhooks_die(world: World) -> None:
    await world.webhook.kill()
    await world.old.kill()


SLOW: dict[str, Fault] = {"EBSQuotaExceeded": quota_is_used_up}
"""Nothing is seen of it in the first minute, so it is made before the others."""
AT_ONCE: dict[str, Fault] = {
    "EBSCredentialsUnusable": credentials_expire,
    "EBSZoneRefusesVolumes": zone_is_full,
    "EBSAttachmentsFail": attaching_is_not_permitted,
    "EBSThrottled": somebody_uses_up_the_calls,
    "EBSModificationsWait": a_volume_was_modified_too_often,
    "EBSVolumeMoveWaits": a_move_is_not_permitted,
    "EBSOrphansReported": somebody_makes_a_volume_with_our_tags,
    "EBSNodePluginNotRegistered": the_kubelet_is_gone_when_the_plugin_starts,
    "EBSVolumeUnreadable": a_volume_is_detached_by_force,
    "EBSFileSystemDoesNotGrow": a_superblock_is_overwritten,
    "EBSWebhookCertificateExpires": an_old_certificate_is_served,
    "EBSWebhookReviewsUnchecked": an_object_is_too_much_to_read,
}
"""Side by side: none of them keeps another from being seen."""
AFTERWARDS: dict[str, Fault] = {"EBSNodePluginAway": the_plugin_dies}
"""It is alive until then, and not registered."""
LAST: dict[str, Fault] = {
    "EBSNoLeader": the_controller_dies,
    "EBSWebhookAway": all_webhooks_die,
}
"""All others need them."""
FAULTS = {**SLOW, **AT_ONCE, **AFTERWARDS, **LAST}
