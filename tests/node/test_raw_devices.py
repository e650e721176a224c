"""Raw volumes at a stage: nobody who works on one notices, and a mark of ours goes or stops it."""

import os

import pytest

from provisioner.decide.format_mark import MARK_BYTES, mark_block, mark_offsets
from provisioner.model.errors import NodeError, Reason
from provisioner.node.claimed import ClaimedDevice
from tests.node.loop_disks import NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME
from tests.node.machine import MIB

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]


def mark(disk):
    with disk.node.open("r+b") as device:
        for offset in mark_offsets(SIZE_BYTES):
            device.seek(offset)
            device.write(mark_block(VOLUME, 1))
        device.flush()
        os.fsync(device.fileno())


def is_marked(disk):
    with disk.node.open("rb") as device:
        return any(
            device.seek(offset) and any(device.read(MARK_BYTES))
            for offset in mark_offsets(SIZE_BYTES)
        )


async def test_a_raw_volume_at_work_is_not_claimed(machine, monkeypatch):
    """A pod's exclusive open, its mount or pvcreate would fail meanwhile."""
    machine.attach()

    def claimed(path, *_):
        raise AssertionError(f"{path} was claimed")

    monkeypatch.setattr(ClaimedDevice, "open", claimed)

    await machine.stager.stage(machine.stage(is_block=True))


async def test_a_raw_volume_that_a_pod_holds_alone_is_staged_again(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage(is_block=True))
    pod = os.open(disk.node, os.O_RDWR | os.O_EXCL)
    try:
        os.pwrite(pod, b"x" * MIB, 0)
        await machine.stager.stage(machine.stage(is_block=True))
    finally:
        os.close(pod)


async def test_a_marked_volume_that_is_in_use_is_not_shown_as_a_raw_device(machine):
    """An mkfs that outlived its plugin still writes."""
    disk = machine.attach()
    mark(disk)
    mkfs = os.open(disk.node, os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(NodeError) as refused:
            await machine.stager.stage(machine.stage(is_block=True))
    finally:
        os.close(mkfs)

    assert refused.value.reason is Reason.DEVICE_BUSY
    assert is_marked(disk)
    await machine.stager.stage(machine.stage(is_block=True))
    assert not is_marked(disk)
