"""The null controller: the calls and the writes of the product, hard-wired, without a thought.

The floor that this machine allows: the same EC2 calls (one boto3 client and thread pool like the
product's own, describes batched at the same pace), the same writes to the API server, and nothing
else: no limiter, no cache, no finalizer or event logic, no live confirmation, no recovery. It is
right only in a world where nothing goes wrong. ``--bare`` leaves out what a provisioner could do
without: the patch that pins a claim's zone before EC2 hears of it, and the events.

Run as ``python -m tests.bench.null_controller --kubeconfig K``; AWS settings as boto3 has them.
"""

import argparse
import asyncio
import hashlib
import itertools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from provisioner.controller.placement.zone_rules import spread
from provisioner.ec2.attachments import DEVICE_NAMES
from tests.bench.null_bodies import DRIVER, PV_FINALIZER, Json, event, manifest, tags
from tests.bench.null_edges import Ec2, Kube
from tests.bench.world import ZONES

NOT_BEFORE_S = {"create": 1.25, "attach": 1.0, "detach": 1.0}
ASKED = "volume.kubernetes.io/storage-provisioner"
PINNED = "ebs-provisioner.io/zone"
ATTACHER = "external-attacher/ebs-csi-aws-com"
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


class NullController:
    """One coroutine an object, from its first change to its end."""

    def __init__(self, kube: Kube, ec2: Ec2, *, is_bare: bool) -> None:
        self._kube, self._ec2, self._is_bare = kube, ec2, is_bare
        self._begun: set[tuple[str, str]] = set()
        self._handles: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._devices: dict[str, itertools.cycle[str]] = {}

    async def run(self) -> None:
        """Follow everything, for ever."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._ec2.describe())
            tasks.create_task(self._ec2.remove_marks())
            tasks.create_task(self._follow(CSI_NODES, self._node))
            tasks.create_task(self._follow(CLAIMS, self._claim))
            tasks.create_task(self._follow(VOLUMES, self._volume))
            tasks.create_task(self._follow(ATTACHMENTS, self._attachment))
            print("ready", flush=True)  # noqa: T201 -- the bench waits for it

    async def _follow(self, path: str, take: Callable[[Json], None]) -> None:
        async for change, found in self._kube.changes(path):
            if change != "DELETED":
                take(found)

    def _once(self, step: str, uid: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if (step, uid) not in self._begun:
            self._begun.add((step, uid))
            self._tasks.create_task(work())

    def _node(self, found: Json) -> None:
        for driver in found["spec"]["drivers"] or ():
            self._nodes[found["metadata"]["name"]] = driver["nodeID"]

    def _claim(self, found: Json) -> None:
        meta = found["metadata"]
        if meta.get("annotations", {}).get(ASKED) == DRIVER and "volumeName" not in found["spec"]:
            self._once("provision", meta["uid"], lambda: self._provision(meta, found["spec"]))

    def _volume(self, found: Json) -> None:
        meta, csi = found["metadata"], found["spec"]["csi"]
        self._handles[meta["name"]] = csi["volumeHandle"]
        if found["status"].get("phase") == "Released" and "deletionTimestamp" not in meta:
            self._once("delete", meta["uid"], lambda: self._delete(meta, csi["volumeHandle"]))

    def _attachment(self, found: Json) -> None:
        meta, spec = found["metadata"], found["spec"]
        if "deletionTimestamp" in meta:
            self._once("detach", meta["uid"], lambda: self._detach(meta, spec))
        else:
            self._once("attach", meta["uid"], lambda: self._attach(meta, spec))

    async def _provision(self, meta: Json, spec: Json) -> None:
        name, zone = f"pvc-{meta['uid']}", ZONES[spread(meta["name"]) % len(ZONES)]
        path = f"/api/v1/namespaces/{meta['namespace']}"
        if not self._is_bare:
            version, pinned = meta["resourceVersion"], f"{zone}/{meta['uid']}"
            pin = {"metadata": {"resourceVersion": version, "annotations": {PINNED: pinned}}}
            claim = f"{path}/persistentvolumeclaims/{meta['name']}"
            await self._kube.send("PATCH", claim, pin, MERGE)
        made = await self._ec2.call(
            "create_volume",
            AvailabilityZone=zone,
            ClientToken=hashlib.sha256(name.encode()).hexdigest(),
            Size=1,
            VolumeType="gp3",
            TagSpecifications=[{"ResourceType": "volume", "Tags": tags(meta, name)}],
        )
        volume_id = made["Volume"].volume_id
        await self._ec2.until(volume_id, NOT_BEFORE_S["create"], lambda v: v.state == "available")
        await self._kube.send("POST", VOLUMES, manifest(meta, spec, name, volume_id, zone))
        self._ec2.unmark(volume_id)
        if not self._is_bare:
            await self._kube.send("POST", f"{path}/events", event(meta, name))

    async def _attach(self, meta: Json, spec: Json) -> None:
        name, path = spec["source"]["persistentVolumeName"], f"{ATTACHMENTS}/{meta['name']}"
        volume_id, instance = self._handles[name], self._nodes[spec["nodeName"]]
        hold: Json = {"metadata": {"finalizers": [ATTACHER]}}
        await self._kube.send("PATCH", f"{VOLUMES}/{name}", hold, STRATEGIC)
        recorded = {
            "csi.alpha.kubernetes.io/node-id": instance,
            "ebs-provisioner.io/volume-id": volume_id,
        }
        hold = {"metadata": {"finalizers": [ATTACHER], "annotations": recorded}}
        await self._kube.send("PATCH", path, hold, STRATEGIC)
        await self._ec2.look_at(instance)
        device = next(self._devices.setdefault(instance, itertools.cycle(DEVICE_NAMES)))
        params = {"VolumeId": volume_id, "InstanceId": instance, "Device": device}
        await self._ec2.call("attach_volume", **params)
        await self._ec2.until(
            volume_id,
            NOT_BEFORE_S["attach"],
            lambda v: any(a.state == "attached" for a in v.attachments),
        )
        status = {"attached": True, "attachmentMetadata": {"devicePath": device}}
        await self._kube.send("PATCH", f"{path}/status", {"status": status}, MERGE)

    async def _detach(self, meta: Json, spec: Json) -> None:
        volume_id = self._handles[spec["source"]["persistentVolumeName"]]
        instance = self._nodes[spec["nodeName"]]
        await self._ec2.call("detach_volume", VolumeId=volume_id, InstanceId=instance)
        await self._ec2.until(volume_id, NOT_BEFORE_S["detach"], lambda v: not v.attachments)
        drop = {"metadata": {"$deleteFromPrimitiveList/finalizers": [ATTACHER]}}
        await self._kube.send("PATCH", f"{ATTACHMENTS}/{meta['name']}", drop, STRATEGIC)

    async def _delete(self, meta: Json, volume_id: str) -> None:
        await self._ec2.call("delete_volume", VolumeId=volume_id)
        path = f"{VOLUMES}/{meta['name']}"
        await self._kube.send("DELETE", path, {"preconditions": {"uid": meta["uid"]}})
        drop = {"metadata": {"$deleteFromPrimitiveList/finalizers": [PV_FINALIZER, ATTACHER]}}
        await self._kube.send("PATCH", path, drop, STRATEGIC)


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, default=os.environ.get("KUBECONFIG"))
    parser.add_argument("--bare", action="store_true")
    arguments = parser.parse_args()
    kube = Kube(arguments.kubeconfig)
    await NullController(kube, Ec2(), is_bare=arguments.bare).run()


if __name__ == "__main__":
    asyncio.run(_main())
