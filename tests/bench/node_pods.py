"""Pods on a real kubelet whose volumes are new, and others whose volumes exist: one after another."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from provisioner.model.attachment import attachment_name
from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.real_node import file_pods
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from provisioner.sandbox.up import Sandbox
from tests.bench import node_numbers
from tests.bench.hands import BenchError, Eye, Hands, Seen
from tests.bench.node_numbers import Pods
from tests.bench.phases import ATTACHMENTS, CLAIMS, CLASS, CLASSES, VOLUMES, is_attached, is_gone

COUNT = 10
_PODS = "/api/v1/namespaces/default/pods"
_PATIENCE_S = 60.0
_SCRIPTS = {True: "echo kept > /data/it", False: "grep kept /data/it"}


class _Csi(msgspec.Struct, rename="camel"):
    volume_handle: str


class _Spec(msgspec.Struct):
    csi: _Csi


class _Volume(msgspec.Struct):
    spec: _Spec


class _Volumes(msgspec.Struct):
    items: list[_Volume]


async def measure(folder: Path) -> tuple[Pods, ...]:
    """Run the pods on a real node of its own.

    Raises:
        SandboxError: it cannot be had; its message says what is missing.
        BenchError: a pod did not end well.
    """
    async with one_real_node(folder, latency="none") as (box, hands, node):
        await hands.send_all(("POST", CLAIMS, _claim(number)) for number in range(COUNT))
        async with Eye(hands, ATTACHMENTS, is_gone) as detached:
            new = await _run(hands, node, is_new=True)
            await detached.wait_for(COUNT, _PATIENCE_S)
        box.crew.check()
        return new, await _run(hands, node, is_new=False)


@asynccontextmanager
async def one_real_node(
    folder: Path, *, latency: str
) -> AsyncIterator[tuple[Sandbox, Hands, RealNode]]:
    """A sandbox with one node, which is real, and a class that waits for the first pod.

    In a new folder below ``folder``, which may be another sandbox's.
    """
    started = Sandbox.start(
        nodes=0,
        zones=1,
        latency=latency,
        throttle="none",
        folder=Path(tempfile.mkdtemp(dir=folder)),
        snapshots=False,
        real_nodes=1,
    )
    async with started as box, Hands(box.plane) as hands:
        (node,) = box.real_nodes
        await hands.send("POST", CLASSES, _class())
        yield box, hands, node


async def _run(hands: Hands, node: RealNode, *, is_new: bool) -> Pods:
    """One pod for each claim, each when the one before it has ended."""
    log = node.log(PLUGIN)
    begin = log.stat().st_size
    async with Eye(hands, _PODS, _has_ended) as ended, Eye(hands, ATTACHMENTS, is_attached) as seen:
        for number in range(COUNT):
            await hands.send("POST", _PODS, _pod(number, node.name, is_new=is_new))
            await ended.wait_for(number + 1, _PATIENCE_S)
    since_s = time.time() - asyncio.get_running_loop().time()
    with log.open() as file:
        file.seek(begin)
        found, failed = node_numbers.mounted(file)
    volumes = msgspec.json.decode(await hands.send("GET", VOLUMES), type=_Volumes).items
    ids = {each.spec.csi.volume_handle for each in volumes}
    names = {attachment_name(volume_id, EBS_DRIVER, node.name): volume_id for volume_id in ids}
    attached_at_s = {names[name]: at_s + since_s for name, at_s in seen.at_s.items()}
    return node_numbers.pods(found, attached_at_s, failed, is_new=is_new)


def _has_ended(_: str, seen: Seen) -> bool:
    if seen.status.phase == "Failed":
        raise BenchError(f"pod {seen.metadata.name} has failed")
    return seen.status.phase == "Succeeded"


def _class() -> dict[str, Any]:
    return {
        "metadata": {"name": CLASS},
        "provisioner": EBS_DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"type": "gp3", "csi.storage.k8s.io/fstype": "ext4"},
    }


def _claim(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"data-{number}"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "4Gi"}},
        },
    }


def _pod(number: int, node: str, *, is_new: bool) -> dict[str, Any]:
    name = f"{'writer' if is_new else 'reader'}-{number}"
    claims = {"/data": f"data-{number}"}
    return file_pods.pod(name, _SCRIPTS[is_new], claims, image=POD_IMAGE, node=node)
