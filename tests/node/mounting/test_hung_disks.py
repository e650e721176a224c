"""A disk that hangs is told as such, costs one thread, and holds up nothing that needs no disk."""

import asyncio
import fcntl
import os
import threading
from functools import partial
from types import SimpleNamespace

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Devices
from provisioner.node.formatting import exclusive
from provisioner.node.formatting import format as formatting
from provisioner.node.formatting.format import FileSystemRequest, Formatter
from provisioner.node.mounting import growth
from provisioner.node.requests import Unpublish, Unstage
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.programs import Programs
from tests.node import threads
from tests.node.loop_disks import NEEDS_LOOP_DEVICES, VOLUME, Consents
from tests.node.machine import OTHER
from tests.node.mounting.test_expand import expand

pytest_plugins = ("tests.node.loop_fixtures", "tests.node.machine_fixtures")
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
FLUSH = 0x1261
WISH = FileSystemRequest("ext4", {}, read_only=False)


class Hanging:
    """Work that hangs until it is let go."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.begun.set()
        assert self.may_end.wait(20)


@pytest.fixture
def hanging():
    found = Hanging()
    yield found
    found.may_end.set()


@pytest.fixture
def blocking():
    return BlockingCalls(0.2)


@pytest.fixture
def formatter(host, blocking):
    devices = Devices(host.dirs, BlockingCalls())
    return Formatter(Programs(), devices, Consents(), blocking)


@pytest.fixture
async def device(host):
    host.an_nvme_disk()
    return await Devices(host.dirs, BlockingCalls()).find(VOLUME, "", "", wait_s=0)


def opening_hangs(monkeypatch, hanging):
    def ioctl(fd, request, *rest):
        if request == FLUSH:
            hanging()
        return fcntl.ioctl(fd, request, *rest)

    monkeypatch.setattr(exclusive, "fcntl", SimpleNamespace(ioctl=ioctl))


def reading_hangs(monkeypatch, hanging):
    read = exclusive.ExclusiveDevice.read

    def slow(self, *where):
        hanging()
        return read(self, *where)

    monkeypatch.setattr(exclusive.ExclusiveDevice, "read", slow)


def looking_hangs(monkeypatch, hanging):
    peek = exclusive.peek

    def slow(*where):
        hanging()
        return peek(*where)

    monkeypatch.setattr("provisioner.node.formatting.format.peek", slow)


async def given_up(work, hanging):
    """Somebody begins it, and leaves when it hangs."""
    waiting = asyncio.create_task(work)
    assert await asyncio.to_thread(hanging.begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("hangs", [opening_hangs, reading_hangs, looking_hangs])
async def test_the_next_tries_are_told_and_begin_nothing_until_it_answers(
    device, formatter, hanging, monkeypatch, hangs
):
    blocking = formatter._blocking
    hangs(monkeypatch, hanging)
    work = partial(formatter.ensure, device, WISH, "blank")
    if hangs is looking_hangs:
        work = partial(formatter.forget_mark, device)
    await given_up(work(), hanging)

    for _ in range(2):
        with pytest.raises(NodeError, match="has been hanging for 0 s: the disk may") as told:
            await work()
        assert told.value.reason is Reason.TIMED_OUT
    assert hanging.count == 1
    assert len(blocking) == 1

    hanging.may_end.set()
    await work()
    assert len(blocking) == 0


async def test_a_device_whose_closing_hangs_holds_up_no_other(
    host, device, formatter, hanging, monkeypatch
):
    """The kernel gives the number of its file to the next one before the closing ends."""
    host.an_nvme_disk(OTHER, name="nvme2n1")
    closed = []

    def close(held):
        closed.append(held)
        os.close(held)
        if len(closed) == 1:
            hanging()

    monkeypatch.setattr(formatting, "os", SimpleNamespace(close=close, uname=os.uname))
    waiting = asyncio.create_task(formatter.ensure(device, WISH, "blank"))
    assert await asyncio.to_thread(hanging.begun.wait, 10)

    other = await Devices(host.dirs, BlockingCalls()).find(OTHER, "", "", wait_s=0)
    assert (await formatter.ensure(other, WISH, "blank")).is_new

    assert len(set(closed)) == 1
    hanging.may_end.set()
    await waiting


async def test_a_thread_that_cannot_be_started_keeps_no_device(device, formatter, blocking):
    with (
        threads.none_starts(),
        pytest.raises(NodeError, match="cannot start a thread") as refused,
    ):
        await formatter.ensure(device, WISH, "blank")

    assert refused.value.reason is Reason.PROGRAM_MISSING
    assert len(blocking) == 0
    assert (await formatter.ensure(device, WISH, "blank")).is_new


async def test_what_fails_is_let_go(device, formatter, blocking):
    device.path.unlink()

    for work in (formatter.ensure(device, WISH, "blank"), formatter.forget_mark(device)):
        with pytest.raises(NodeError) as gone:
            await work
        assert gone.value.reason is Reason.DEVICE_NOT_FOUND
    assert len(blocking) == 0


async def test_a_volume_is_unmounted_while_a_read_of_its_disk_hangs(machine, hanging, monkeypatch):
    """A growth had read the superblock: neither the pod nor the volume could leave any more."""
    disk = machine.attach()
    machine.blocking._timeout_s = 0.2
    await machine.stager.stage(machine.stage(file_system="xfs"))
    await machine.publisher.publish(machine.publish())
    disk.grow(600)
    monkeypatch.setattr(growth, "_head_of", lambda _: hanging())

    with pytest.raises(NodeError) as hung:
        await machine.expander.expand(expand(machine, machine.target(), 600), time_left_s=1)
    assert hung.value.reason is Reason.TIMED_OUT
    await machine.publisher.unpublish(Unpublish(VOLUME, str(machine.target())))
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))

    assert machine.mounts_below() == []
    assert len(machine.blocking) == 1
    hanging.may_end.set()
    await machine.blocking.call(f"device {disk.number}", int, what="waiting for its end")
