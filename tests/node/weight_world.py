"""A node plugin with 25 volumes: what it weighs, and how long it takes to mount one.

Run by ``tests/node/test_weight.py`` as root, below unshare(1); it writes one line of JSON::

    unshare --mount --propagation private python -m tests.node.weight_world FOLDER
"""

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from provisioner.node.wire import csi_pb2
from tests.node import controller_pb2
from tests.node.caller import Caller, calling
from tests.node.kube_server import KubeServer, serving
from tests.node.sanity_controller import SanityController
from tests.node.sanity_world import has_this_node, own_machine, plugin, until_there

GIB = 1024**3
VOLUMES = 25
SCRAPES = 5
_STOP_S = 30.0


async def main(folder: Path) -> None:
    (folder / "volumes").mkdir()
    controller = SanityController(own_machine(folder), folder / "volumes")
    port = _free_port()
    async with serving(folder) as kube, running(folder, kube, port) as (process, call):
        paths = [await mounted(folder, kube, controller, call, n) for n in range(VOLUMES)]
        ids = [str(each["volume_id"]) for each in paths]
        again = [await restaged(call, each) for each in paths]
        series = [await scraped(port) for _ in range(SCRAPES)][-1]
        resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        assert resident is not None
        for each in paths:
            await taken_down(call, each)
        for volume_id in ids:
            request = controller_pb2.ControllerUnpublishVolumeRequest(volume_id=volume_id)
            await controller.detach(request)
    facts = {
        "resident_mib": int(resident[1]) / 1024,
        "new_s": [each["took_s"] for each in paths],
        "existing_s": again,
        "measured": sorted({i for i in ids if f'volume_id="{i}"' in series}) == sorted(ids),
        "code": process.returncode,
    }
    sys.stdout.write(f"{json.dumps(facts)}\n")


@asynccontextmanager
async def running(
    folder: Path, kube: KubeServer, port: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Caller]]:
    has_this_node(kube)
    process = await plugin(folder, kube, f"--metrics-address=127.0.0.1:{port}")
    csi = folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock"
    try:
        await until_there(csi, process)
        async with calling(csi) as call:
            yield process, call
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), _STOP_S)


async def mounted(
    folder: Path, kube: KubeServer, controller: SanityController, call: Caller, n: int
) -> dict[str, Any]:
    """A new volume of 4 GiB, staged and published."""
    size = csi_pb2.CapacityRange(required_bytes=4 * GIB)
    made = await controller.create(
        controller_pb2.CreateVolumeRequest(name=f"{n}", capacity_range=size)
    )
    volume_id = made.volume.volume_id
    kube.has_volume(volume_id, f"pv-{n}")
    request = controller_pb2.ControllerPublishVolumeRequest(volume_id=volume_id)
    context = dict((await controller.attach(request)).publish_context)
    asked: dict[str, Any] = {
        "volume_id": volume_id,
        "staging_target_path": f"{folder}/kubelet/plugins/kubernetes.io/csi/x/{n}/globalmount",
        "volume_capability": {"mount": {"fs_type": "ext4"}, "access_mode": {"mode": 1}},
        "publish_context": context,
    }
    target = f"{folder}/kubelet/pods/{n}/volumes/kubernetes.io~csi/pv-{n}/mount"
    _make(Path(asked["staging_target_path"]), Path(target).parent)
    took_s = await _both(call, asked, target)
    return {"volume_id": volume_id, "asked": asked, "target": target, "took_s": took_s}


async def restaged(call: Caller, volume: dict[str, Any]) -> float:
    await taken_down(call, volume)
    return await _both(call, volume["asked"], volume["target"])


async def taken_down(call: Caller, volume: dict[str, Any]) -> None:
    named = {"volume_id": volume["volume_id"]}
    path = volume["asked"]["staging_target_path"]
    await call("NodeUnpublishVolume", target_path=volume["target"], **named)
    await call("NodeUnstageVolume", staging_target_path=path, **named)


async def _both(call: Caller, asked: dict[str, Any], target: str) -> float:
    began_s = time.monotonic()
    await call("NodeStageVolume", timeout_s=60, **asked)
    await call("NodePublishVolume", timeout_s=60, target_path=target, **asked)
    return round(time.monotonic() - began_s, 3)


async def scraped(port: int) -> str:
    url = f"http://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        return await reply.text()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def _make(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
