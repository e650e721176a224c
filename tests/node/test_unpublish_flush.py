"""What a pod has written is on its volume once the volume was taken from the pod."""

import pytest

from tests.node.machine import Machine, run
from tests.node.test_publish import unpublish

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

WRITTEN = "".join(f"line {number}\n" for number in range(50_000))


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


async def test_nothing_is_brought_to_a_disk_that_is_mounted_read_only(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.publisher.publish(machine.publish())
    run("mount", "-o", "remount,ro", machine.staging())
    machine.fake("sync", f"touch {machine.folder}/synced")

    await machine.publisher.unpublish(unpublish(machine))

    assert not (machine.folder / "synced").exists()
