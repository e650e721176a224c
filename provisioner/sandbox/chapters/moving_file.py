"""A pod writes a file on one real node; a new pod on another one reads the same bytes."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.node import LABEL
from provisioner.sandbox.stage import CLAIMS, PODS, Json, Stage

TITLE = "A file that moves with its pod"

# xfs, as the next chapter grows it: the kernel grows a mounted ext4 only for CAP_SYS_RESOURCE,
# which root in a container may not have.
_CLASS_AND_CLAIM = """\
kind: StorageClass
apiVersion: storage.k8s.io/v1
metadata:
  name: standard-xfs
provisioner: kubernetes.io/aws-ebs
parameters:
  type: gp2
  fsType: xfs
allowVolumeExpansion: true
volumeBindingMode: WaitForFirstConsumer
---
kind: PersistentVolumeClaim
apiVersion: v1
metadata:
  name: diary
spec:
  accessModes:
    - ReadWriteOnce
  storageClassName: standard-xfs
  resources:
    requests:
      storage: 30Gi
"""

_POD = """\
kind: Pod
apiVersion: v1
metadata:
  name: diary
spec:
  nodeSelector: {ebs-provisioner.io/sandbox-node: real}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: writer
      image: busybox:1
      command: [sleep, "3600"]
      env:
        - name: NODE
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
      volumeMounts:
        - mountPath: /data
          name: mypd
  volumes:
    - name: mypd
      persistentVolumeClaim:
        claimName: diary
"""

_WRITE = 'echo "Dear diary, today I was on $NODE" > /data/diary.txt; seq 500000 > /data/numbers'
_IN_POD = ("exec", "diary", "--")


async def tell(stage: Stage) -> None:
    """Tell it; the claim ``diary`` and its pod stay.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.aside(
        "Up to here all pods were on nodes that only pretend. Two more have waited: real kubelets "
        "and containerds with our node plugin, to which EC2's volumes come as loop devices."
    )
    await teller.kubectl("uncordon", "--selector", f"{LABEL}=real")
    teller.manifest(f"{_CLASS_AND_CLAIM}---\n{_POD}")
    stage.leave("storageclass", "standard-xfs")
    await teller.kubectl("apply", "-f", "-", text=f"{_CLASS_AND_CLAIM}---\n{_POD}")
    what = "its volume is made, attached, formatted and mounted, and the pod runs"
    row = await teller.until(what, lambda: _running(stage))
    teller.show([row])
    sums = await _write(stage)
    await teller.kubectl("cordon", row["node"])
    there = await _move(stage, row)
    teller.show([there])
    await teller.kubectl(*_IN_POD, "cat", "/data/diary.txt")
    if await _sums(stage) != sums:
        raise SandboxError(f"on {there['node']} the files are others than on {row['node']}")
    teller.seen("they are the same bytes on another node")
    await teller.kubectl("uncordon", row["node"])


async def _write(stage: Stage) -> str:
    """Have files written in the pod, and look at where they are; their checksums."""
    await stage.teller.kubectl(*_IN_POD, "sh", "-c", _WRITE)
    await stage.teller.kubectl(*_IN_POD, "df", "-h", "/data")
    await stage.teller.kubectl(*_IN_POD, "grep", " /data ", "/proc/mounts")
    return await _sums(stage)


async def _sums(stage: Stage) -> str:
    command = "sha256sum /data/diary.txt /data/numbers"
    return await stage.teller.kubectl(*_IN_POD, *command.split())


async def _move(stage: Stage, before: Json) -> Json:
    """Put a new pod on the other node, and tell what EC2 shows meanwhile; where it is then."""
    teller = stage.teller
    await teller.kubectl("delete", "pod", "diary", "--wait=false")

    async def gone() -> bool:
        return all(each["metadata"]["name"] != "diary" for each in await stage.items(PODS))

    await teller.until(f"the pod is gone from {before['node']}", gone)
    await teller.kubectl("apply", "-f", "-", text=_POD)
    shown = [before["attached to"]]

    async def moved() -> Json | None:
        row = await _row(stage)
        now = row["attached to"] if row else await _attached_to(stage)
        if now != shown[-1]:
            shown.append(now)
        there = row is not None and row["node"] != before["node"]
        return await _running(stage) if there else None

    there = await teller.until("the new pod runs on the other node", moved)
    teller.seen(f"EC2 showed its volume attached to {' → '.join(s or 'none' for s in shown)}")
    return there


async def _running(stage: Stage) -> Json | None:
    """The row once its containers run and EC2 says that its volume is on their instance."""
    pod = await stage.api.get(f"{PODS}/diary")
    ready = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    row = await _row(stage) if ready.get("Ready") == "True" else None
    return row if row and row["instance"] == row["attached to"] else None


async def _row(stage: Stage) -> Json | None:
    """The pod with its node, and its volume with the instance that EC2 has attached it to."""
    nodes = {each.name: each.instance for each in stage.sandbox.real_nodes}
    pod = await stage.api.get(f"{PODS}/diary")
    instance = nodes.get(pod["spec"].get("nodeName", ""))
    if instance is None or await stage.bound("diary") is None:
        return None
    return {
        "pod": "diary",
        "node": instance.private_dns_name,
        "instance": instance.instance_id,
        "attached to": await _attached_to(stage),
    }


async def _attached_to(stage: Stage) -> str:
    claim = await stage.api.get(f"{CLAIMS}/diary")
    volume = await stage.volume(claim["spec"]["volumeName"])
    return ", ".join(a["InstanceId"] for a in volume["Attachments"])
