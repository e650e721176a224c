"""A resize2fs that is killed halfway, at its writes: the next stage ends its work, no byte is lost.

It is the real one, killed by strace. ``e2fsck -p`` alone refuses what it leaves.
"""

import shutil

import pytest

from provisioner.model.errors import NodeError
from provisioner.node.mounting.unmounted_growth import UnmountedGrowth
from provisioner.node.requests import Unstage
from tests.node.formatting.test_check_kills import killed_at
from tests.node.machine import VOLUME, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = [
    pytest.mark.usefixtures("no_leaked_tasks"),
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not on this machine"),
]
FILES = 40


@pytest.mark.parametrize("write", [1, 2, 3, 4, 20, 40, 60, 78, 79, 80, 81, 82, 83, 999])
async def test_a_growth_that_is_killed_is_done_at_the_next_stage(machine, write):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    for number in range(FILES):
        (machine.staging() / f"file-{number}").write_text(f"{number}\n" * number * 99)
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))
    disk.grow(1024)
    was_killed = killed_at(machine, "resize2fs", write)
    device = await machine.devices.find(VOLUME, "", "", wait_s=0)
    growth = UnmountedGrowth(
        machine.programs, machine.devices, machine.tools.checks, is_needed=True
    )

    await growth.grow(device, "ext4")
    assert was_killed.exists() == (write <= 83)
    run("e2fsck", "-fn", disk.node)
    (machine.bin / "resize2fs").unlink()
    await growth.grow(device, "ext4")
    await machine.stager.stage(machine.stage())

    for number in range(FILES):
        text = (machine.staging() / f"file-{number}").read_text()
        assert text == f"{number}\n" * number * 99
    found = await machine.tools.checks.superblock(device)
    assert found.blocks * found.block_bytes == 1024 << 20
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))
    run("e2fsck", "-fn", disk.node)


async def test_damage_of_another_kind_is_still_refused(machine):
    disk = machine.attach()
    run("mkfs.ext4", "-q", "-b", "4096", disk.node)
    for each in ("clri <2>", "ssv state 2"):
        run("debugfs", "-w", "-R", each, disk.node)
    device = await machine.devices.find(VOLUME, "", "", wait_s=0)
    assert (await machine.tools.checks.superblock(device)).is_half_grown

    with pytest.raises(NodeError, match="is damaged, and e2fsck -p cannot repair it"):
        await machine.tools.checks.check(device, "ext4")
