"""Formatting by consent that ends early: what is left is data again, whatever was consented to."""

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.formatting import format as module
from provisioner.node.formatting.rules import mark_block, mark_offsets
from provisioner.node.runtime.programs import PATH, Programs
from tests.node.foreign_data import lvm
from tests.node.loop_disks import MIB, NEEDS_LOOP_DEVICES, SIZE_BYTES, VOLUME

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
DATA = b"a raw database" * 100


async def consented(workshop):
    """The user gives up what is on the volume."""
    refused = await workshop.refusal()
    workshop.consents.value = refused.message.rpartition("ebs-provisioner.io/format=")[2]


@pytest.fixture
def erasing_fails(monkeypatch):
    def fails(*_: object) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(module, "_erase_signatures", fails)


async def test_a_consent_taken_back_before_anything_was_erased_is_none(workshop, erasing_fails):
    workshop.disk.write(4 * MIB, DATA)
    await consented(workshop)
    with pytest.raises(NodeError, match="the disk fails"):
        await workshop.ensure()

    workshop.consents.value = None

    assert (await workshop.refusal()).reason is Reason.NOT_BLANK
    assert workshop.disk.read(4 * MIB, len(DATA)) == DATA


async def test_an_older_mark_does_not_outlive_a_consent(workshop, erasing_fails):
    """Else the signature would go, and what is behind it be formatted by the mark."""
    lvm(workshop.disk)
    for offset in mark_offsets(SIZE_BYTES):
        workshop.disk.write(offset, mark_block(VOLUME, 1))
    await consented(workshop)

    with pytest.raises(NodeError, match="the disk fails"):
        await workshop.ensure()

    assert not workshop.is_marked


async def test_a_mkfs_by_consent_that_is_killed_needs_a_consent_for_what_is_there_now(
    workshop, tmp_path
):
    behind = 100 * MIB  # it is not erased: only signatures are
    workshop.disk.write(4 * MIB, DATA)
    workshop.disk.write(behind, DATA * 1000)
    await consented(workshop)
    program = tmp_path / "mkfs.ext4"
    program.write_text(
        f'#!/bin/sh\ndd if=/dev/urandom of="{workshop.disk.node}" bs=4096 count=1 '
        "seek=64 conv=notrunc,fsync\nkill -9 $$\n"
    )
    program.chmod(0o755)
    workshop.programs = Programs(f"{tmp_path}:{PATH}")
    with pytest.raises(NodeError, match="ended by SIGKILL"):
        await workshop.ensure()
    workshop.programs = Programs()

    refused = await workshop.refusal()
    again = refused.message.rpartition("ebs-provisioner.io/format=")[2]
    was, workshop.consents.value = workshop.consents.value, again

    assert refused.reason is Reason.NOT_BLANK
    assert again != was
    assert (await workshop.ensure()).is_new
