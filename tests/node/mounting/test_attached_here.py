"""Disks of Xen instances, known by their name only: used only where the name was given.

Each instance gives out the same names: the attachment of a machine that had this Node before may
name the disk of another volume on this one.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.model.meta import ObjectMeta
from provisioner.node.instance.documents import AttachmentStatus, AttachmentView
from provisioner.node.mounting.attached_here import AttachedHere
from provisioner.node.requests import Expand
from provisioner.node.runtime.blocking import BlockingCalls
from tests.node.machine import INSTANCE, MIB, OTHER, VOLUME, Disk, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

FORMER = "i-0fedcba9876543210"
OURS = "ebs-provisioner.io/instance-id"
STOCK = "csi.alpha.kubernetes.io/node-id"


def a_xen_disk(machine: Machine, volume_id: str = VOLUME) -> Disk:
    """Neither link nor serial; the name is the one in the requests."""
    disk = machine.attach(volume_id, name="xvdaa")
    machine.link(volume_id).unlink()
    (machine.dirs.sys / "dev/block" / disk.number / "device/serial").unlink()
    return disk


def attached(*, ours: str = "", stock: str = "", device: str = "/dev/xvdaa") -> AttachmentView:
    metadata = {"devicePath": device} | ({OURS: ours} if ours else {})
    return AttachmentView(
        metadata=ObjectMeta(annotations={STOCK: stock} if stock else None),
        status=AttachmentStatus(attached=True, attachment_metadata=metadata),
    )


async def stage(machine: Machine, context: Mapping[str, str], volume_id: str = VOLUME) -> None:
    asked = machine.stage(volume_id)
    await machine.stager.stage(replace(asked, publish_context={**asked.publish_context, **context}))


async def stage_raw(machine: Machine, context: Mapping[str, str]) -> None:
    asked = machine.stage(is_block=True)
    await machine.stager.stage(replace(asked, publish_context={**asked.publish_context, **context}))


async def publish(machine: Machine, context: Mapping[str, str], *, is_block: bool = False) -> None:
    asked = machine.publish(is_block=is_block)
    context = {**asked.publish_context, **context}
    await machine.publisher.publish(replace(asked, publish_context=context), time_left_s=0.2)


async def publish_raw(machine: Machine, context: Mapping[str, str]) -> None:
    await publish(machine, context, is_block=True)


async def expand(machine: Machine, path: Path) -> int:
    asked = Expand(
        volume_id=VOLUME,
        volume_path=str(path),
        staging_path="",
        required_bytes=512 * MIB,
        capability=None,
    )
    return await machine.expander.expand(asked)


def is_zero(disk: Disk) -> bool:
    return disk.image.stat().st_blocks == 0


@pytest.mark.parametrize("call", [stage, stage_raw, publish_raw])
async def test_a_name_of_the_machine_before_is_refused(machine, call):
    disk = a_xen_disk(machine, OTHER)  # new, and not staged yet

    with pytest.raises(NodeError) as refused:
        await call(machine, {OURS: FORMER})

    assert refused.value.reason is Reason.WRONG_DEVICE
    assert f"was attached to instance {FORMER}" in refused.value.message
    assert f"this node is {INSTANCE}:" in refused.value.message
    assert "delete that VolumeAttachment" in refused.value.message
    assert is_zero(disk)
    assert machine.mounts_below() == []


@pytest.mark.parametrize("call", [stage, stage_raw, publish_raw])
async def test_a_name_of_this_machine_is_used_and_nobody_is_asked(machine, call):
    a_xen_disk(machine)

    await call(machine, {OURS: INSTANCE})

    assert machine.cluster.asked == []


async def test_a_volume_by_name_is_staged_shown_and_grown(machine):
    a_xen_disk(machine)
    machine.cluster.attachments[VOLUME] = attached(ours=INSTANCE)

    await stage(machine, {OURS: INSTANCE})
    await publish(machine, {OURS: INSTANCE})

    assert await expand(machine, machine.target()) == 512 * MIB


@pytest.mark.parametrize("call", [stage, publish_raw])
@pytest.mark.parametrize(
    "recorded", [attached(stock=FORMER), attached(ours=FORMER, stock=INSTANCE)]
)
async def test_where_the_kubelet_hands_on_no_instance_the_attachment_tells(machine, call, recorded):
    a_xen_disk(machine, OTHER)
    machine.cluster.attachments[VOLUME] = recorded

    with pytest.raises(NodeError, match=FORMER):
        await call(machine, {})


@pytest.mark.parametrize("call", [stage, publish_raw])
async def test_what_the_stock_controller_has_attached_here_is_used(machine, call):
    a_xen_disk(machine)
    machine.cluster.attachments[VOLUME] = attached(stock=INSTANCE)

    with capture_logs() as logs:
        await call(machine, {})

    assert machine.cluster.asked == [VOLUME]
    assert "trusting a device by its name alone" not in {line["event"] for line in logs}


@pytest.mark.parametrize("recorded", [None, attached()])
async def test_where_nobody_has_recorded_an_instance_the_name_is_believed_and_told(
    machine, recorded
):
    a_xen_disk(machine)
    machine.cluster.attachments |= {VOLUME: recorded} if recorded else {}

    with capture_logs() as logs:
        await stage(machine, {})

    assert machine.staging().is_mount()
    assert "trusting a device by its name alone" in {line["event"] for line in logs}


async def test_an_attachment_that_cannot_be_read_is_no_permission(machine):
    disk = a_xen_disk(machine)
    machine.cluster.trouble = KubeError(Reason.UNREACHABLE, "it is away")

    with pytest.raises(KubeError):
        await stage(machine, {})

    assert is_zero(disk)
    assert machine.mounts_below() == []


@pytest.mark.parametrize("path", ["staging", "target"])
async def test_nothing_is_grown_by_a_name_of_the_machine_before(machine, path):
    a_xen_disk(machine)
    await stage(machine, {OURS: INSTANCE})
    await publish(machine, {OURS: INSTANCE})
    machine.cluster.attachments[VOLUME] = attached(ours=FORMER)

    with pytest.raises(NodeError, match=FORMER) as refused:
        await expand(machine, getattr(machine, path)())

    assert refused.value.reason is Reason.WRONG_DEVICE


async def test_no_raw_volume_is_grown_by_a_name_of_the_machine_before(machine):
    a_xen_disk(machine)
    await publish_raw(machine, {OURS: INSTANCE})
    machine.cluster.attachments[VOLUME] = attached(ours=FORMER)

    with pytest.raises(NodeError, match=FORMER):
        await expand(machine, machine.target())


async def test_what_is_staged_is_shown_to_no_further_pod_by_such_a_name(machine):
    """An older version has staged it."""
    a_xen_disk(machine)
    await stage(machine, {OURS: INSTANCE})

    with pytest.raises(NodeError, match=FORMER):
        await publish(machine, {OURS: FORMER})


def note(machine: Machine, volume_id: str, handle: str) -> None:
    """As kubelet does before it has a volume staged."""
    folder = machine.staging(volume_id).parent
    folder.mkdir(parents=True)
    (folder / "vol_data.json").write_text(json.dumps({"volumeHandle": handle}))


@pytest.mark.parametrize("call", [stage, publish_raw])
async def test_a_disk_by_name_that_kubelet_has_mounted_as_another_volume_is_refused(machine, call):
    """Detached by hand, and the name was given again: the instance is the right one."""
    a_xen_disk(machine, OTHER)
    note(machine, OTHER, OTHER)
    await stage(machine, {OURS: INSTANCE}, OTHER)
    (machine.staging(OTHER) / "secret").write_text("of another tenant")

    with pytest.raises(NodeError, match=f"as volume {OTHER}") as refused:
        await call(machine, {OURS: INSTANCE})

    assert refused.value.reason is Reason.WRONG_DEVICE
    assert not machine.staging().is_mount()


async def test_a_note_that_does_not_come_back_stops_nothing_else(machine):
    """The disk is mounted by hand, below an NFS that hangs."""
    disk = a_xen_disk(machine)
    run("mkfs.ext4", "-q", disk.node)
    by_hand = machine.folder / "nfs/by-hand"
    by_hand.mkdir(parents=True)
    run("mount", disk.node, by_hand)
    beside = by_hand.parent / "vol_data.json"
    os.mkfifo(beside)  # who reads it waits for somebody who writes
    blocking = BlockingCalls(timeout_s=1)
    here = AttachedHere(machine.cluster, machine.cluster, machine.mounts, blocking)
    device = await machine.devices.find(VOLUME, "/dev/xvdaa", "", wait_s=0)

    with pytest.raises(NodeError, match=f"beside {by_hand}") as refused:
        await here.check(device, {OURS: INSTANCE})

    assert refused.value.reason is Reason.TIMED_OUT
    beside.write_text("")
    beside.unlink()
    await here.check(device, {OURS: INSTANCE})


async def test_one_that_kubelet_has_mounted_as_this_volume_stays_so(machine):
    a_xen_disk(machine)
    note(machine, VOLUME, f"aws://us-east-1a/{VOLUME}")

    for _ in range(2):
        await stage(machine, {OURS: INSTANCE})

    assert len(machine.mounts_below()) == 1


async def test_an_nvme_disk_says_itself_whose_it_is(machine):
    machine.attach()

    await stage(machine, {OURS: FORMER})
    await publish(machine, {OURS: FORMER})
    assert await expand(machine, machine.target()) == 512 * MIB

    assert machine.cluster.asked == []
