"""A disk with data on it is never formatted: not one byte of it changes, whatever the data are."""

import pytest

from provisioner.model.errors import Reason
from tests.node.foreign_data import KINDS, noise
from tests.node.loop_disks import NEEDS_LOOP_DEVICES, VOLUME

pytest_plugins = ("tests.node.loop_fixtures",)
pytestmark = [NEEDS_LOOP_DEVICES, pytest.mark.usefixtures("no_leaked_tasks")]
COMMAND = f"persistentvolume pv-1 --overwrite ebs-provisioner.io/format=yes-erase-{VOLUME}-"


@pytest.fixture(params=KINDS)
def kind(request, workshop):
    write, said = KINDS[request.param]
    write(workshop.disk)
    return said


@pytest.mark.parametrize("origin", ["blank", "snap-0123456789abcdef0", ""])
async def test_what_has_data_is_refused_and_stays_as_it_is(workshop, kind, origin):
    refused = await workshop.refusal(origin=origin)

    assert refused.reason is Reason.NOT_BLANK
    assert kind in refused.message
    assert COMMAND in refused.message
    assert workshop.disk.node.name in refused.message


async def test_it_is_refused_for_xfs_too(workshop, kind):
    assert (await workshop.refusal("xfs")).reason is Reason.NOT_BLANK


async def test_a_consent_for_something_else_changes_nothing(workshop, kind):
    workshop.consents.value = f"yes-erase-{VOLUME}"

    assert "which does not match" in (await workshop.refusal()).message


async def test_what_the_user_gives_up_is_formatted_and_nothing_of_it_is_found_again(workshop, kind):
    refused = await workshop.refusal()
    workshop.consents.value = refused.message.rpartition("ebs-provisioner.io/format=")[2]

    made = await workshop.ensure()
    asked = workshop.consents.asked
    again = await workshop.ensure()

    assert (made.is_new, again.is_new) == (True, False)
    assert workshop.consents.asked == asked  # it is asked about refusals only


async def test_a_snapshot_that_reads_as_zeros_is_not_formatted(workshop):
    refused = await workshop.refusal(origin="snap-0123456789abcdef0")

    assert refused.reason is Reason.NOT_BLANK
    assert "it was created from snap-0123456789abcdef0" in refused.message


@pytest.mark.parametrize(("has", "wanted"), [("xfs", "ext4"), ("ext4", "xfs"), ("ext4", "ext3")])
async def test_another_file_system_stays(workshop, has, wanted):
    await workshop.ensure(has)

    refused = await workshop.refusal(wanted)

    assert refused.reason is Reason.FILE_SYSTEM_MISMATCH
    assert f"it already has {has}" in refused.message


async def test_a_file_system_that_is_none_of_ours_stays_and_no_fs_type_is_advised(workshop):
    workshop.disk.write(64 * 1024, noise(64) + b"_BHRfS_M" + noise(4000))  # the magic of btrfs

    refused = await workshop.refusal()

    assert refused.reason is Reason.FILE_SYSTEM_MISMATCH
    assert "it already has btrfs; check what it is" in refused.message


async def test_a_forgotten_consent_is_none_for_what_came_later(workshop):
    workshop.disk.write(0, b"to be given up")
    refused = await workshop.refusal()
    workshop.consents.value = refused.message.rpartition("ebs-provisioner.io/format=")[2]
    await workshop.ensure()

    workshop.disk.write(0, bytes(4096))  # a year later the superblock is damaged

    assert (await workshop.refusal()).reason is Reason.NOT_BLANK


async def test_a_blank_volume_asked_for_read_only_stays_blank(workshop):
    refused = await workshop.refusal(read_only=True)

    assert refused.reason is Reason.FILE_SYSTEM_MISMATCH
    assert "read-only volumes are never formatted" in refused.message


@pytest.mark.parametrize("is_formatted", [False, True])
async def test_a_read_only_device_stays_as_it_is(workshop, is_formatted):
    if is_formatted:
        await workshop.ensure()
    workshop.disk.set_read_only()

    assert (await workshop.refusal()).reason is Reason.DEVICE_READ_ONLY


async def test_a_read_only_device_is_fit_for_reading(workshop):
    await workshop.ensure()
    workshop.disk.set_read_only()

    assert (await workshop.ensure(read_only=True)).file_system == "ext4"
