"""What is written for readers: nothing, but a log that is brought up to date where that is safe."""

from dataclasses import replace

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import AccessMode, Unstage
from tests.node.loop_disks import checksum_of
from tests.node.machine import OTHER, VOLUME, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")
FILE_SYSTEMS = ["ext4", "ext3", "xfs"]


def checksum(disk):
    run("blockdev", "--flushbufs", disk.node)
    return checksum_of(disk.image)


def reader(machine, file_system, *, is_shared):
    """A request for reading, as of a ReadOnlyMany claim."""
    mode = AccessMode.MULTI_NODE_READER_ONLY
    request = machine.stage(OTHER, origin="snap-1", mode=mode, file_system=file_system)
    told = {"ebs-provisioner.io/multi-attach": "true"} if is_shared else {}
    return replace(request, publish_context={**request.publish_context, **told})


async def used(machine, file_system):
    """A volume in use, with files on it."""
    disk = machine.attach()
    await machine.stager.stage(machine.stage(file_system=file_system))
    (machine.staging() / "file").write_text("x" * 100_000)
    run("sync", "-f", machine.staging())
    return disk


@pytest.fixture
def restored(machine):
    """A volume restored from a snapshot, taken while the first one was in use or was not."""

    async def restore(file_system, *, was_unmounted):
        disk = await used(machine, file_system)
        copy = machine.folder / OTHER
        if was_unmounted:
            await machine.stager.unstage(Unstage(disk.volume_id, str(machine.staging())))
        run("cp", "--sparse=always", disk.image, copy)
        return machine.attach(OTHER)

    return restore


async def read(machine, request):
    await machine.stager.stage(request)
    text = (machine.staging(OTHER) / "file").read_text()
    assert machine.mounts.at(str(machine.staging(OTHER))).is_read_only_everywhere
    await machine.stager.unstage(Unstage(OTHER, str(machine.staging(OTHER))))
    return text


@pytest.mark.parametrize("file_system", FILE_SYSTEMS)
async def test_a_restored_volume_that_was_in_use_is_read(machine, restored, file_system):
    """Its log is brought up to date, which writes: no other node has it."""
    await restored(file_system, was_unmounted=False)

    text = await read(machine, reader(machine, file_system, is_shared=False))

    assert text == "x" * 100_000


# An xfs that is mounted with its log gets some blocks of that zeroed.
@pytest.mark.parametrize("file_system", ["ext4", "ext3"])
async def test_nothing_is_written_to_what_was_unmounted(machine, restored, file_system):
    disk = await restored(file_system, was_unmounted=True)
    before = checksum(disk)

    text = await read(machine, reader(machine, file_system, is_shared=False))

    assert text == "x" * 100_000
    assert checksum(disk) == before


@pytest.mark.parametrize("file_system", FILE_SYSTEMS)
async def test_one_that_other_nodes_may_have_is_refused_and_not_written(
    machine, restored, file_system
):
    disk = await restored(file_system, was_unmounted=True)
    before = checksum(disk)

    with pytest.raises(NodeError, match="has Multi-Attach") as refused:
        await machine.stager.stage(reader(machine, file_system, is_shared=True))

    assert refused.value.reason is Reason.INVALID_REQUEST
    assert machine.mounts.at(str(machine.staging(OTHER))) is None
    assert checksum(disk) == before


@pytest.mark.parametrize("file_system", FILE_SYSTEMS)
async def test_while_files_are_copied_no_pod_of_the_node_can_write_whatever_it_asks_for(
    machine, file_system
):
    await used(machine, file_system)
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))
    request = machine.stage(file_system=file_system)
    told = {**request.publish_context, "ebs-provisioner.io/read-only": "true"}

    await machine.stager.stage(replace(request, publish_context=told))

    assert machine.mounts.at(str(machine.staging())).is_read_only_everywhere
    with pytest.raises(NodeError, match="is requested writable, but is mounted read-only"):
        await machine.publisher.publish(machine.publish())
    with pytest.raises(OSError, match="Read-only"):
        (machine.staging() / "file").write_text("written")
