"""The worked example on real nodes: its pod writes a file, and a new one elsewhere reads it."""

from __future__ import annotations

from provisioner.sandbox.chapters.in_tree import CLASS_AND_CLAIM
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.node import LABEL
from provisioner.sandbox.stage import CLAIMS, PODS, ZONE_LABEL, Json, Stage

TITLE = "The same class and claim on real nodes: a file that moves with its pod"

_POD = """\
kind: Pod
apiVersion: v1
metadata:
  name: nginx
spec:
  nodeSelector: {ebs-provisioner.io/sandbox-node: real}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: nginx
      image: busybox:1
      command: [sleep, "3600"]
      env:
        - name: NODE
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
      volumeMounts:
        - mountPath: "/var/www/html"
          name: html
  volumes:
    - name: html
      persistentVolumeClaim:
        claimName: ebs-standard-30g
"""

_FOLDER = "/var/www/html"
_WRITE = f'cd {_FOLDER}; echo "Written on $NODE" > index.html; seq 500000 > numbers'
_IN_POD = ("exec", "nginx", "--")


async def tell(stage: Stage) -> None:
    """Tell it, after the chapter of the removed plugin's class; the claim and its pod stay.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.aside(
        "Until now, all pods were on simulated nodes. Real nodes run as well, two of them in this "
        "zone, with kubelet, containerd and our node plugin; EC2's volumes appear there as loop "
        "devices."
    )
    zone = stage.sandbox.real_nodes[0].instance.zone
    await teller.kubectl("uncordon", "--selector", f"{LABEL}=real,{ZONE_LABEL}={zone}")
    await _begin_anew(stage)
    what = "its volume is created, attached, formatted and mounted, and the pod runs"
    row = await teller.until(what, lambda: _running(stage))
    name = (await stage.api.get(f"{CLAIMS}/ebs-standard-30g"))["spec"]["volumeName"]
    stage.leave("persistentvolume", name)  # the class says Retain
    stage.to_delete[name] = (await stage.volume(name))["VolumeId"]
    teller.show([row])
    sums = await _write(stage)
    await teller.kubectl("cordon", row["node"])
    there = await _move(stage, row)
    teller.show([there])
    await teller.kubectl(*_IN_POD, "cat", f"{_FOLDER}/index.html")
    if await _sums(stage) != sums:
        raise SandboxError(f"on {there['node']} the files differ from those on {row['node']}")
    teller.seen("the same bytes are on the other node")
    await teller.kubectl("uncordon", row["node"])


async def _begin_anew(stage: Stage) -> None:
    """Have pod and claim made once more, where they come to the real nodes."""
    teller = stage.teller
    await teller.kubectl("delete", "pod/nginx", "pvc/ebs-standard-30g", "--wait=false")

    async def gone() -> bool:
        items = [*await stage.items(PODS), *await stage.items(CLAIMS)]
        return not {each["metadata"]["name"] for each in items} & {"nginx", "ebs-standard-30g"}

    await teller.until("the simulated pod and its claim are gone", gone)
    teller.aside(
        "Class and claim are unchanged; the pod gets an image that is available here, and selects "
        "a real node. The pod is created first, because the controller creates a volume with "
        "Immediate binding where a waiting pod can run. The webhook cannot know that, and warns."
    )
    teller.manifest(_POD)
    await teller.kubectl("apply", "-f", "-", text=_POD)

    async def waits() -> bool:
        status = (await stage.api.get(f"{PODS}/nginx"))["status"]
        return any(each.get("reason") == "Unschedulable" for each in status.get("conditions", ()))

    await teller.until("the pod waits for its claim", waits)
    await teller.kubectl("apply", "-f", "-", text=CLASS_AND_CLAIM)


async def _write(stage: Stage) -> str:
    """Have files written in the pod, and look at where they are; their checksums."""
    await stage.teller.kubectl(*_IN_POD, "sh", "-c", _WRITE)
    await stage.teller.kubectl(*_IN_POD, "df", "-h", _FOLDER)
    await stage.teller.kubectl(*_IN_POD, "grep", f" {_FOLDER} ", "/proc/mounts")
    return await _sums(stage)


async def _sums(stage: Stage) -> str:
    command = f"sha256sum {_FOLDER}/index.html {_FOLDER}/numbers"
    return await stage.teller.kubectl(*_IN_POD, *command.split())


async def _move(stage: Stage, before: Json) -> Json:
    """Put a new pod on the other node, and tell what EC2 shows meanwhile; where it is then."""
    teller = stage.teller
    await teller.kubectl("delete", "pod", "nginx", "--wait=false")

    async def gone() -> bool:
        return all(each["metadata"]["name"] != "nginx" for each in await stage.items(PODS))

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
    row = await _row(stage) if await stage.is_ready("nginx") else None
    return row if row and row["instance"] == row["attached to"] else None


async def _row(stage: Stage) -> Json | None:
    """The pod with its node, and its volume with the instance that EC2 has attached it to."""
    nodes = {each.name: each.instance for each in stage.sandbox.real_nodes}
    pod = await stage.api.get(f"{PODS}/nginx")
    instance = nodes.get(pod["spec"].get("nodeName", ""))
    if instance is None or await stage.bound("ebs-standard-30g") is None:
        return None
    return {
        "pod": "nginx",
        "node": instance.private_dns_name,
        "instance": instance.instance_id,
        "attached to": await _attached_to(stage),
    }


async def _attached_to(stage: Stage) -> str:
    claim = await stage.api.get(f"{CLAIMS}/ebs-standard-30g")
    volume = await stage.volume(claim["spec"]["volumeName"])
    return ", ".join(a["InstanceId"] for a in volume["Attachments"])
