import pytest

from provisioner.model.errors import Reason
from provisioner.node.devices.rules import (
    Candidate,
    Unfit,
    choose,
    is_nvme_disk_name,
    is_nvme_name,
    link_name,
    missing,
    names_of_attachment,
    partition_name,
    partition_number,
    volume_of_link,
    volume_of_serial,
)

VOLUME = "vol-0123456789abcdef0"
SERIAL = "vol0123456789abcdef0"
OTHER = "vol0fedcba9876543210"
LINK = f"nvme-Amazon_Elastic_Block_Store_{SERIAL}"


def nvme(serial=SERIAL, *, path="/dev/nvme1n1", via=LINK):
    return Candidate(path, via, is_nvme=True, serial=serial, is_named_by_attachment=via != LINK)


def xen(path="/dev/xvdba", *, via="xvdba"):
    return Candidate(path, via, is_nvme=False, serial=None, is_named_by_attachment=via != LINK)


def test_the_link_has_the_volume_id_without_its_dash():
    assert link_name(VOLUME) == LINK
    assert volume_of_link(LINK) == VOLUME


@pytest.mark.parametrize(
    "text", ["", "vol-", "vol-xyz", "../vol-0123456789abcdef0", "i-0123456789"]
)
def test_what_is_no_volume_id_has_no_link(text):
    with pytest.raises(ValueError, match="is not an EBS volume id"):
        link_name(text)


@pytest.mark.parametrize(
    "name",
    [
        f"{LINK}-part1",
        f"{LINK}_1",
        "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS0123456789ABCDEF0",
        f"nvme-nvme.1d0f-{SERIAL}",
        "",
    ],
)
def test_other_links_name_no_volume(name):
    assert volume_of_link(name) is None


@pytest.mark.parametrize(
    ("serial", "volume"),
    [(SERIAL, VOLUME), (VOLUME, VOLUME), ("AWS0123456789ABCDEF0", None), ("", None), (None, None)],
)
def test_a_serial_says_the_volume(serial, volume):
    assert volume_of_serial(serial) == volume


@pytest.mark.parametrize(
    ("name", "nvme_name", "whole_disk"),
    [
        ("nvme0n1", True, True),
        ("nvme10n2", True, True),
        ("nvme0n1p3", True, False),
        ("nvme0", False, False),
        ("xvdba", False, False),
        ("nvme0n1p", False, False),
        ("nvme-Amazon", False, False),
    ],
)
def test_names_of_nvme_disks(name, nvme_name, whole_disk):
    assert is_nvme_name(name) is nvme_name
    assert is_nvme_disk_name(name) is whole_disk


@pytest.mark.parametrize(
    ("device_path", "names"),
    [
        ("", ()),
        ("/dev/xvdba", ("xvdba",)),
        ("/dev/sdf", ("sdf", "xvdf")),
        ("/dev/sda2", ("sda2", "xvda2")),
        ("/dev/nvme1n1", ("nvme1n1",)),
    ],
)
def test_xen_kernels_say_xvd_for_sd(device_path, names):
    assert names_of_attachment(device_path) == names


@pytest.mark.parametrize(
    "device_path",
    ["xvdba", "/dev/", "/dev/../etc/passwd", "/dev/disk/by-id/x", "/tmp/xvdba", "/dev/xvd ba", "/"],  # noqa: S108
)
def test_only_names_right_under_dev_are_device_paths(device_path):
    with pytest.raises(ValueError, match="not a name directly in /dev"):
        names_of_attachment(device_path)


@pytest.mark.parametrize(("text", "number"), [("", ""), ("0", ""), ("1", "1"), ("128", "128")])
def test_partitions(text, number):
    assert partition_number(text) == number


@pytest.mark.parametrize("text", ["-1", "01", "p1", "1000", "1/..", "one", " 1"])
def test_what_is_no_partition(text):
    with pytest.raises(ValueError, match="not a number from 1 to 999"):
        partition_number(text)


def test_partitions_are_named_as_the_kernel_does():
    assert partition_name("nvme1n1", "2") == "nvme1n1p2"
    assert partition_name("xvdba", "2") == "xvdba2"


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        pytest.param([nvme()], nvme(), id="Nitro"),
        pytest.param([xen()], xen(), id="Xen"),
        pytest.param(
            [nvme(OTHER), nvme(path="/dev/nvme2n1", via="serial")],
            nvme(path="/dev/nvme2n1", via="serial"),
            id="the link is stale, the serial leads there",
        ),
        pytest.param(
            [xen(), nvme(via="serial")], nvme(via="serial"), id="a serial says more than a name"
        ),
        pytest.param([nvme(via="xvdba")], nvme(via="xvdba"), id="the name is a link to NVMe"),
    ],
)
def test_the_device_is_chosen(candidates, chosen):
    assert choose(VOLUME, candidates, has_nvme_volumes=False) == chosen


@pytest.mark.parametrize("name", ["xvda", "xvdba", "xvda1", "xvdba12"])
def test_xen_kernels_say_xvd(name):
    assert choose(VOLUME, [xen(f"/dev/{name}")], has_nvme_volumes=False) == xen(f"/dev/{name}")


@pytest.mark.parametrize("path", ["/dev/sdf", "/dev/dm-0", "/dev/xvd", "/dev/vdb", "/xvda/sdf"])
def test_a_disk_of_another_kind_is_none_whatever_it_is_called(path):
    unfit = choose(VOLUME, [xen(path, via="sdf")], has_nvme_volumes=False)

    assert isinstance(unfit, Unfit)
    assert unfit.reason is Reason.WRONG_DEVICE
    assert (
        f"{path} (found by sdf) is not volume {VOLUME}: it is neither an NVMe disk nor a Xen disk"
        in unfit.message
    )


def test_where_volumes_are_nvme_disks_no_name_counts():
    unfit = choose(VOLUME, [xen()], has_nvme_volumes=True)

    assert isinstance(unfit, Unfit)
    assert unfit.reason is Reason.WRONG_DEVICE
    assert "is not an NVMe disk, as the volumes of this node are" in unfit.message
    assert choose(VOLUME, [xen(), nvme(via="serial")], has_nvme_volumes=True) == nvme(via="serial")


@pytest.mark.parametrize(
    ("candidates", "reason", "said"),
    [
        pytest.param([], Reason.DEVICE_NOT_FOUND, "has no device", id="nothing there"),
        pytest.param([nvme(OTHER)], Reason.WRONG_DEVICE, f"serial '{OTHER}'", id="a stale link"),
        pytest.param(
            [nvme(None)], Reason.WRONG_DEVICE, "serial cannot be read", id="it says no serial"
        ),
        pytest.param(
            [nvme(OTHER, via="xvdba")],
            Reason.WRONG_DEVICE,
            f"/dev/nvme1n1 (found by xvdba) is not volume {VOLUME}: it has the serial '{OTHER}'",
            id="the attachment's name leads to another volume",
        ),
        pytest.param(
            [nvme("AWS1234")], Reason.WRONG_DEVICE, "'AWS1234'", id="a disk of the instance itself"
        ),
        pytest.param(
            [xen("/dev/sdc", via=LINK)],
            Reason.WRONG_DEVICE,
            "is not an NVMe disk",
            id="an odd link",
        ),
        pytest.param(
            [nvme(OTHER), xen()],
            Reason.WRONG_DEVICE,
            OTHER,
            id="a name alone does not outdo a link that is stale",
        ),
    ],
)
def test_no_device_is_chosen_in_doubt(candidates, reason, said):
    unfit = choose(VOLUME, candidates, has_nvme_volumes=False)

    assert isinstance(unfit, Unfit)
    assert unfit.reason is reason
    assert said in unfit.message
    assert VOLUME in unfit.message


@pytest.mark.parametrize(
    ("device_path", "said"), [("/dev/xvdba", ", no /dev/xvdba, and"), ("", f"{LINK} in /dev")]
)
def test_a_device_that_has_not_come_is_told_with_all_that_was_looked_for(device_path, said):
    assert said in missing(VOLUME, device_path, 20.0)
