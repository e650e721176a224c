"""A volume is made from the snapshot, larger, in the zone where a pod of another zone runs."""

from __future__ import annotations

from provisioner.sandbox.stage import ATTACHMENTS, CLAIMS, PODS, SNAPSHOTS, Json, Stage

TITLE = "The snapshot is restored in another zone"

# Valid YAML as it stands.
_ZONE = "ANOTHER-ZONE"
_RESTORE = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: website-again
spec:
  storageClassName: near-its-pod
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 60Gi}}
  dataSource:
    apiGroup: snapshot.storage.k8s.io
    kind: VolumeSnapshot
    name: before-the-release
---
apiVersion: v1
kind: Pod
metadata:
  name: website-again
spec:
  nodeSelector: {topology.kubernetes.io/zone: ANOTHER-ZONE}
  containers:
  - name: website
    image: website
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: website-again}
"""


async def tell(stage: Stage) -> None:
    """Tell it, after the chapters of the snapshot and of the class ``near-its-pod``.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    source = await stage.volume((await stage.api.get(f"{CLAIMS}/website"))["spec"]["volumeName"])
    here = source["AvailabilityZone"]
    there = next(zone for zone in stage.sandbox.zones if zone != here)
    snapshot = (await stage.snapshots_of_the_cluster())[0]["SnapshotId"]
    await _ready(stage, snapshot)
    manifest = _RESTORE.replace(_ZONE, there)
    teller.manifest(manifest)
    await teller.kubectl("apply", "-f", "-", text=manifest)

    async def used() -> list[Json] | None:
        row = await _row(stage)
        if row is None or row["volume's zone"] != there or row["made from"] != snapshot:
            return None
        return [row] if await _is_attached(stage, row["node"]) else None

    what = f"a volume from {snapshot}, taken in {here}, is attached in {there}"
    teller.show(await teller.until(what, used))
    await teller.kubectl("get", "pvc", "website", "website-again")


async def _ready(stage: Stage, snapshot: str) -> None:
    async def ready() -> bool:
        status = (await stage.api.get(f"{SNAPSHOTS}/before-the-release")).get("status") or {}
        return bool(status.get("readyToUse"))

    await stage.teller.until(f"{snapshot} is ready to use", ready)
    await stage.teller.kubectl("get", "volumesnapshot", "before-the-release")


async def _row(stage: Stage) -> Json | None:
    claim = await stage.bound("website-again")
    pod = await stage.api.get(f"{PODS}/website-again")
    if claim is None or not pod["spec"].get("nodeName"):
        return None
    volume = await stage.volume(claim["spec"]["volumeName"])
    return {
        "pod": "website-again",
        "node": pod["spec"]["nodeName"],
        "volume": volume["VolumeId"],
        "volume's zone": volume["AvailabilityZone"],
        "made from": volume.get("SnapshotId", ""),
    }


async def _is_attached(stage: Stage, node: str) -> bool:
    name = (await stage.api.get(f"{CLAIMS}/website-again"))["spec"]["volumeName"]
    return any(
        item["spec"]["source"].get("persistentVolumeName") == name
        and item["spec"]["nodeName"] == node
        and item.get("status", {}).get("attached")
        for item in await stage.items(ATTACHMENTS)
    )
