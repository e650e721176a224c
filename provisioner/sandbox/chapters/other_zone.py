"""A claim of a StatefulSet on real nodes gets a volume with the same data in another zone."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.node import RealNode
from provisioner.sandbox.stage import CLAIMS, PODS, PVS, ZONE_LABEL, Json, Stage

TITLE = "A claim with its data moves to another zone"

_COMPONENT = """\
# kustomization.yaml
resources: [manifests, manifests/webhook]
components: [manifests/volume-moves, manifests/webhook-volume-moves]
"""

_ORDERS = """\
kind: StorageClass
apiVersion: storage.k8s.io/v1
metadata:
  name: orders
provisioner: ebs.csi.aws.com
parameters:
  type: gp3
volumeBindingMode: WaitForFirstConsumer
---
kind: StatefulSet
apiVersion: apps/v1
metadata:
  name: orders
spec:
  serviceName: orders
  replicas: 1
  selector:
    matchLabels: {app: orders}
  template:
    metadata:
      labels: {app: orders}
    spec:
      nodeSelector: {ebs-provisioner.io/sandbox-node: real}
      hostNetwork: true
      terminationGracePeriodSeconds: 5
      containers:
        - name: orders
          image: busybox:1
          command:
            - sh
            - -c
            - |
              trap exit TERM
              cd /data
              [ -e scans ] || dd if=/dev/urandom of=scans bs=1M count=20
              while read -r seconds _ < /proc/uptime; do
                echo "$seconds" >> taken; sync taken; sleep 0.2
              done
          volumeMounts:
            - {mountPath: /data, name: data}
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        storageClassName: orders
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: 10Gi}}
"""

# Valid YAML as it stands.
_ZONE = "THE-OTHER-ZONE"
_MOVE = """\
kind: VolumeMove
apiVersion: ebs-provisioner.io/v1alpha1
metadata:
  name: orders-elsewhere
spec:
  claimName: data-orders-0
  to: {zone: THE-OTHER-ZONE}
  consumers: {policy: ScaleDown}
  warm: false
"""

_POD, _CLAIM = "orders-0", "data-orders-0"
_IN_POD = ("exec", _POD, "--")
_PAUSE = (
    "NR > 1 && $1 - last > most {most = $1 - last} {last = $1}"
    ' END {printf "no order for %.1f seconds\\n", most}'
)


async def tell(stage: Stage) -> None:
    """Tell it last of those with the sandbox's own controller, which is started anew.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    here, there = _places(stage)
    teller.aside(
        f"A pod on a real node in {here} writes a number to its volume five times a second, for as "
        "long as it runs."
    )
    teller.manifest(_ORDERS)
    stage.leave("storageclass", "orders")
    await teller.kubectl("apply", "-f", "-", text=_ORDERS)
    await _switch_on(stage)
    await teller.until("the pod runs", lambda: stage.is_ready(_POD))
    before = await _row(stage)
    teller.show([before])
    sums = await _sums(stage)
    taken = await _taken(stage)
    await teller.kubectl("uncordon", there.name)
    await _move(stage, there.instance.zone)
    _keep(stage, before)

    async def runs() -> Json | None:
        row = await _row(stage) if await stage.is_ready(_POD) else None
        return row if row and row["node"] == there.name else None

    after = await teller.until(f"the pod runs in {there.instance.zone}", runs)
    teller.show([after])
    if after["volume's zone"] != there.instance.zone or after["volume"] == before["volume"]:
        raise SandboxError(f"the volume is not another one in {there.instance.zone}: {after}")
    if await _sums(stage) != sums or not (await _taken(stage)).startswith(taken):
        raise SandboxError(f"the files in {there.instance.zone} differ from those in {here}")
    teller.seen("the same bytes are in the other zone, and the pod goes on after its last line")
    await teller.kubectl(*_IN_POD, "awk", _PAUSE, "/data/taken")
    await teller.kubectl("get", "volumemove")
    await _is_kept(stage, before)


def _places(stage: Stage) -> tuple[str, RealNode]:
    """The zone of the first real node, and a real node in another one."""
    first, *others = stage.sandbox.real_nodes
    here = first.instance.zone
    return here, next(each for each in others if each.instance.zone != here)


async def _switch_on(stage: Stage) -> None:
    """Install what moves need, as its user does; the Deployments would roll out the options."""
    teller, sandbox = stage.teller, stage.sandbox
    teller.aside(
        "VolumeMoves are off by default. One component adds CRD, rights and the controller's "
        "option; the other one has the webhook hold new pods of a claim back while it is moved:"
    )
    teller.manifest(_COMPONENT)
    teller.console.print("[dim]$ kubectl apply -k .[/]")
    await sandbox.install_volume_moves()
    await sandbox.stop_controller(grace_s=10.0)
    probes = await sandbox.start_controller("--volume-moves")
    await sandbox.elected(probes)
    await sandbox.stop_webhook(grace_s=10.0)
    await sandbox.start_webhook("--volume-moves", holds_pods=True)
    teller.seen("controller and webhook run with --volume-moves")


async def _row(stage: Stage) -> Json:
    """The pod with its node, and its volume."""
    pod = await stage.api.get(f"{PODS}/{_POD}")
    node = await stage.api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
    name = (await stage.api.get(f"{CLAIMS}/{_CLAIM}"))["spec"]["volumeName"]
    volume = await stage.volume(name)
    return {
        "pod": _POD,
        "node": node["metadata"]["name"],
        "zone": node["metadata"]["labels"][ZONE_LABEL],
        "persistent volume": name,
        "volume": volume["VolumeId"],
        "volume's zone": volume["AvailabilityZone"],
    }


async def _sums(stage: Stage) -> str:
    return await stage.teller.kubectl(*_IN_POD, "sha256sum", "/data/scans")


async def _taken(stage: Stage) -> str:
    return await kubectl(stage.sandbox.plane, *_IN_POD, "cat", "/data/taken")


async def _move(stage: Stage, zone: str) -> None:
    teller = stage.teller
    plan = ("ebs", "move", f"pvc/{_CLAIM}", "--to-zone", zone, "--scale-down", "--dry-run")
    await teller.kubectl(*plan)
    teller.aside(
        "Without --dry-run, the command would ask and begin it; a manifest does the same. A large "
        "volume is best snapshotted first while its pods run, which is the default. EC2 takes "
        "one snapshot of a volume every 15 s, so this small one is moved without (warm: false)."
    )
    manifest = _MOVE.replace(_ZONE, zone)
    teller.manifest(manifest)
    stage.leave("volumemove", "orders-elsewhere")
    await teller.kubectl("create", "-f", "-", text=manifest)
    await teller.follow("ebs", "move", "--resume", "default/orders-elsewhere")


def _keep(stage: Stage, before: Json) -> None:
    """The old volume outlives the move and, for a week, whatever is done to the claim."""
    name = before["persistent volume"]
    stage.leave("persistentvolume", name)
    stage.to_delete[name] = before["volume"]


async def _is_kept(stage: Stage, before: Json) -> None:
    name = before["persistent volume"]
    await stage.teller.kubectl("get", "persistentvolume", name)
    kept = await stage.api.get(f"{PVS}/{name}")
    volume = await stage.volume(name)
    as_it_is = (
        kept["status"]["phase"],
        kept["spec"]["persistentVolumeReclaimPolicy"],
        volume["State"],
        volume["VolumeId"],
    )
    if as_it_is != ("Released", "Retain", "available", before["volume"]):
        raise SandboxError(f"the old volume is not kept: {as_it_is}")
    stage.teller.seen(f"the old volume {before['volume']} is kept, and attached to no node")
