"""What a pod has written is on its volume once the volume was taken from the pod."""

import asyncio
import os
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.mounting.flush import Flushes
from provisioner.node.requests import Unstage
from tests.node.machine import VOLUME, Machine, run
from tests.node.mounting.test_publish import unpublish

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

WRITTEN = "".join(f"line {number}\n" for number in range(50_000))


def staged(machine: Machine) -> Unstage:
    return Unstage(VOLUME, str(machine.staging()))


async def published(machine: Machine, file_system: str) -> None:
    machine.attach()
    await machine.stager.stage(machine.stage(file_system=file_system))
    await machine.publisher.publish(machine.publish())


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_a_volume_that_is_detached_before_it_is_unstaged_has_what_its_pod_wrote(
    machine, tmp_path, file_system
):
    """As when a kubelet is killed between the two, and forgets the volume."""
    await published(machine, file_system)
    (machine.target() / "file").write_text(WRITTEN)

    await machine.publisher.unpublish(unpublish(machine))

    [image] = machine.folder.glob("vol-*")
    detached, seen = tmp_path / "detached", tmp_path / "seen"
    run("cp", "--sparse=always", image, detached)
    seen.mkdir()
    options = "loop,nouuid" if file_system == "xfs" else "loop"
    run("mount", "-o", options, detached, seen)
    try:
        assert (seen / "file").read_text() == WRITTEN
    finally:
        run("umount", seen)


async def test_a_volume_that_cannot_be_written_any_more_is_taken_away_all_the_same(machine):
    await published(machine, "ext4")
    machine.fake("sync", "echo 'sync: error syncing: Input/output error' >&2; exit 1")

    await machine.publisher.unpublish(unpublish(machine))

    assert not machine.target().exists()


async def test_of_pods_that_share_a_volume_the_last_one_waits_for_its_disk(machine):
    await published(machine, "ext4")
    await machine.publisher.publish(machine.publish(pod="pod-2"))
    machine.fake("sync", f"echo run >> {machine.folder}/runs")

    await machine.publisher.unpublish(unpublish(machine))
    assert not (machine.folder / "runs").exists()
    await machine.publisher.unpublish(unpublish(machine, "pod-2"))

    assert (machine.folder / "runs").read_text() == "run\n"


async def test_nothing_is_brought_to_a_disk_that_is_mounted_read_only(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.publisher.publish(machine.publish())
    run("mount", "-o", "remount,ro", machine.staging())
    machine.fake("sync", f"touch {machine.folder}/synced")

    await machine.publisher.unpublish(unpublish(machine))

    assert not (machine.folder / "synced").exists()


def hanging(machine: Machine) -> Path:
    """Have sync hang, as it does on a disk that does; ends the first one when written to."""
    for number in (1, 2):
        os.mkfifo(machine.folder / f"gate-{number}")
    runs, gate = machine.folder / "runs", f"{machine.folder}/gate-$(wc -l < {machine.folder}/runs)"
    machine.fake("sync", f'exec 3< "$2"; echo run >> {runs}; cat {gate}')
    return machine.folder / "gate-1"


async def test_a_disk_that_hangs_does_not_keep_the_pod(machine):
    await published(machine, "ext4")
    await machine.publisher.publish(machine.publish(pod="pod-2"))
    gate = hanging(machine)
    machine.restart(flush_s=0.1)

    for pod in ("pod-1", "pod-2"):
        await machine.publisher.unpublish(unpublish(machine, pod))

        assert not machine.target(pod).exists()
    assert len(machine.operations) == 0
    [running] = machine.programs.running()
    assert str(machine.staging()) in running.why
    await asyncio.to_thread(gate.write_text, "")
    await machine.programs.idle()
    assert (machine.folder / "runs").read_text() == "run\n"
    machine.fake("sync", "exit 0")
    await machine.stager.unstage(staged(machine))


async def test_a_disk_that_is_slow_is_waited_for_before_it_is_unstaged(machine):
    """Kubelet waits up to two minutes after each "busy", where the unmount would have waited."""
    await published(machine, "ext4")
    gate = hanging(machine)
    unpublishing = asyncio.create_task(machine.publisher.unpublish(unpublish(machine)))
    async with asyncio.timeout(10):
        while not (machine.folder / "runs").exists():  # noqa: ASYNC110 -- a program makes it
            await asyncio.sleep(0.01)
    unpublishing.cancel()  # the program goes on, as after its 10 s
    with pytest.raises(asyncio.CancelledError):
        await unpublishing
    run("umount", machine.target())

    unstaging = asyncio.create_task(machine.stager.unstage(staged(machine)))
    done, _ = await asyncio.wait({unstaging}, timeout=0.3)
    assert not done
    machine.fake("sync", "exit 0")
    await asyncio.to_thread(gate.write_text, "")
    await unstaging

    assert not machine.staging().exists()


async def test_a_disk_that_hangs_is_told_when_it_is_unstaged(machine):
    await published(machine, "ext4")
    gate = hanging(machine)
    machine.restart(flush_s=0.1)
    await machine.publisher.unpublish(unpublish(machine))

    for _ in range(2):
        with pytest.raises(NodeError, match="took longer than 0 s") as hung:
            await machine.stager.unstage(staged(machine))

        assert hung.value.reason is Reason.TIMED_OUT
    assert [mount.path for mount in machine.mounts_below()] == [str(machine.staging())]
    assert (machine.folder / "runs").read_text() == "run\n"
    await asyncio.to_thread(gate.write_text, "")
    await machine.programs.idle()
    machine.fake("sync", "exit 0")
    await machine.stager.unstage(staged(machine))
    assert machine.mounts_below() == []


async def test_a_disk_that_came_back_is_waited_for_again(machine):
    await published(machine, "ext4")
    gate = hanging(machine)
    machine.restart(flush_s=0.1)
    await machine.publisher.unpublish(unpublish(machine))
    await asyncio.to_thread(gate.write_text, "")
    await machine.programs.idle()
    await machine.publisher.publish(machine.publish(pod="pod-2"))
    machine.fake("sync", f"touch {machine.folder}/synced")

    await machine.publisher.unpublish(unpublish(machine, "pod-2"))

    assert (machine.folder / "synced").exists()


async def test_a_flush_waits_for_the_one_that_runs_and_then_for_its_own(machine):
    """What was written after that one began need not be in it."""
    await published(machine, "ext4")
    hanging(machine)
    flushes = Flushes(machine.programs, machine.mounts)
    both = [asyncio.create_task(flushes.flush(str(machine.target()))) for _ in range(2)]

    for number in (1, 2):
        assert not both[1].done()
        await asyncio.to_thread((machine.folder / f"gate-{number}").write_text, "")
    await asyncio.gather(*both)

    assert (machine.folder / "runs").read_text() == "run\nrun\n"
