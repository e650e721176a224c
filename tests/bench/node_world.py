"""A node plugin on a machine of its own: its start, what it weighs, and how it mounts volumes.

Run by ``node_measure`` as root, in namespaces of its own, with which all that is mounted here goes.
It writes one line of JSON.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import msgspec

from provisioner.node.csi.wire import csi_pb2
from provisioner.sandbox.control_plane import free_port
from tests.bench import processes
from tests.bench.node_floor import Floor
from tests.bench.node_numbers import Machine, Mounting, Traffic, Way
from tests.node import controller_pb2
from tests.node.caller import Caller, calling
from tests.node.kube_server import KubeServer, serving
from tests.node.sanity_controller import SanityController
from tests.node.sanity_world import has_this_node, own_machine, plugin

VOLUMES = 25
KINDS = {"ext4": 13, "xfs": 12}
STARTS = 5
SCRAPES = 5
IDLE_S = 60.0
_SIZE_BYTES = 4 * 1024**3
_START_S, _STOP_S, _CALL_S = 20.0, 30.0, 60.0
_LOOK_S = 0.005
_PLUGINS = "kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com"
_BLANK = {"devicePath": "/dev/xvdba", "ebs-provisioner.io/made-from": "blank"}


class Volume:
    """A volume at this machine."""

    def __init__(self, folder: Path, number: int, volume_id: str, file_system: str) -> None:
        self.volume_id = volume_id
        serial = volume_id.replace("-", "")
        link = Path(f"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{serial}")
        self.device = link.resolve()
        self.folder = folder / f"bare-{number}"
        self.staging = {"staging_target_path": f"{folder}/{_PLUGINS}/{number}/globalmount"}
        self.target = {
            "target_path": f"{folder}/kubelet/pods/{number}/volumes/kubernetes.io~csi/pv/mount"
        }
        self.asked: dict[str, Any] = {
            "volume_id": volume_id,
            "volume_capability": {"mount": {"fs_type": file_system}, "access_mode": {"mode": 1}},
            "publish_context": _BLANK,
            **self.staging,
        }
        for path in (*self.staging.values(), *self.target.values()):
            Path(path).parent.mkdir(parents=True, exist_ok=True)

    def traffic(self) -> Traffic:
        """What went to its disk so far."""
        loop = self.device.name.removeprefix("nvme").removesuffix("n1")
        return Traffic.of(Path(f"/sys/block/loop{loop}/stat").read_text())

    async def mount(self, call: Caller) -> float:
        """NodeStage and NodePublish; the seconds."""
        began_s = time.monotonic()
        await call("NodeStageVolume", timeout_s=_CALL_S, **self.asked)
        await call("NodePublishVolume", timeout_s=_CALL_S, **self.asked, **self.target)
        return time.monotonic() - began_s

    async def unmount(self, call: Caller) -> None:
        """NodeUnpublish and NodeUnstage."""
        volume = {"volume_id": self.volume_id}
        await call("NodeUnpublishVolume", timeout_s=_CALL_S, **volume, **self.target)
        await call("NodeUnstageVolume", timeout_s=_CALL_S, **volume, **self.staging)


class Shop:
    """Where volumes come from."""

    def __init__(self, folder: Path, kube: KubeServer) -> None:
        files = folder / "volumes"
        files.mkdir()
        self._controller = SanityController(own_machine(folder), files)
        self._folder, self._kube = folder, kube
        self._made = 0

    async def new(self, file_system: str) -> Volume:
        """A blank volume, attached."""
        self._made += 1
        size = csi_pb2.CapacityRange(required_bytes=_SIZE_BYTES)
        wanted = controller_pb2.CreateVolumeRequest(name=f"{self._made}", capacity_range=size)
        volume_id = (await self._controller.create(wanted)).volume.volume_id
        self._kube.has_volume(volume_id, f"pv-{self._made}")
        attach = controller_pb2.ControllerPublishVolumeRequest(volume_id=volume_id)
        await self._controller.attach(attach)
        return Volume(self._folder, self._made, volume_id, file_system)

    async def take_back(self, volume: Volume) -> None:
        """Detach a volume."""
        request = controller_pb2.ControllerUnpublishVolumeRequest(volume_id=volume.volume_id)
        await self._controller.detach(request)


class Race:
    """Volumes of one file system: ours and the floor in turns, each volume new and then existing."""

    def __init__(self, shop: Shop, call: Caller, file_system: str) -> None:
        self._shop, self._call, self._file_system = shop, call, file_system
        self._floor = Floor(file_system)
        self._ways = {(new, ours): Way([], []) for new in (True, False) for ours in (True, False)}
        self._steps_s: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        self.volumes: list[Volume] = []

    async def once(self) -> None:
        """One volume of ours, which stays mounted, and one of the floor's."""
        ours = await self._shop.new(self._file_system)
        bare = await self._shop.new(self._file_system)
        await self._ours(ours, is_new=True)
        await self._bare(bare, is_new=True)
        await ours.unmount(self._call)
        await asyncio.to_thread(self._floor.unmount, bare.folder)
        await self._ours(ours, is_new=False)
        await self._bare(bare, is_new=False)
        await asyncio.to_thread(self._floor.unmount, bare.folder)
        await self._shop.take_back(bare)
        self.volumes.append(ours)

    async def _ours(self, volume: Volume, *, is_new: bool) -> None:
        before = volume.traffic()
        self._note((is_new, True), await volume.mount(self._call), volume, before)

    async def _bare(self, volume: Volume, *, is_new: bool) -> None:
        before = volume.traffic()
        took_s = await asyncio.to_thread(
            lambda: self._floor.mount(volume.device, volume.volume_id, volume.folder, is_new=is_new)
        )
        self._note((is_new, False), took_s, volume, before)
        self._steps_s[is_new].append(self._floor.steps_s)

    def _note(self, way: tuple[bool, bool], took_s: float, volume: Volume, before: Traffic) -> None:
        self._ways[way].seconds.append(took_s)
        self._ways[way].traffic.append(volume.traffic().since(before))

    def mountings(self) -> list[Mounting]:
        """What came of it: new volumes, existing ones."""
        found = []
        for is_new, all_steps in self._steps_s.items():
            steps = {name: median(each[name] for each in all_steps) for name in all_steps[0]}
            ours, floor = self._ways[is_new, True], self._ways[is_new, False]
            found.append(Mounting(self._file_system, is_new, ours, floor, steps))
        return found


@asynccontextmanager
async def running(
    folder: Path, kube: KubeServer, port: int
) -> AsyncIterator[tuple[int, Caller, float]]:
    """A node plugin: its process, calls to it, and the seconds of its start."""
    began_s = time.monotonic()
    options = (f"--metrics-address=127.0.0.1:{port}", "--log-level=info")
    process = await plugin(folder, kube, *options)
    csi = folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock"
    registry = folder / "kubelet/plugins_registry/ebs.csi.aws.com-reg.sock"
    try:
        async with asyncio.timeout(_START_S):
            while not (csi.is_socket() and registry.is_socket()):
                if process.returncode is not None:
                    raise SystemExit(f"the node plugin has ended: {process.returncode}")
                await asyncio.sleep(_LOOK_S)
        async with calling(registry) as kubelet, calling(csi) as call:
            await kubelet("GetInfo")
            await call("GetPluginInfo")
            start_s = time.monotonic() - began_s
            await call("NodeGetInfo")
            await kubelet("NotifyRegistrationStatus", plugin_registered=True)
            yield process.pid, call, start_s
    finally:
        if process.returncode is None:
            process.terminate()
        code = await asyncio.wait_for(process.wait(), _STOP_S)
        registry.unlink(missing_ok=True)  # left on purpose, for a plugin that is updated
    if code:
        raise SystemExit(f"the node plugin has ended: {code}")


async def _starts(folder: Path, kube: KubeServer) -> list[float]:
    found = []
    for _ in range(STARTS):
        async with running(folder, kube, free_port()) as (_, _, start_s):
            found.append(start_s)
    return found


async def scraped(port: int, ids: set[str]) -> None:
    """Read the metrics, and see that these volumes are in them."""
    url = f"http://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        text = await reply.text()
    missing = [each for each in ids if f'volume_id="{each}"' not in text]
    if missing:
        raise SystemExit(f"not in the metrics: {', '.join(missing)}")


async def _scrapes(pid: int, port: int, ids: set[str]) -> float:
    """The CPU seconds of one."""
    before_s = processes.cpu_s(pid)
    for _ in range(SCRAPES):
        await scraped(port, ids)
    return (processes.cpu_s(pid) - before_s) / SCRAPES


async def measure(folder: Path) -> Machine:
    """All of it; in a mount namespace of our own."""
    async with serving(folder) as kube:
        has_this_node(kube)
        shop = Shop(folder, kube)
        starts_s = await _starts(folder, kube)
        port = free_port()
        async with running(folder, kube, port) as (pid, call, _):
            empty_mib = processes.memory_mib(pid)[0]
            races = {name: Race(shop, call, name) for name in KINDS}
            for name, count in KINDS.items():
                for _ in range(count):
                    await races[name].once()
            volumes = [volume for race in races.values() for volume in race.volumes]
            scrape_s = await _scrapes(pid, port, {volume.volume_id for volume in volumes})
            before_s = processes.cpu_s(pid)
            await asyncio.sleep(IDLE_S)
            idle_cpu_s = processes.cpu_s(pid) - before_s
            memory = processes.memory_mib(pid)
            for volume in volumes:
                await volume.unmount(call)
                await shop.take_back(volume)
    mountings = [one for race in races.values() for one in race.mountings()]
    sizes = (empty_mib, *memory)
    return Machine(len(volumes), starts_s, *sizes, SCRAPES, scrape_s, IDLE_S, idle_cpu_s, mountings)


async def _main(folder: Path) -> None:
    found = await measure(folder)
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
