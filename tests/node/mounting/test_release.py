"""An unstaged volume stays attached while its file system is mounted in any mount namespace."""

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.node.requests import Unstage
from tests.node.machine import VOLUME, Machine, run
from tests.node.mounting.test_attached_here import FORMER, a_xen_disk, attached

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private", "sh", "-c")


@contextmanager
def running(script: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a mount namespace of its own, once it has set up what its script says."""
    process = subprocess.Popen(
        [*OWN_MOUNTS, f"{script} && echo && exec sleep 1000"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def container(machine: Machine, mounted: Path | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """One with the volume mounted where nobody else sees it, and no file on it open."""
    place = machine.folder / "container"
    place.mkdir(exist_ok=True)
    with running(f"mount --bind {mounted or machine.staging()} {place}") as process:
        yield process


async def staged(machine: Machine, **asked: Any) -> None:
    await machine.stager.stage(machine.stage(**asked))


async def unstage(machine: Machine) -> None:
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))


async def refused(machine: Machine, where: str = "in another mount namespace") -> str:
    with pytest.raises(NodeError, match=f"is still mounted {where}") as busy:
        await unstage(machine)
    assert busy.value.reason is Reason.TARGET_BUSY
    return busy.value.message


@pytest.mark.parametrize("file_system", ["ext4", "ext3", "xfs"])
async def test_a_container_that_lives_keeps_its_volume_until_it_has_ended(machine, file_system):
    machine.attach()
    await staged(machine, file_system=file_system)

    with container(machine):
        for _ in range(2):
            await refused(machine)
            assert machine.mounts_below() == []
    await unstage(machine)


async def test_the_message_has_commands_that_show_who_has_it(machine):
    machine.attach()
    await staged(machine)

    with container(machine) as process:
        said = await refused(machine)

        found = re.search(r"run `(grep [^`]+)`", said)
        assert found is not None
        listing = await asyncio.create_subprocess_shell(found[1], stdout=subprocess.PIPE)
        listed, _ = await listing.communicate()
        assert listed.decode().splitlines() == [f"/proc/{process.pid}/mountinfo"]
        assert VOLUME in said


async def test_a_container_that_ends_meanwhile_is_waited_for(machine):
    machine.attach()
    await staged(machine)
    machine.restart(release_s=60)

    with container(machine) as process:
        unstaging = asyncio.create_task(unstage(machine))
        done, _ = await asyncio.wait({unstaging}, timeout=1)
        assert not done
        process.kill()
        process.wait()
        began_s = time.monotonic()
        await unstaging

    assert time.monotonic() - began_s < 30


async def test_a_plugin_that_was_restarted_meanwhile_finds_it_still_in_use(machine):
    machine.attach()
    await staged(machine)

    with container(machine):
        await refused(machine)
        machine.restart()
        await refused(machine)
    await unstage(machine)


@pytest.mark.parametrize("done", ["unmounted", "removed"])
async def test_a_plugin_that_was_killed_after_its_unmount_finds_it_in_use(machine, done):
    machine.attach()
    await staged(machine)

    with container(machine):
        run("umount", machine.staging())
        if done == "removed":
            machine.staging().rmdir()
        await refused(machine)


async def test_a_copy_of_the_kubelets_mounts_in_an_agents_container_is_no_use(machine):
    machine.attach()
    await staged(machine)

    with running("true") as agent:
        copies = Path(f"/proc/{agent.pid}/mountinfo")
        assert str(machine.staging()) in copies.read_text()
        await unstage(machine)
        assert str(machine.staging()) not in copies.read_text()


async def test_a_file_that_an_agent_has_open_is_a_use(machine):
    machine.attach()
    await staged(machine)
    (machine.staging() / "file").write_text("written")

    with running(f"exec 3<{machine.staging()}/file"):
        await refused(machine)
    await unstage(machine)


async def test_a_file_that_is_open_after_a_lazy_unmount_is_a_use(machine):
    machine.attach()
    await staged(machine)

    with (machine.staging() / "file").open("w"):
        run("umount", "--lazy", machine.staging())
        await refused(machine)
    await unstage(machine)


async def test_a_mount_that_the_plugin_sees_is_named(machine):
    machine.attach()
    await staged(machine)
    await machine.publisher.publish(machine.publish())

    await refused(machine, f"at {machine.target()}")
    run("umount", machine.target())
    await unstage(machine)


async def test_a_file_system_that_is_read_only_may_go(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    await staged(machine, flags=("ro",), origin="snap-1")

    with container(machine):
        await unstage(machine)


async def test_a_volume_that_is_gone_keeps_nobody_waiting(machine):
    disk = machine.attach()
    await staged(machine)

    with container(machine):
        machine.detach(disk, frees_number=False)
        for _ in range(2):
            await unstage(machine)


async def test_a_new_pod_on_the_node_gets_it_although_it_could_not_be_unstaged(machine):
    disk = machine.attach()
    machine.known_by_its_name(disk)
    await staged(machine)

    with container(machine):
        await refused(machine)
        await staged(machine)
        (machine.staging() / "file").write_text("written")
        await refused(machine)
    await unstage(machine)

    await staged(machine)
    assert (machine.staging() / "file").read_text() == "written"


async def test_a_raw_device_without_a_file_system_may_go(machine):
    disk = machine.attach()
    await staged(machine, is_block=True)

    held = os.open(disk.node, os.O_RDWR)
    try:
        await unstage(machine)
    finally:
        os.close(held)


async def test_a_raw_device_that_a_container_has_mounted_itself_stays(machine):
    disk = machine.attach()
    await staged(machine, is_block=True)
    run("mkfs.ext4", "-q", disk.node)
    place = machine.folder / "own"
    place.mkdir()

    with running(f"mount {disk.node} {place}"):
        await refused(machine)
    await unstage(machine)


async def test_a_partition_that_is_mounted_keeps_its_disk(machine):
    disk = machine.attach()
    run("addpart", disk.loop, "1", "2048", "204800")
    part = f"{disk.loop}p1"
    number = Path(f"/sys/block/{Path(disk.loop).name}/{Path(part).name}/dev").read_text().strip()
    os.mknod(machine.folder / "part", 0o60600, os.makedev(*map(int, number.split(":"))))
    place = machine.folder / "own"
    place.mkdir()
    run("mkfs.ext4", "-q", machine.folder / "part")

    try:
        with running(f"mount {machine.folder / 'part'} {place}"):
            await refused(machine)
        await unstage(machine)
    finally:
        run("delpart", disk.loop, "1")


@pytest.mark.parametrize("of", ["", "nvme1n1p1"])
async def test_what_lies_below_lvm_may_go(machine, of):
    """It stays set up after its users have ended, and nobody would end it."""
    disk = machine.attach()
    machine.known_by_its_name(disk)
    name = Path(disk.loop).name
    here = machine.dirs.sys / "devices" / name
    of = f"{name}p1" if of else ""
    held = os.open(disk.node, os.O_RDONLY | os.O_EXCL)
    try:
        await refused(machine)
        (here / of / "holders" / "dm-0").mkdir(parents=True)
        await unstage(machine)
    finally:
        os.close(held)


class TestOnXen:
    """Where only the attachment says which device a volume is."""

    @pytest.fixture
    def xen(self, machine: Machine) -> Machine:
        a_xen_disk(machine)
        machine.cluster.attachments[VOLUME] = attached()
        return machine

    async def test_a_repeated_call_finds_it_by_its_name(self, xen):
        await staged(xen)
        with container(xen):
            await refused(xen)
            xen.restart()
            await refused(xen)
        await unstage(xen)

    async def test_without_an_attachment_it_is_gone(self, xen):
        await staged(xen)
        with container(xen):
            await refused(xen)
            del xen.cluster.attachments[VOLUME]
            await unstage(xen)

    async def test_an_attachment_of_another_instance_is_none_of_it(self, xen):
        await staged(xen)
        with container(xen):
            await refused(xen)
            xen.cluster.attachments[VOLUME] = attached(ours=FORMER)
            await unstage(xen)

    async def test_an_attachment_that_cannot_be_read_is_no_answer(self, xen):
        await staged(xen)
        with container(xen):
            await refused(xen)
            xen.cluster.trouble = KubeError(Reason.UNREACHABLE, "no answer")
            with pytest.raises(KubeError):
                await unstage(xen)
