"""Volumes that move between real nodes while everything that moves them is killed.

Each volume goes through cycles: a pod is put on a node, checks every byte that was ever written,
writes a file more, and goes; the volume is unmounted and detached. Meanwhile somebody sends SIGKILL
to the node plugin, kubelet and containerd of the nodes and to the controller, again and again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.nodes import DRIVER
from provisioner.sandbox.real_node import traces
from provisioner.sandbox.real_node.cycle_report import Report
from provisioner.sandbox.real_node.file_pods import KnownFile, checking_pod, told
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.kills import Kills, cut_off, explain
from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from provisioner.sandbox.up import Sandbox

Json = dict[str, Any]

FILE_SYSTEMS: Final = ("ext4", "xfs")
PATIENCE_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.2
_MOST_EXTRA: Final = 20
_LEAST_LINES, _MOST_LINES = 20_000, 200_000
_APPEARS_AFTER_S: Final = 1.0
_NOT_FOUND = 404


@dataclass
class _Volume:
    """One claim and what is to be on it."""

    claim: str
    file_system: str
    files: list[KnownFile] = field(default_factory=list)
    volume_id: str = ""
    persistent_volume: str = ""
    identity: str = ""  # of its file system
    last_node: str = ""
    ran_s: float = 0.0  # when its last pod still ran, of time.monotonic()


class Cycles:
    """Cycles of several volumes at once, in a namespace of their own.

    Args:
        sandbox: with real nodes, of which those in the first zone are used, an installed controller
            and one that runs.
        namespace: is made, and removed at the end.
        seed: of nodes, sizes and kills; what the machine makes of their times is its own.
        say: is told each kill and cycle.
        formatting: whether a volume, of which it gets content and id, says that it is being
            formatted; if given, the node plugin is killed then too. If that was too late for each
            volume, there are more volumes and cycles until a format was ended, at most 20.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        namespace: str,
        seed: int,
        *,
        say: Callable[[str], None] = lambda _: None,
        formatting: Callable[[Path, str], bool] | None = None,
    ) -> None:
        assert sandbox.fleet is not None, "there are no real nodes"
        self._sandbox = sandbox
        self._nodes, self._disks = sandbox.fleet.in_first_zone, sandbox.fleet.disks
        self._namespace = namespace
        self._random = random.Random(seed)  # noqa: S311 (not cryptography)
        self._say = say
        self._formatting = formatting
        self._kills = Kills(sandbox, self._nodes, self._random, say)
        self._left_to_begin = 0
        self._forgotten: set[str] = set()  # ids of volumes
        self.report = Report(seed, 0, len(self._nodes))

    @property
    def _api(self) -> Api:
        return self._sandbox.plane.api

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods"

    @property
    def _claims(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims"

    async def run(self, cycles: int, volumes: int) -> Report:
        """Run so many cycles altogether; all of it is gone afterwards.

        Raises:
            AssertionError: a byte was lost, or something did not come about in two minutes.
        """
        report, began_s = self.report, time.monotonic()
        report.volumes = volumes
        self._left_to_begin = cycles
        disks = self._disks
        torn_before = len(disks.torn)
        every = [
            _Volume(f"volume-{n}", FILE_SYSTEMS[n % len(FILE_SYSTEMS)]) for n in range(volumes)
        ]
        await self._prepare(every)
        # So late that the node plugin has to wait for it, as it may have to on an instance.
        disks.appears_after_s = _APPEARS_AFTER_S
        await self._while_all_are_killed(every)
        disks.appears_after_s = 0.0
        # Nobody is killed any more: what the last pods wrote is read too.
        async with asyncio.TaskGroup() as group:
            for volume in every:
                group.create_task(self._cycle(volume, None))
        report.took_s = time.monotonic() - began_s
        report.torn = [str(each) for each in disks.torn[torn_before:]]
        report.kills, report.formats_ended = self._kills.counted, self._kills.formats
        await self._remove(every)
        named = {each.volume_id: each.persistent_volume for each in every}
        for node in self._nodes:  # some were unmounted before they were detached
            self._forgotten |= traces.forgotten_by_kubelet(node.log(PLUGIN))
            self._forgotten |= self._cut_off(node)
        roots = {each.name: each.root for each in self._nodes}
        report.left = await traces.left(disks, roots, named, self._forgotten)
        return report

    def _cut_off(self, node: RealNode) -> set[str]:
        """Volumes whose record a kubelet has not removed, as it was killed just then."""
        epoch_s = _epoch_s()
        found = [(each, at_s - epoch_s) for each, at_s in traces.unstaged(node.log(PLUGIN))]
        return cut_off(found, node.instance.instance_id, self._kills.of_kubelets)

    # -- one volume

    async def _go_round(self, volume: _Volume) -> None:
        while self._left_to_begin > 0:
            self._left_to_begin -= 1
            lines = self._random.randint(_LEAST_LINES, _MOST_LINES)
            await self._cycle(volume, KnownFile(f"{volume.claim}-{len(volume.files)}", lines))
            self.report.cycles += 1

    async def _cycle(self, volume: _Volume, new: KnownFile | None) -> None:
        node = self._random.choice(self._nodes)
        name = f"{volume.claim}-cycle-{len(volume.files) if new else 'last'}"
        body = checking_pod(name, volume.claim, volume.files, new, image=POD_IMAGE, node=node.name)
        await self._api.create(self._pods, body)
        message = await self._until(f"pod {name} has succeeded", lambda: self._end(name, volume))
        self.report.moves += volume.last_node not in ("", node.name)
        volume.last_node = node.name
        self.report.checked_bytes += sum(each.size_bytes for each in volume.files)
        if new is not None:
            assert f"wrote {new.name}" in message, message
            self.report.written_bytes += new.size_bytes
            volume.files.append(new)
        self._say(f"{name} on {node.name}: {message}")
        await self._delete(f"{self._pods}/{name}", gracePeriodSeconds="1")
        await self._detached(volume)
        await self._judge(volume, node)
        self._look_at_file_system(volume)

    async def _end(self, pod: str, volume: _Volume) -> str | None:
        looked_s = time.monotonic()
        message = told(await self._api.get(f"{self._pods}/{pod}"))
        if message is None:
            volume.ran_s = looked_s
        return message

    async def _judge(self, volume: _Volume, node: RealNode) -> None:
        """Take note where a killed kubelet explains that the volume was detached while mounted."""
        for torn in [each for each in self._disks.torn if each.volume_id == volume.volume_id]:
            status = (await self._api.get(f"/api/v1/nodes/{node.name}"))["status"]
            in_use = status.get("volumesInUse", ())
            if explain(torn, self._asked_s(volume, node), self._kills.of_kubelets, in_use):
                self._disks.torn.remove(torn)
                self.report.forgotten.append(str(torn))
                self._forgotten.add(volume.volume_id)

    def _asked_s(self, volume: _Volume, node: RealNode) -> float:
        """When a kubelet first asked for the volume to be unmounted from the pod that ran last.

        If no such call was answered: when that pod still ran.
        """
        epoch_s = _epoch_s()
        asked = [at_s - epoch_s for at_s in traces.unpublishes(node.log(PLUGIN), volume.volume_id)]
        return min((at_s for at_s in asked if at_s > volume.ran_s), default=volume.ran_s)

    async def _detached(self, volume: _Volume) -> None:
        async def detached() -> bool:
            found = await self._api.get("/apis/storage.k8s.io/v1/volumeattachments")
            sources = [each["spec"]["source"] for each in found["items"]]
            names = [each.get("persistentVolumeName") for each in sources]
            gone = volume.persistent_volume not in names
            return gone and volume.volume_id not in self._disks.in_use

        await self._until(f"{volume.volume_id} is detached", detached)

    def _look_at_file_system(self, volume: _Volume) -> None:
        """Its UUID is made by mkfs: another one means that somebody has formatted it again."""
        path = self._disks.content_of(volume.volume_id)
        identity = traces.file_system_identity(path, volume.file_system)
        if volume.identity not in ("", identity):
            self.report.formatted_anew.append(f"{volume.volume_id} ({volume.file_system})")
        volume.identity = identity

    # -- who kills

    async def _while_all_are_killed(self, every: list[_Volume]) -> None:
        await self._sandbox.stop_controller(10.0)
        # A new one is to lead at once; how long a lease is kept is another story.
        await self._sandbox.start_controller("--no-leader-elect")
        async with asyncio.TaskGroup() as group:
            killer = group.create_task(self._kills.again_and_again(), name="killer")
            of_formats: asyncio.Task[None] | None = None
            if self._formatting:
                unformatted = partial(_unformatted, every)
                work = self._kills.while_formatting(self._formatting, unformatted)
                of_formats = group.create_task(work, name="killer of formats")
            tasks = [group.create_task(self._go_round(volume)) for volume in every]
            await asyncio.wait(tasks)
            killer.cancel()
            await asyncio.wait({killer})
            if of_formats:
                await self._until_a_format_was_ended(every)
                of_formats.cancel()
        # The killers have ended what they had begun; all are there, and as they were, at the end.
        await self._sandbox.stop_controller(10.0)
        await self._sandbox.start_controller()
        for node in self._nodes:
            await node.ready()

    async def _until_a_format_was_ended(self, every: list[_Volume]) -> None:
        """Give new volumes to pods; a kill that waited for another of its node came too late."""
        for n in range(_MOST_EXTRA):
            if self._kills.formats:
                return
            volume = _Volume(f"extra-{n}", FILE_SYSTEMS[n % len(FILE_SYSTEMS)])
            every.append(volume)
            self.report.volumes += 1
            await self._claim(volume)
            await self._until(f"{volume.claim} is Bound", partial(self._is_bound, volume))
            await self._cycle(volume, KnownFile(f"{volume.claim}-0", _LEAST_LINES))

    # -- beginning and end

    async def _prepare(self, every: list[_Volume]) -> None:
        await self._api.create("/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        accounts = f"/api/v1/namespaces/{self._namespace}/serviceaccounts"

        async def takes_pods() -> bool:
            return bool((await self._api.get(accounts))["items"])

        await self._until("the namespace takes pods", takes_pods)
        # Made before anybody is killed: a new controller looks for a minute for what the killed one
        # may have begun to make, and that is no part of a cycle.
        zone = {"key": "topology.kubernetes.io/zone", "values": [self._nodes[0].instance.zone]}
        for file_system in FILE_SYSTEMS:
            body = {
                "metadata": {"name": f"{self._namespace}-{file_system}"},
                "provisioner": DRIVER,
                "parameters": {"type": "gp3", "csi.storage.k8s.io/fstype": file_system},
                "allowedTopologies": [{"matchLabelExpressions": [zone]}],
            }
            await self._api.create("/apis/storage.k8s.io/v1/storageclasses", body)
        for volume in every:
            await self._claim(volume)
        for volume in every:
            await self._until(f"{volume.claim} is Bound", partial(self._is_bound, volume))

    async def _claim(self, volume: _Volume) -> None:
        spec = {
            "storageClassName": f"{self._namespace}-{volume.file_system}",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        body = {"metadata": {"name": volume.claim}, "spec": spec}
        await self._api.create(self._claims, body)

    async def _is_bound(self, volume: _Volume) -> bool:
        claim = await self._api.get(f"{self._claims}/{volume.claim}")
        if claim["status"].get("phase") != "Bound":
            return False
        volume.persistent_volume = claim["spec"]["volumeName"]
        path = f"/api/v1/persistentvolumes/{volume.persistent_volume}"
        volume.volume_id = (await self._api.get(path))["spec"]["csi"]["volumeHandle"]
        return True

    async def _remove(self, every: list[_Volume]) -> None:
        await self._delete(self._claims)
        for volume in every:
            path = f"/api/v1/persistentvolumes/{volume.persistent_volume}"
            await self._until(f"{path} is gone", partial(self._is_gone, path))
        for file_system in FILE_SYSTEMS:
            name = f"{self._namespace}-{file_system}"
            await self._delete(f"/apis/storage.k8s.io/v1/storageclasses/{name}")
        await self._delete(f"/api/v1/namespaces/{self._namespace}")

    async def _is_gone(self, path: str) -> bool:
        try:
            await self._api.get(path)
        except ApiError as error:
            return error.status == _NOT_FOUND
        return False

    async def _delete(self, path: str, **query: str) -> None:
        try:
            await self._api.delete(path, **query)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    async def _until(self, what: str, look: Callable[[], Awaitable[Any]]) -> Any:
        until_s = time.monotonic() + PATIENCE_S
        while not (seen := await look()):
            if time.monotonic() > until_s:
                for line in await self._why():
                    self._say(line)
                raise AssertionError(f"not in {PATIENCE_S:.0f} s: {what}; so far {self.report}")
            await asyncio.sleep(_LOOK_EVERY_S)
        return seen

    async def _why(self) -> list[str]:
        """Why it takes so long, as far as kubelets and the attacher have told it."""
        pods = (await self._api.get(self._pods))["items"]
        events = (await self._api.get(f"/api/v1/namespaces/{self._namespace}/events"))["items"]
        attachments = (await self._api.get("/apis/storage.k8s.io/v1/volumeattachments"))["items"]
        return [
            *(f"{each['metadata']['name']}: {each['status']}" for each in pods),
            *(
                f"{each['lastTimestamp']} {each.get('count')} x {each['involvedObject']['name']}: "
                f"{each['reason']}: {each['message']}"
                for each in events
            ),
            *(f"{each['spec']}: {each.get('status')}" for each in attachments),
        ]


def _epoch_s() -> float:
    """What ``time.time()`` is ahead of ``time.monotonic()``."""
    return time.time() - time.monotonic()


def _unformatted(every: list[_Volume]) -> set[str]:
    return {each.volume_id for each in every if not each.identity}
