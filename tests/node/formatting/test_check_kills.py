"""An e2fsck that is killed halfway, as one is that outlasts its pod: the next one ends its work.

It is the real one, killed at its writes by strace.
"""

import shutil
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError
from provisioner.node.requests import Unstage
from tests.node.machine import OTHER, VOLUME, Disk, Machine, damage, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = [
    pytest.mark.usefixtures("no_leaked_tasks"),
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not on this machine"),
]
FILES = 400


def unstage(machine: Machine, volume_id: str) -> Unstage:
    return Unstage(volume_id, str(machine.staging(volume_id)))


async def used(machine: Machine) -> Disk:
    """A volume that was taken from its machine in use: its log is full of what is not in place."""
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    run("mount", "-o", "remount,commit=600", machine.staging())
    for number in range(FILES):
        (machine.staging() / f"file-{number}").write_text(f"{number}\n")
    run("sync", "-f", machine.staging())
    run("cp", "--sparse=always", disk.image, machine.folder / OTHER)
    await machine.stager.unstage(unstage(machine, VOLUME))
    return machine.attach(OTHER)


def killed_at(machine: Machine, program: str, write: int) -> Path:
    """Have the program killed at that write; the file is there once it was."""
    done = machine.folder / f"killed-{program}"
    machine.fake(
        program,
        f"strace -f -o /dev/null -e trace=pwrite64 -e inject=pwrite64:signal=KILL:when={write} "
        f'{machine.real(program)} "$@"; code=$?; [ $code -gt 128 ] && touch {done}; exit $code',
    )
    return done


@pytest.mark.parametrize("write", [1, 2, 3, 5, 8, 13, 21])
@pytest.mark.parametrize("state", ["in use", "damaged"])
async def test_a_check_that_is_killed_is_done_at_the_next_stage(machine, state, write):
    disk = await used(machine) if state == "in use" else machine.attach(OTHER)
    if state == "damaged":
        damage(disk.node, mended_by_itself=True)
    was_killed = killed_at(machine, "e2fsck", write)

    try:
        await machine.stager.stage(machine.stage(OTHER, origin="snap-1"))
    except NodeError:
        assert was_killed.exists()
        assert machine.mounts.at(str(machine.staging(OTHER))) is None
    else:  # it has no so many writes
        assert not was_killed.exists()
    (machine.bin / "e2fsck").unlink()
    await machine.stager.stage(machine.stage(OTHER, origin="snap-1"))

    if state == "in use":
        for number in range(FILES):
            assert (machine.staging(OTHER) / f"file-{number}").read_text() == f"{number}\n"
    await machine.stager.unstage(unstage(machine, OTHER))
    run("e2fsck", "-fn", disk.node)  # fails by its exit code if something is wrong


async def test_checks_are_killed_in_their_midst(machine):
    """Else the test above would hold nothing."""
    await used(machine)
    was_killed = killed_at(machine, "e2fsck", 13)

    with pytest.raises(NodeError):
        await machine.stager.stage(machine.stage(OTHER, origin="snap-1"))

    assert was_killed.exists()
