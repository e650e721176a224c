"""The zone that a pod prefers is full: its volume is made in another one, and the pod follows."""

from __future__ import annotations

from provisioner.sandbox.stage import CLAIMS, PODS, Json, Stage

TITLE = "The first zone is full"

# Valid YAML as it stands, so that the tests of documented classes can read the one in it.
_ZONE = "THE-FULL-ZONE"
_POD = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: general
provisioner: ebs.csi.aws.com
parameters:
  type: gp2
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: archive
spec:
  storageClassName: general
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 20Gi}}
---
apiVersion: v1
kind: Pod
metadata:
  name: archive
spec:
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
          - {key: topology.kubernetes.io/zone, operator: In, values: [THE-FULL-ZONE]}
  containers:
  - name: archive
    image: archive
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: archive}
"""


async def tell(stage: Stage) -> None:
    """Tell it.

    Raises:
        SandboxError: a step was not seen.
    """
    teller, full = stage.teller, stage.sandbox.zones[0]
    manifest = _POD.replace(_ZONE, full)
    teller.manifest(manifest)
    await stage.control(capacity=[{"zone": full, "type": "gp2"}])
    teller.console.print(f"[dim]EC2 has no room for gp2 in {full}, which the pod prefers[/]")
    stage.leave("storageclass", "general")
    await teller.kubectl("apply", "-f", "-", text=manifest)

    async def moved() -> list[Json] | None:
        row = await _row(stage)
        there = row is not None and row["volume's zone"] == row["zone"] != full
        return [row] if row is not None and there else None

    rows = await teller.until(f"the pod runs where its volume is, and not in {full}", moved)
    teller.show(rows)
    about = "--field-selector=involvedObject.name=archive,involvedObject.kind=PersistentVolumeClaim"
    columns = "--output=custom-columns=TYPE:.type,MESSAGE:.message"
    await teller.kubectl("get", "events", about, columns)
    await stage.control(capacity=[])


async def _row(stage: Stage) -> Json | None:
    """The pod with its node, and its volume with where EC2 says that it is; None until both are."""
    nodes = {each.private_dns_name: each for each in stage.sandbox.instances}
    pod = await stage.api.get(f"{PODS}/archive")
    claim = await stage.api.get(f"{CLAIMS}/archive")
    node = nodes.get(pod["spec"].get("nodeName", ""))
    if node is None or not claim["spec"].get("volumeName"):
        return None
    volume = await stage.volume(claim["spec"]["volumeName"])
    return {
        "pod": "archive",
        "zone": node.zone,
        "node": node.private_dns_name,
        "volume": volume["VolumeId"],
        "volume's zone": volume["AvailabilityZone"],
    }
