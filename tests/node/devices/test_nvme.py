import ctypes
import struct

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices import nvme
from tests.node.loop_disks import NEEDS_LOOP_DEVICES

pytest_plugins = ("tests.node.loop_fixtures",)


def a_page(*, vendor=0x1D0F, serial=b"vol0123456789abcdef0", name=b"/dev/xvdba"):
    page = bytearray(4096)
    page[:2] = struct.pack("<H", vendor)
    page[4:24] = serial.ljust(20)
    page[24:64] = b"Amazon Elastic Block Store".ljust(40)
    page[3072:3104] = name.ljust(32)
    return bytes(page)


def test_a_controller_says_who_it_is():
    assert nvme.read_identity(a_page()) == nvme.Identity(
        vendor=nvme.AMAZON,
        serial="vol0123456789abcdef0",
        model="Amazon Elastic Block Store",
        requested_name="/dev/xvdba",
    )


@pytest.mark.parametrize(
    ("field", "text"), [(b"sdf\0junk", "sdf"), (b"\0" * 32, ""), (b"\xffsdf", "\ufffdsdf")]
)
def test_texts_end_at_a_zero_and_need_not_be_ascii(field, text):
    assert nvme.read_identity(a_page(name=field)).requested_name == text


class PassthruCommand(ctypes.Structure):
    """``struct nvme_passthru_cmd`` of linux/nvme_ioctl.h, laid out by the C compiler's rules."""

    _fields_ = (
        ("opcode", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("rsvd1", ctypes.c_uint16),
        ("nsid", ctypes.c_uint32),
        ("cdw2", ctypes.c_uint32),
        ("cdw3", ctypes.c_uint32),
        ("metadata", ctypes.c_uint64),
        ("addr", ctypes.c_uint64),
        ("metadata_len", ctypes.c_uint32),
        ("data_len", ctypes.c_uint32),
        ("cdw10_15", ctypes.c_uint32 * 6),
        ("timeout_ms", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
    )


def test_a_command_is_as_the_kernel_wants_it():
    wanted = PassthruCommand(opcode=0x02, nsid=1, addr=0x7F00_1234_5678, data_len=4096)
    wanted.cdw10_15[0] = 0xD0 | 1024 << 16

    command = nvme.command(0x02, 1, 0xD0 | 1024 << 16, 0x7F00_1234_5678)

    assert command == bytes(wanted)
    assert len(command) == 0x48  # the size that is part of the ioctl's number, 0xC048_4E41


@NEEDS_LOOP_DEVICES
def test_a_disk_that_is_no_nvme_disk_has_nothing_to_say(host):
    disk = host.a_disk("nvme1n1")

    assert nvme.identify(disk.node) is None
    assert nvme.statistics_page(disk.node) is None


@pytest.mark.parametrize("ask", [nvme.identify, nvme.statistics_page])
def test_a_device_that_is_not_there_is_told(ask, tmp_path):
    with pytest.raises(NodeError, match="cannot be opened: No such file") as missing:
        ask(tmp_path / "nvme1n1")

    assert missing.value.reason is Reason.DEVICE_NOT_FOUND
