"""Disks for the strict EC2: where it says attached, a machine gets a device with the bytes.

It follows ``/_disks`` of the strict EC2 and carries out one change after the other: so a volume has
left one machine before it comes to the next, and a snapshot holds what there was when it was taken.
Only that a device appears can be put off, and then holds nothing else up.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import loops
from provisioner.sandbox.real_node.disk_files import DiskFiles
from provisioner.sandbox.real_node.plugs import Machine, Plug
from provisioner.sandbox.real_node.wholly import wholly

_POLL_S: Final = 25.0
_ANSWERS_WITHIN_S: Final = 30.0
_AGAIN_AFTER_S: Final = 0.2
# nvme0n1 is the root volume.
_NUMBERS: Final = range(1, 128)
# Nobody may use a device that is being detached; programs that have just ended may still close it.
# What they write in this time is lost, but for a Multi-Attach volume that another machine has too.
_LET_GO_S: Final = 0.5
_MACHINE_GONE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Torn:
    """A device that EC2 took from a machine which still used it: on EC2 the end of its data."""

    volume_id: str
    instance_id: str
    name: str
    holders: tuple[str, ...]
    at_s: float = 0.0  # time.monotonic()

    @property
    def is_only_staged(self) -> bool:
        """Whether no pod had it: it was mounted where a kubelet stages volumes, and nowhere else.

        A kubelet that is killed between a pod's unmount and this one forgets the volume
        (``provisioner.node.runtime.mount_table_rules``), and says that it is not in use.
        """
        return bool(self.holders) and all(
            each.startswith("mounted at ") and each.endswith("/globalmount")
            for each in self.holders
        )

    def __str__(self) -> str:
        how = "; ".join(self.holders) or "in use by something that cannot be seen"
        return (
            f"{self.volume_id} was detached from {self.instance_id} while that still used it as"
            f" {self.name}: {how}"
        )


class Disks:
    """The disks of a sandbox; an async context manager that leaves none behind.

    Attributes:
        torn: what was taken from a machine that used it; each is told on standard error too.
        appears_after_s: how long after EC2's "attached" machines see a device. It can be set at
            any time.
    """

    def __init__(self, endpoint: str, folder: Path, *, seed: int | None = None) -> None:
        self.torn: list[Torn] = []
        self.appears_after_s = 0.0
        self._endpoint = endpoint
        self._files = DiskFiles(folder)
        self._random = random.Random(seed)  # noqa: S311 (names, not cryptography)
        self._machines: dict[str, Machine] = {}
        self._attached: defaultdict[str, dict[str, int]] = defaultdict(dict)  # GiB
        self._awaited: dict[tuple[str, str], int] = {}  # numbers of changes
        self._plugs: dict[tuple[str, str], Plug] = {}
        self._turn = asyncio.Lock()
        self._follower: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._files.folder.mkdir(parents=True, exist_ok=True)
        self._session = aiohttp.ClientSession(self._endpoint)
        try:
            last, _ = await self._ask(0, 0.0)
        except BaseException:
            await self._session.close()
            raise
        self._follower = asyncio.create_task(self._follow(last), name="disks")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._follower is not None
        self._follower.cancel()
        await asyncio.wait({self._follower})
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            await self._session.delete("/_disks", timeout=aiohttp.ClientTimeout(total=2))
        await self._session.close()
        for plug in self._plugs.values():
            plug.take()
            plug.loop.release(0.0)
        self._plugs.clear()

    def check(self) -> None:
        """Raise SandboxError if nobody follows EC2 any more."""
        if self._follower is not None and self._follower.done():
            raise SandboxError(f"the disks have stopped: {self._follower.exception()!r}")

    async def plug_in(self, machine: Machine) -> None:
        """Let a machine have disks; those that are attached to it already appear at once.

        Raises:
            OSError: there is no loop device to be had.
        """
        async with self._turn:
            self._machines[machine.instance_id] = machine
            for volume_id, instances in self._attached.items():
                if machine.instance_id in instances:
                    await wholly(asyncio.to_thread(self._put, volume_id, machine.instance_id))

    async def pull_plug(self, instance_id: str) -> None:
        """Forget a machine that is gone; what EC2 has attached to it stays so.

        Raises:
            SandboxError: something of the machine still lives and holds a device.
        """
        async with self._turn:
            self._machines.pop(instance_id, None)
            for plug in [each for key, each in self._plugs.items() if key[1] == instance_id]:
                del self._plugs[plug.volume_id, instance_id]
                plug.take()
                if not await wholly(asyncio.to_thread(plug.loop.release, _MACHINE_GONE_S)):
                    raise SandboxError(
                        f"{instance_id} is gone, but {plug.volume_id} is still"
                        f" {'; '.join(plug.loop.holders())}"
                    )

    def device_of(self, volume_id: str, instance_id: str) -> str:
        """Return the name that a machine knows a volume by, such as nvme7n1; "" if it has none."""
        plug = self._plugs.get((volume_id, instance_id))
        return plug.name if plug else ""

    def content_of(self, volume_id: str) -> Path:
        """Return the file with a volume's bytes; to be read while no machine has it."""
        return self._files.path(volume_id)

    @property
    def in_use(self) -> set[str]:
        """The volumes that some machine has."""
        # A list, as a thread may put and take meanwhile.
        return {volume_id for volume_id, _ in list(self._plugs)}

    # -- following EC2

    async def _follow(self, last: int) -> None:
        async with asyncio.TaskGroup() as appearing:
            while True:
                try:
                    latest, changes = await self._ask(last, _POLL_S)
                except (aiohttp.ClientError, TimeoutError):
                    # It ends before us, or a test has stopped it.
                    await asyncio.sleep(_AGAIN_AFTER_S)
                    continue
                async with self._turn:
                    for change in changes:
                        # Whoever lets go of all plugs must not meet a thread that takes one.
                        await wholly(asyncio.to_thread(self._carry_out, change))
                        if change["what"] == "attached" and self.appears_after_s:
                            appearing.create_task(self._appear(change))
                last = latest

    async def _appear(self, change: dict[str, Any]) -> None:
        await asyncio.sleep(self.appears_after_s)
        key = change["thing_id"], change["instance_id"]
        async with self._turn:
            # It may be detached again, or on its way for another time.
            if self._awaited.get(key) == change["number"]:
                await wholly(asyncio.to_thread(self._put, *key))

    async def _ask(self, after: int, wait_s: float) -> tuple[int, list[dict[str, Any]]]:
        timeout = aiohttp.ClientTimeout(total=wait_s + _ANSWERS_WITHIN_S)
        query = {"after": str(after), "wait_s": str(wait_s)}
        async with self._session.get("/_disks", params=query, timeout=timeout) as reply:
            reply.raise_for_status()
            document = await reply.json()
            return document["last"], document["changes"]

    def _carry_out(self, change: dict[str, Any]) -> None:
        thing_id, instance_id = change["thing_id"], change["instance_id"]
        match change["what"]:
            case "made" | "snapshot":
                self._files.copy(change["source_id"], thing_id)
            case "attached":
                self._attached[thing_id][instance_id] = change["size_gib"]
                self._awaited[thing_id, instance_id] = change["number"]
                if not self.appears_after_s:
                    self._put(thing_id, instance_id)
            case "detached":
                self._attached[thing_id].pop(instance_id, None)
                self._awaited.pop((thing_id, instance_id), None)
                self._take(thing_id, instance_id)
            case "resized":
                self._resize(thing_id, change["size_gib"])
            case "deleted":
                self._attached.pop(thing_id, None)
                self._files.delete(thing_id)
            case "reset":
                self._forget_everything()

    # -- what machines see

    def _put(self, volume_id: str, instance_id: str) -> None:
        if (volume_id, instance_id) in self._plugs or instance_id not in self._machines:
            return
        size_gib = max(self._attached[volume_id].values())
        # Each machine of a Multi-Attach volume has its own, and so a cache of its own, as on EC2.
        loop = loops.make(self._files.sized(volume_id, size_gib))
        taken = {plug.name for key, plug in self._plugs.items() if key[1] == instance_id}
        free = [name for each in _NUMBERS if (name := f"nvme{each}n1") not in taken]
        machine = self._machines[instance_id]
        plug = Plug(machine, volume_id, self._random.choice(free), loop)
        self._plugs[volume_id, instance_id] = plug
        if machine.dev.is_dir():  # or it has died, and we are about to be told
            plug.put()

    def _take(self, volume_id: str, instance_id: str) -> None:
        plug = self._plugs.get((volume_id, instance_id))
        if plug is None:
            return
        try:
            self._take_away(plug)
        finally:
            # Last: who sees that no machine has it must find it among those torn as well.
            del self._plugs[volume_id, instance_id]

    def _take_away(self, plug: Plug) -> None:
        at_s, loop = time.monotonic(), plug.loop
        mounts = loop.mounts()
        plug.take()
        if loop.release(0.0) and not mounts:
            return
        if not any(
            each is not plug and each.volume_id == plug.volume_id for each in self._plugs.values()
        ):
            # What somebody still writes is lost, as on EC2: it must not spoil what others read.
            self._files.renew(plug.volume_id)
        if not mounts and loop.is_released(_LET_GO_S):
            return
        holders = tuple(dict.fromkeys([*mounts, *loop.holders()]))
        torn = Torn(plug.volume_id, plug.machine.instance_id, plug.name, holders, at_s)
        self.torn.append(torn)
        print(f"TORN: {torn}", file=sys.stderr, flush=True)

    def _resize(self, volume_id: str, size_gib: int) -> None:
        instances = self._attached[volume_id]
        instances.update(dict.fromkeys(instances, size_gib))
        for plug in [each for key, each in self._plugs.items() if key[0] == volume_id]:
            self._files.sized(volume_id, size_gib)
            plug.loop.grow()

    def _forget_everything(self) -> None:
        for volume_id, instance_id in list(self._plugs):
            self._take(volume_id, instance_id)
        self._attached.clear()
        self._awaited.clear()
        for each in self._files.folder.iterdir():
            each.unlink()
