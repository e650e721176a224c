"""Growing volumes in use: waits for the device's new size; raw ones; twice; what is not possible."""

import asyncio
import os
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import AccessMode, Expand
from tests.node.machine import MIB, OTHER, VOLUME, Machine, capability, run, why_no_ext_growth

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


def expand(machine: Machine, path: Path, size_mib: int, **given: object) -> Expand:
    asked: dict[str, object] = {
        "staging_path": "",
        "required_bytes": size_mib * MIB,
        "capability": None,
    }
    return Expand(volume_id=VOLUME, volume_path=str(path), **asked | given)  # type: ignore[arg-type]


def size_of(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


@pytest.fixture
async def published(machine):
    """A machine with one xfs volume published."""
    machine.disk = machine.attach()
    await machine.stager.stage(machine.stage(file_system="xfs"))
    await machine.publisher.publish(machine.publish())
    return machine


@pytest.mark.parametrize("at", ["target", "staging"])
async def test_a_file_system_grows_while_it_is_used(published, at):
    published.disk.grow(1024)
    path = getattr(published, at)()
    with (published.target() / "file").open("w") as file:
        file.write("while it grows")
        size_bytes = await published.expander.expand(expand(published, path, 1024))

    assert size_bytes == 1024 * MIB
    assert size_of(published.target()) > 900 * MIB


async def test_ext4_grows_while_it_is_used(machine):
    if reason := why_no_ext_growth():
        pytest.skip(reason)
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    disk.grow(1024)

    await machine.expander.expand(expand(machine, machine.staging(), 1024))

    assert size_of(machine.staging()) > 900 * MIB


async def test_growing_that_the_kernel_denies_is_told_with_what_is_missing(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    disk.grow(1024)
    machine.fake("resize2fs", "echo resize2fs: Permission denied to resize filesystem >&2; exit 1")

    with pytest.raises(NodeError, match="from 536870912 to 1073741824 bytes: resize2fs ") as failed:
        await machine.expander.expand(expand(machine, machine.staging(), 1024))

    assert failed.value.reason is Reason.GROW_FAILED
    assert "CAP_SYS_RESOURCE" in failed.value.message


async def test_the_staging_path_is_looked_at_where_the_other_has_nothing(published):
    published.disk.grow(1024)
    request = expand(
        published, published.kubelet / "pods/gone", 1024, staging_path=str(published.staging())
    )

    assert await published.expander.expand(request) == 1024 * MIB
    assert size_of(published.staging()) > 900 * MIB


async def test_growing_twice_is_as_once(published):
    published.disk.grow(1024)
    request = expand(published, published.target(), 1024)
    await published.expander.expand(request)
    published.restart()

    assert await published.expander.expand(request) == 1024 * MIB


async def test_waits_until_the_device_shows_its_new_size(published):
    growing = asyncio.ensure_future(
        published.expander.expand(expand(published, published.target(), 1024))
    )
    await asyncio.sleep(0)
    published.disk.grow(1024)

    assert await growing == 1024 * MIB
    assert size_of(published.target()) > 900 * MIB


async def test_a_device_that_stays_small_is_told(published):
    with pytest.raises(NodeError) as late:
        await published.expander.expand(
            expand(published, published.target(), 1024), time_left_s=0.2
        )

    assert late.value.reason is Reason.TIMED_OUT
    assert f"{published.disk.node} still has {512 * MIB}" in late.value.message


async def test_no_size_asked_for_grows_to_the_device(published):
    published.disk.grow(800)

    assert await published.expander.expand(expand(published, published.target(), 0)) == 800 * MIB
    assert size_of(published.target()) > 700 * MIB


async def test_a_raw_device_has_grown_by_itself(machine):
    disk = machine.attach()
    await machine.publisher.publish(machine.publish(is_block=True))
    disk.grow(1024)
    request = expand(machine, machine.target(), 1024)
    told = expand(machine, machine.target(), 1024, capability=capability(is_block=True))
    unseen = expand(machine, machine.staging(), 1024, capability=capability(is_block=True))

    for each in (request, told, unseen):
        assert await machine.expander.expand(each) == 1024 * MIB


async def test_what_is_not_mounted_there_is_told(machine):
    machine.attach()

    with pytest.raises(NodeError) as missing:
        await machine.expander.expand(expand(machine, machine.target(), 1024))

    assert missing.value.reason is Reason.VOLUME_NOT_STAGED


async def test_another_volume_mounted_there_is_not_grown(machine):
    machine.attach()
    other = machine.attach(OTHER)
    run("mkfs.xfs", "-q", other.node)
    machine.target().mkdir(parents=True)
    run("mount", other.node, machine.target())
    other.grow(1024)

    with pytest.raises(NodeError) as wrong:
        await machine.expander.expand(expand(machine, machine.target(), 0))

    assert wrong.value.reason is Reason.WRONG_DEVICE
    assert size_of(machine.target()) < 512 * MIB


async def test_a_file_system_staged_for_reading_is_told_not_to_grow_now(machine):
    disk = machine.attach()
    run("mkfs.xfs", "-q", disk.node)
    reads = {"file_system": "xfs", "mode": AccessMode.MULTI_NODE_READER_ONLY}
    await machine.stager.stage(machine.stage(origin="snap-1", **reads))
    disk.grow(1024)

    with pytest.raises(NodeError, match="is mounted read-only at") as refused:
        await machine.expander.expand(expand(machine, machine.staging(), 1024))

    assert refused.value.reason is Reason.GROW_FAILED


async def test_a_superblock_that_is_gone_is_told_as_damage(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    machine.target().mkdir(parents=True)
    run("mount", disk.node, machine.target())
    machine.fake("resize2fs", "exit 0")
    run("dd", "if=/dev/zero", f"of={disk.node}", "bs=1024", "seek=1", "count=1", "conv=notrunc")

    with pytest.raises(NodeError, match="no superblock of the ext4 that is mounted") as damaged:
        await machine.expander.expand(expand(machine, machine.target(), 0))

    assert damaged.value.reason is Reason.FILE_SYSTEM_DAMAGED
