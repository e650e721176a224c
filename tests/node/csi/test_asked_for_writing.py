"""A volume that is mounted read-only and asked for to be written: no pod is fobbed off with EROFS."""

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.csi.server import code_of
from provisioner.node.requests import AccessMode, Unpublish
from tests.node.csi.test_codes import MAY_BE_MOUNTED
from tests.node.machine import VOLUME, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")
READS = AccessMode.MULTI_NODE_READER_ONLY


@pytest.fixture
async def read(machine: Machine) -> Machine:
    """A machine with one volume staged read-only and shown to a pod that reads."""
    disk = machine.attach()
    run("mkfs.ext4", "-q", disk.node)
    await machine.stager.stage(machine.stage(origin="snap-1", mode=READS))
    await machine.publisher.publish(machine.publish(pod="reader", mode=READS))
    return machine


async def test_a_stage_names_those_who_read(read):
    with pytest.raises(NodeError) as refused:
        await read.stager.stage(read.stage())

    assert refused.value.reason is Reason.TARGET_BUSY
    assert code_of(refused.value, "NodeStageVolume") in MAY_BE_MOUNTED
    assert f"delete the pods of {read.target('reader')}, then" in refused.value.message
    assert len(read.mounts_below()) == 2


async def test_it_is_mounted_for_writing_once_they_are_gone(read):
    await read.publisher.unpublish(Unpublish(VOLUME, str(read.target("reader"))))

    await read.stager.stage(read.stage())
    await read.publisher.publish(read.publish())

    (read.target() / "file").write_text("written")


async def test_a_publish_without_another_stage_names_them(read):
    """The kubelet stages once for all PersistentVolumes of one handle."""
    with pytest.raises(NodeError, match=f"delete the pods of {read.target('reader')}, then") as no:
        await read.publisher.publish(read.publish(pod="writer"))

    assert no.value.reason is Reason.TARGET_BUSY
    assert not read.target("writer").exists()
    await read.publisher.publish(read.publish(pod="another", mode=READS))


async def test_a_publish_of_what_nobody_uses_tells_what_helps(read):
    await read.publisher.unpublish(Unpublish(VOLUME, str(read.target("reader"))))

    with pytest.raises(NodeError, match="delete the volume's pods on this node, then"):
        await read.publisher.publish(read.publish(pod="writer"))


async def test_what_became_read_only_under_a_pod_stays_shown_to_it(machine):
    machine.attach()
    await machine.stager.stage(machine.stage())
    await machine.publisher.publish(machine.publish())
    run("mount", "-o", "remount,ro", machine.staging())
    run("mount", "-o", "remount,bind,rw", machine.staging())
    machine.restart()

    await machine.publisher.publish(machine.publish())

    with pytest.raises(NodeError, match="or the kernel made it read-only after a disk error"):
        await machine.publisher.publish(machine.publish(pod="pod-2"))
    assert not machine.target("pod-2").exists()
