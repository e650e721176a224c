"""Raw volumes at a stage: nobody who works on one notices, and a mark of ours goes or stops it."""

import os
from typing import Any

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.formatting.exclusive import ExclusiveDevice
from provisioner.node.formatting.rules import MARK_BYTES, mark_block, mark_offsets
from provisioner.node.requests import AccessMode, Unpublish, Unstage
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

    def opened(path, *_):
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(ExclusiveDevice, "open", opened)

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


async def test_a_raw_volume_asked_for_reading_is_not_formatted_over(machine):
    """Nothing keeps its pod from writing, and with the mark nobody would look at what it wrote."""
    disk = machine.attach()
    mark(disk)
    asked: dict[str, Any] = {"is_block": True, "mode": AccessMode.MULTI_NODE_READER_ONLY}
    await machine.stager.stage(machine.stage(**asked))
    await machine.publisher.publish(machine.publish(**asked))
    data = b"raw data" * 100
    with machine.target().open("r+b") as shown:
        shown.write(data)
    await machine.publisher.unpublish(Unpublish(VOLUME, str(machine.target())))
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))

    with pytest.raises(NodeError) as refused:
        await machine.stager.stage(machine.stage())

    assert refused.value.reason is Reason.NOT_BLANK
    with disk.node.open("rb") as device:
        assert device.read(len(data)) == data


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
