"""The plugin's process is killed right before and right after each program that it runs.

What it began goes on without it. The next process does what the kubelet asks again: until it is
done, as the kubelet does.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import Unstage
from tests.node.machine import VOLUME, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")
WHEN = {
    "before": 'kill -9 $PPID; exec {real} "$@"',
    "after": '{real} "$@"; kill -9 $PPID',
}
# What another process, of a plugin that has died, may be doing to the device meanwhile.
PASSING = {Reason.DEVICE_BUSY, Reason.MOUNT_FAILED, Reason.TARGET_BUSY}
CALLS = {
    "stage": "stager.stage(machine.stage())",
    "publish": "publisher.publish(machine.publish(read_only=True))",
    "unstage": "stager.unstage(Unstage(VOLUME, str(machine.staging())))",
}


def killed_in(machine: Machine, call: str) -> None:
    """Let a process of its own do the call, which it does not survive."""
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from provisioner.node.requests import Unstage\n"
        "from tests.node.machine import VOLUME, Machine\n"
        "async def main():\n"
        "    machine = Machine(Path(sys.argv[1]))\n"
        f"    await machine.{CALLS[call]}\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, machine.folder],
        cwd=Path(__file__).parents[3],
        timeout=120,
        check=False,
        capture_output=True,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


async def asked_again(machine: Machine, call: str) -> None:
    asked = {
        "stage": lambda: machine.stager.stage(machine.stage()),
        "publish": lambda: machine.publisher.publish(machine.publish(read_only=True)),
        "unstage": lambda: machine.stager.unstage(Unstage(VOLUME, str(machine.staging()))),
    }[call]
    async with asyncio.timeout(60):
        while True:
            try:
                await asked()
            except NodeError as error:
                if error.reason not in PASSING:
                    raise
                await asyncio.sleep(0.05)  # as the kubelet: it is asked again
            else:
                return


async def its_programs_have_ended(machine: Machine) -> None:
    def work() -> bool:
        return any(str(machine.target()).encode() in line for line in command_lines())

    async with asyncio.timeout(60):
        while work():  # noqa: ASYNC110 -- the kernel tells nobody but their parent
            await asyncio.sleep(0.01)


def command_lines() -> Iterator[bytes]:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            yield each.read_bytes()


def kills(machine: Machine, program: str, when: str) -> None:
    machine.fake(program, WHEN[when].format(real=machine.real(program)))


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("program", ["blkid", "mkfs.ext4", "mount"])
async def test_killed_while_a_new_volume_is_staged(machine, program, when):
    machine.attach()
    kills(machine, program, when)
    killed_in(machine, "stage")
    (machine.bin / program).unlink()

    await asked_again(machine, "stage")

    assert len(machine.mounts_below()) == 1
    (machine.staging() / "file").write_text("written")
    await asked_again(machine, "unstage")
    await asked_again(machine, "stage")
    assert (machine.staging() / "file").read_text() == "written"


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("program", ["blkid", "e2fsck", "mount"])
async def test_killed_while_a_volume_with_data_is_staged(machine, program, when):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    (machine.staging() / "file").write_text("written")
    await machine.stager.unstage(Unstage(VOLUME, str(machine.staging())))
    made = run("blkid", "-p", "-s", "UUID", disk.node)
    kills(machine, program, when)
    killed_in(machine, "stage")
    (machine.bin / program).unlink()

    await asked_again(machine, "stage")

    assert (machine.staging() / "file").read_text() == "written"
    assert run("blkid", "-p", "-s", "UUID", disk.node) == made
    assert len(machine.mounts_below()) == 1


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("nth", ["--bind", "remount,bind"])
async def test_killed_while_a_volume_is_published(machine, nth, when):
    machine.attach()
    await machine.stager.stage(machine.stage())
    real = machine.real("mount")
    ends = WHEN[when].format(real=real)
    machine.fake("mount", f'case "$*" in *{nth}*) {ends};; *) exec {real} "$@";; esac')
    killed_in(machine, "publish")
    (machine.bin / "mount").unlink()
    # A kubelet asks half a second later at the earliest, and in a pod nothing outlives the plugin:
    # one bind of each at the same moment would be two on each other, which unpublish takes away.
    await its_programs_have_ended(machine)

    await asked_again(machine, "publish")

    (mount,) = (one for one in machine.mounts_below() if one.path == str(machine.target()))
    assert "ro" in mount.options


@pytest.mark.parametrize("when", WHEN)
async def test_killed_while_a_volume_is_unstaged(machine, when):
    machine.attach()
    await machine.stager.stage(machine.stage())
    kills(machine, "umount", when)
    killed_in(machine, "unstage")
    (machine.bin / "umount").unlink()

    await asked_again(machine, "unstage")

    assert machine.mounts_below() == []
    assert not machine.staging().exists()
