"""The end of a sandbox with real nodes, however it comes: nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from provisioner.sandbox import workdir
from provisioner.sandbox.commands import have_binaries
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.real_node import cgroups
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.real_node.host import Host
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.remains import remains
from tests.cluster import sandbox_up
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE

pytestmark = NEEDS_A_REAL_NODE


class Up:
    """A running ``sandbox up --real-node``, and all that belongs to its nodes."""

    def __init__(self, process: asyncio.subprocess.Process, temporary: Path) -> None:
        self.process = process
        self.temporary = temporary
        self.agents: list[int] = []
        self.keepers: list[int] = []
        self.groups: set[str] = set()

    def look(self, said: str) -> None:
        self.agents = [int(pid) for pid in re.findall(r"/proc/(\d+)/root", said)]
        for pid in self.agents:
            keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            self.keepers.append(keeper)
            self.groups.add(cgroups.name_for(keeper))

    def inside(self) -> set[int]:
        """All processes of its nodes: those of their pid namespaces."""
        spaces = {Path(f"/proc/{pid}/ns/pid").readlink() for pid in self.agents}
        return {
            int(each.name)
            for each in Path("/proc").glob("[0-9]*")
            if _link(each / "ns/pid") in spaces
        }

    def routers(self) -> set[int]:
        """The children of the sandbox that have left the machine's network: in the router's."""
        children = [
            pid
            for task in Path(f"/proc/{self.process.pid}/task").glob("*/children")
            for pid in task.read_text().split()
        ]
        mine = _link(Path("/proc/self/ns/net"))
        return {int(pid) for pid in children if _link(Path(f"/proc/{pid}/ns/net")) != mine}

    def in_networks(self) -> set[int]:
        """All processes in the networks of its nodes, and of their router."""
        spaces = {_link(Path(f"/proc/{pid}/ns/net")) for pid in (*self.agents, *self.routers())}
        return {
            int(each.name)
            for each in Path("/proc").glob("[0-9]*")
            if _link(each / "ns/net") in spaces - {None}
        }

    async def has_no_keepers(self) -> bool:
        return not any(cgroups.name_for(keeper) in self.groups for keeper in self.keepers)

    def folder(self) -> Path:
        [found] = self.temporary.glob(f"{workdir.PREFIX}*")
        return found

    async def kubectl(self, *arguments: str, text: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *(str(have_binaries() / "kubectl"), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"KUBECONFIG": str(self.folder() / workdir.KUBECONFIG)},
        )
        output, _ = await process.communicate(text.encode())
        assert process.returncode == 0
        return output.decode()


async def use_volumes(up: Up) -> None:
    """Have a pod run that has one volume mounted and another one as a device."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": mode.lower()},
            "spec": spec | {"storageClassName": "ebs-gp3", "volumeMode": mode},
        }
        for mode in ("Filesystem", "Block")
    ]
    body = pod(
        "user",
        "exec sleep 100000",
        {"/data": "filesystem"},
        image=POD_IMAGE,
        devices={"/dev/xvdz": "block"},
        nodeSelector={"ebs-provisioner.io/sandbox-node": "real"},
    )
    items = [*claims, {"apiVersion": "v1", "kind": "Pod"} | body]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    await up.kubectl("apply", "-f", "-", text=json.dumps(document))
    await up.kubectl("wait", "--for=condition=Ready", "--timeout=90s", "pod/user")


def _link(path: Path) -> Path | None:
    try:
        return path.readlink()
    except OSError:
        return None


@asynccontextmanager
async def up(temporary: Path) -> AsyncIterator[Up]:
    options = ("--real-node", "--nodes=1", "--zones=1", "--latency=none", "--no-webhook")
    async with sandbox_up.started(temporary, *options) as process:
        assert process.stdout is not None
        said = ""
        async with asyncio.timeout(180):
            while "Ctrl-C stops everything" not in said:
                line = await process.stdout.readline()
                assert line, (await process.communicate())[1].decode()
                said += line.decode()
        running = Up(process, temporary)
        running.look(said)
        yield running


async def by_ctrl_c(up: Up) -> None:
    await sandbox_up.ended_by_ctrl_c(up.process)


async def by_being_killed(up: Up) -> None:
    up.process.kill()
    await up.process.wait()


async def by_being_killed_with_the_keepers(up: Up) -> None:
    """Nobody is left to tidy up: the next node does it."""
    up.process.kill()
    for keeper in up.keepers:
        os.kill(keeper, signal.SIGKILL)
    await up.process.wait()
    async with asyncio.timeout(60):
        await until(up.has_no_keepers)
    host = Host(up.temporary / "next", (), print)
    await host.on()
    await host.off()
    shutil.rmtree(up.temporary / "next")


@pytest.mark.parametrize("end", [by_ctrl_c, by_being_killed, by_being_killed_with_the_keepers])
async def test_nothing_is_left_of_real_nodes_when_a_sandbox_ends(
    tmp_path: Path, end: Callable[[Up], Awaitable[None]]
) -> None:
    interfaces = sorted(each.name for each in Path("/sys/class/net").iterdir())
    async with up(tmp_path) as running:
        await use_volumes(running)
        inside, folder = running.inside() | running.in_networks(), running.folder()
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in inside}
        assert {"containerd", "kubelet", "kube-proxy", "coredns"} <= names
        assert len({_link(Path(f"/proc/{pid}/ns/net")) for pid in running.routers()}) == 1
        assert running.routers() < inside
        assert sorted(each.name for each in Path("/sys/class/net").iterdir()) == interfaces
        assert len(running.agents) == 2
        before = remains(folder, running.groups)
        assert sum(each.startswith("loop device") for each in before) == 2
        assert any(each.startswith("control group") for each in before)

        await end(running)

        def left() -> list[str]:
            alive = [f"process {pid}" for pid in inside if Path(f"/proc/{pid}").exists()]
            every = [*alive, *remains(folder, running.groups)]
            return [each for each in every if each != f"folder {folder}"]

        async def gone() -> bool:
            return not left()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                await until(gone)
        assert left() == []

    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    # Whose owner was killed, the next start removes.
    workdir.remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["coredns", "kube-proxy"])
async def test_without_names_or_services_it_ends_and_says_which_part_is_missing(
    tmp_path: Path, part: str
) -> None:
    async with up(tmp_path) as running:
        inside, folder = running.inside() | running.in_networks(), running.folder()
        named = {pid for pid in inside if Path(f"/proc/{pid}/comm").read_text().strip() == part}
        os.kill(min(named), signal.SIGKILL)

        async with asyncio.timeout(sandbox_up.ENDS_WITHIN_S):
            _, errors = await running.process.communicate()
        assert running.process.returncode == 1
        assert f"{part} ended by signal 9; the end of its log:" in errors.decode()
        assert not [pid for pid in inside if Path(f"/proc/{pid}").exists()]
        assert remains(folder, running.groups) == []
