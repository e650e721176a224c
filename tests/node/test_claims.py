"""A disk that hangs in our hands is told as such, and costs one thread."""

import asyncio
import fcntl
import threading
from types import SimpleNamespace

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node import claimed
from provisioner.node.claims import Claims
from provisioner.node.device_thread import in_thread
from provisioner.node.devices import Devices
from tests.node import threads
from tests.node.loop_disks import NEEDS_LOOP_DEVICES, VOLUME

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
FLUSH = 0x1261


@pytest.fixture
async def device(host):
    host.an_nvme_disk()
    return await Devices(host.roots).find(VOLUME, "", "", wait_s=0)


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
def hanging(monkeypatch):
    found = Hanging()

    def ioctl(fd, request, *rest):
        if request == FLUSH:
            found()
        return fcntl.ioctl(fd, request, *rest)

    monkeypatch.setattr(claimed, "fcntl", SimpleNamespace(ioctl=ioctl))
    yield found
    found.may_end.set()


async def given_up(work, hanging):
    """Somebody begins it, and leaves when it hangs."""
    waiting = asyncio.create_task(work)
    assert await asyncio.to_thread(hanging.begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def is_over(claims):
    async with asyncio.timeout(10):
        while len(claims):  # noqa: ASYNC110 -- a thread of its own ends it
            await asyncio.sleep(0.01)


async def test_a_claim_that_hangs_is_told_and_not_taken_for_somebody_elses(device, hanging):
    claims = Claims(linger_s=0.01)
    await given_up(claims.claim(device), hanging)

    for _ in range(3):
        with pytest.raises(NodeError, match="has not come back for 0 s: the disk may") as told:
            await claims.claim(device)

    assert told.value.reason is Reason.TIMED_OUT
    assert hanging.count == 1


async def test_a_claim_that_comes_back_late_is_let_go(device, hanging):
    claims = Claims(linger_s=0.01)
    await given_up(claims.claim(device), hanging)

    hanging.may_end.set()
    await is_over(claims)

    (await claims.claim(device)).close()
    assert len(claims) == 0


async def test_a_read_that_hangs_keeps_the_claim_until_it_ends(device, hanging):
    hanging.may_end.set()
    claims = Claims(linger_s=0.01)
    held = await claims.claim(device)
    hanging.begun.clear()
    hanging.may_end.clear()

    def read() -> None:
        with held._working():
            hanging()

    await given_up(in_thread(read, linger_s=0.01), hanging)
    held.close()

    with pytest.raises(NodeError) as told:
        await claims.claim(device)
    assert told.value.reason is Reason.TIMED_OUT
    hanging.may_end.set()
    await is_over(claims)
    (await claims.claim(device)).close()


async def test_a_look_without_a_claim_that_hangs_is_told_too(device, hanging):
    claims = Claims(linger_s=0.01)
    await given_up(claims.look(device, hanging), hanging)

    with pytest.raises(NodeError) as told:
        await claims.look(device, hanging)

    assert told.value.reason is Reason.TIMED_OUT
    assert hanging.count == 1
    hanging.may_end.set()
    await is_over(claims)


async def test_a_thread_that_cannot_be_started_keeps_no_device(device):
    claims = Claims()

    for work in (claims.claim, lambda it: claims.look(it, it.path.read_bytes)):
        with (
            threads.none_starts(),
            pytest.raises(NodeError, match="no thread can be started") as refused,
        ):
            await work(device)
        assert refused.value.reason is Reason.PROGRAM_MISSING

    assert len(claims) == 0
    (await claims.claim(device)).close()


async def test_what_fails_is_let_go(device):
    claims = Claims(linger_s=0.01)
    device.path.unlink()

    for _ in range(2):
        with pytest.raises(NodeError) as gone:
            await claims.claim(device)
        assert gone.value.reason is Reason.DEVICE_NOT_FOUND
        with pytest.raises(NodeError) as gone:
            await claims.look(device, device.path.read_bytes)
        assert gone.value.reason is Reason.DEVICE_NOT_FOUND


async def test_another_claim_at_the_same_time_is_told_as_busy_by_another_process(device):
    held = await Claims().claim(device)

    with pytest.raises(NodeError) as busy:
        await Claims().claim(device)

    held.close()
    assert busy.value.reason is Reason.DEVICE_BUSY
