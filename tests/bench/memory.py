"""Memory of the controller and its start, with an empty and with a full cluster."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from provisioner.sandbox.control_plane import free_port
from tests.bench import null_bodies, processes
from tests.bench.phases import CLAIMS, CLASS, VOLUMES, claim
from tests.bench.world import OURS, ZONES, World, world

_IMPORT = (
    "import provisioner.cli, provisioner.controller.app;"
    "from tests.bench.processes import memory_mib; print(memory_mib()[0])"
)
_READY_S = 300.0  # a hundred thousand objects on a busy machine
_LOOK_S = 0.02
_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB resident, seconds from the start of the process to its first ready answer."""

    objects: int
    imported_mib: float
    empty_mib: float
    empty_ready_s: float
    full_mib: float
    peak_mib: float
    ready_s: float


async def measure(parent: Path, binaries: Path, objects: int) -> Memory:
    """Start the controller twice: in an empty cluster, and with so many PVs and claims."""
    async with world(parent, binaries, instances=len(ZONES), throttle="documented") as made:
        # The binder would write four times to each pair, for minutes; the controller's caches
        # hold the same objects without it.
        await made.plane.crew.stop("kube-controller-manager")
        empty = await _one_start(made)
        await made.hands.send_all(_volumes(objects))
        await made.hands.send_all(_claims(objects))
        full = await _one_start(made)
    imported = await asyncio.to_thread(_imported_mib)
    return Memory(objects, imported, empty[0], empty[2], *full)


def _imported_mib() -> float:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


async def _one_start(made: World) -> tuple[float, float, float]:
    """Resident and peak MiB once it is quiet, and the seconds until it was ready."""
    address = f"127.0.0.1:{free_port()}"
    starting = asyncio.create_task(made.start(OURS, "--metrics-address", address))
    ready_s = await until_ready(f"http://{address}/readyz")
    await starting
    await made.quiet()
    resident, peak = processes.memory_mib(made.pid)
    await made.stop()
    return resident, peak, ready_s


async def until_ready(url: str) -> float:
    """Ask until the answer is yes; the seconds that it took."""
    began_s = time.monotonic()
    async with asyncio.timeout(_READY_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as reply:
                    if reply.ok:
                        return time.monotonic() - began_s
            except aiohttp.ClientError:
                pass  # it does not listen yet
            await asyncio.sleep(_LOOK_S)


def _volumes(count: int) -> Iterator[tuple[str, str, Any]]:
    """Persistent volumes as the product writes them, each reserved for its claim."""
    for number in range(count):
        meta = {
            "namespace": _NAMESPACE,
            "name": f"data-{number}",
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "resourceVersion": "1",
        }
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
        name, handle = f"pvc-{meta['uid']}", f"vol-{number:017x}"
        zone = ZONES[number % len(ZONES)]
        yield "POST", VOLUMES, null_bodies.manifest(meta, spec, name, handle, zone)


def _claims(count: int) -> Iterator[tuple[str, str, Any]]:
    for number in range(count):
        name = f"pvc-00000000-0000-4000-8000-{number:012}"
        body = claim(number, volumeName=name)
        body["metadata"]["annotations"] = {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
            "volume.kubernetes.io/storage-provisioner": null_bodies.DRIVER,
            "ebs-provisioner.io/zone": ZONES[number % len(ZONES)],
        }
        yield "POST", CLAIMS, body
