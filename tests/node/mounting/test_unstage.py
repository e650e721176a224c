"""Unstaging: once, twice, in use, and without the device; real loop devices."""

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.requests import Unstage
from tests.node.machine import VOLUME, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


def unstage(machine: Machine, volume_id: str = VOLUME) -> Unstage:
    return Unstage(volume_id, str(machine.staging(volume_id)))


async def test_unstaging_twice_is_as_once(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())

    await machine.stager.unstage(unstage(machine))
    await machine.stager.unstage(unstage(machine))

    assert machine.mounts_below() == []
    assert not machine.staging().exists()


async def test_unstaging_takes_all_that_lies_on_the_path(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    run("mount", "--bind", machine.staging(), machine.staging())

    await machine.stager.unstage(unstage(machine))

    assert machine.mounts_below() == []


async def test_unstaging_leaves_a_directory_with_something_in_it(machine):
    machine.staging().mkdir(parents=True)
    (machine.staging() / "file").write_text("on the root disk")

    await machine.stager.unstage(unstage(machine))

    assert (machine.staging() / "file").read_text() == "on the root disk"


async def test_unstaging_works_without_the_device(machine):
    disk = machine.attach()
    await machine.stager.stage(machine.stage())
    machine.detach(disk)

    await machine.stager.unstage(unstage(machine))

    assert machine.mounts_below() == []


async def test_unstaging_a_path_in_use_tells_how_to_see_by_whom(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    with (machine.staging() / "file").open("w"), pytest.raises(NodeError) as busy:
        await machine.stager.unstage(unstage(machine))

    assert busy.value.reason is Reason.TARGET_BUSY
    assert f"fuser -vm {machine.staging()}" in busy.value.message
    await machine.stager.unstage(unstage(machine))
