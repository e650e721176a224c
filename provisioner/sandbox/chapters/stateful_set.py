"""The volumes of a StatefulSet are where its pods are, and go where they go."""

from __future__ import annotations

from provisioner.sandbox.stage import ATTACHMENTS, CLAIMS, PODS, Json, Stage

TITLE = "A StatefulSet over three zones, one pod of which moves"

_REPLICAS = 3
_STATEFUL_SET = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: near-its-pod
provisioner: ebs.csi.aws.com
parameters:
  type: gp3
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: db
spec:
  serviceName: db
  replicas: 3
  podManagementPolicy: Parallel
  selector:
    matchLabels: {app: db}
  template:
    metadata:
      labels: {app: db}
    spec:
      topologySpreadConstraints:
      - topologyKey: topology.kubernetes.io/zone
        maxSkew: 1
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: db}}
      containers:
      - name: db
        image: db
        volumeMounts:
        - {name: data, mountPath: /data}
  volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      storageClassName: near-its-pod
      accessModes: [ReadWriteOnce]
      resources:
        requests:
          storage: 8Gi
"""


async def tell(stage: Stage) -> None:
    """Tell it.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.manifest(_STATEFUL_SET)
    stage.leave("storageclass", "near-its-pod")
    await teller.kubectl("apply", "-f", "-", text=_STATEFUL_SET)
    rows = await teller.until(
        "three volumes are in the zones of their pods", lambda: _spread(stage)
    )
    teller.show(rows)
    before = next(row for row in rows if row["pod"] == "db-0")
    await teller.kubectl("cordon", before["node"])
    await teller.kubectl("delete", "pod", "db-0", "--wait=false")

    async def moved() -> list[Json] | None:
        rows = await _spread(stage)
        if rows is None:
            return None
        now = next(row for row in rows if row["pod"] == "db-0")
        there = now["node"] != before["node"] and now["volume"] == before["volume"]
        return rows if there else None

    teller.show(await teller.until(f"db-0's volume has left {before['instance']}", moved))
    await teller.kubectl("uncordon", before["node"])


async def _rows(stage: Stage) -> list[Json]:
    """Pod, node, instance, and the volume with where EC2 says that it is."""
    nodes = {instance.private_dns_name: instance for instance in stage.sandbox.instances}
    rows = []
    for pod in await stage.items(PODS):
        node = nodes.get(pod["spec"].get("nodeName", ""))
        name = pod["metadata"]["name"]
        if node is None or not name.startswith("db-"):
            continue
        claim = await stage.api.get(f"{CLAIMS}/data-{name}")
        if not claim["spec"].get("volumeName"):
            continue
        volume = await stage.volume(claim["spec"]["volumeName"])
        attached = [a["InstanceId"] for a in volume["Attachments"] if a["State"] == "attached"]
        rows.append(
            {
                "pod": name,
                "zone": node.zone,
                "node": node.private_dns_name,
                "instance": node.instance_id,
                "volume": volume["VolumeId"],
                "volume's zone": volume["AvailabilityZone"],
                "attached to": ", ".join(attached),
            }
        )
    return rows


async def _spread(stage: Stage) -> list[Json] | None:
    """The rows once all three are attached, in three zones, and reported as attached."""
    rows = await _rows(stage)
    reported = {
        item["spec"]["nodeName"]
        for item in await stage.items(ATTACHMENTS)
        if item.get("status", {}).get("attached") and not item["metadata"].get("deletionTimestamp")
    }
    right = [
        row
        for row in rows
        if row["zone"] == row["volume's zone"]
        and row["attached to"] == row["instance"]
        and row["node"] in reported
    ]
    in_zones = len({row["zone"] for row in right})
    return right if len(right) == _REPLICAS and in_zones == _REPLICAS else None
