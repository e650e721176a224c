"""Two admin commands to NVMe disks: identify controller, and EBS's log page of statistics.

Both need CAP_SYS_ADMIN and may take as long as the kernel's admin timeout (60 s), so they are
called in threads. No other command is ever sent.

Source: linux/nvme_ioctl.h (``struct nvme_admin_cmd``, 72 bytes); NVMe 1.4 figures 139 (opcodes) and
247 (identify controller); the page's number and length as AWS's own ebsnvme tool asks for it. Not
tried on real EBS: tests hold the layout, and other devices the refusals.
"""

import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from provisioner.model.errors import NodeError, Reason

_ADMIN_COMMAND = 0xC0484E41  # _IOWR('N', 0x41, struct nvme_admin_cmd)
_PAGE_BYTES = 4096
_GET_LOG_PAGE = 0x02
_IDENTIFY = 0x06
_CONTROLLER = 1
_ALL_NAMESPACES = 0
_FIRST_NAMESPACE = 1
_STATISTICS = 0xD0 | 1024 << 16
_STATISTICS_MAGIC = 0x3C23B510
# opcode, flags, rsvd, nsid, cdw2, cdw3, metadata, addr, metadata_len, data_len, cdw10-15,
# timeout_ms, result
_COMMAND = struct.Struct("=BBHIIIQQII6III")
AMAZON = 0x1D0F


@dataclass(frozen=True, slots=True)
class Identity:
    """What a controller reports.

    Attributes:
        vendor: PCI vendor id.
        serial: the volume id without its dash, on EBS.
        model: "Amazon Elastic Block Store" on EBS.
        requested_name: the device name given to AttachVolume ("sdf", "/dev/xvdba").
    """

    vendor: int
    serial: str
    model: str
    requested_name: str


def identify(device: Path) -> Identity | None:
    """Identify the controller; None if it is no NVMe disk or this is not permitted.

    Raises:
        NodeError: DEVICE_NOT_FOUND, it cannot be opened.
    """
    page = _admin_page(device, _IDENTIFY, _ALL_NAMESPACES, _CONTROLLER)
    return read_identity(page) if page is not None else None


def statistics_page(device: Path) -> bytes | None:
    """The 4,096 bytes of EBS's statistics; None if the device has none.

    Raises:
        NodeError: DEVICE_NOT_FOUND, it cannot be opened.
    """
    page = _admin_page(device, _GET_LOG_PAGE, _FIRST_NAMESPACE, _STATISTICS)
    if page is None or int.from_bytes(page[:4], "little") != _STATISTICS_MAGIC:
        return None
    return page


def read_identity(page: bytes) -> Identity:
    """Read the 4,096 bytes of identify controller; texts are padded with spaces."""
    return Identity(
        vendor=int.from_bytes(page[:2], "little"),
        serial=_text(page[4:24]),
        model=_text(page[24:64]),
        requested_name=_text(page[3072:3104]),
    )


def command(opcode: int, namespace: int, word_10: int, address: int) -> bytes:
    """The kernel's record of an admin command that reads one page to ``address``."""
    return _COMMAND.pack(
        *(opcode, 0, 0, namespace, 0, 0, 0, address, 0, _PAGE_BYTES),
        *(word_10, 0, 0, 0, 0, 0),
        *(0, 0),
    )


def _admin_page(device: Path, opcode: int, namespace: int, word_10: int) -> bytes | None:
    page = ctypes.create_string_buffer(_PAGE_BYTES)
    asking = bytearray(command(opcode, namespace, word_10, ctypes.addressof(page)))
    try:
        fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise NodeError(
            Reason.DEVICE_NOT_FOUND, f"device {device} cannot be opened: {error.strerror}"
        ) from error
    try:
        status = fcntl.ioctl(fd, _ADMIN_COMMAND, asking)
    except OSError:  # ENOTTY, EINVAL: no NVMe disk; EPERM, EACCES: not permitted
        return None
    finally:
        os.close(fd)
    return page.raw if status == 0 else None


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("ascii", "replace").strip()
