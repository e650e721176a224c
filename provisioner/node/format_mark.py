"""Writes, reads and clears the mark "a format of ours was begun here" on a claimed device.

All calls block, and what they write is on the device when they return.
"""

from provisioner.decide.format_mark import MARK_BYTES, is_mark_of, mark_block, mark_offset
from provisioner.model.errors import NodeError, Reason
from provisioner.node.claimed import ClaimedDevice
from provisioner.node.devices import Device

_BLANK = bytes(MARK_BYTES)


def is_marked(claimed: ClaimedDevice, device: Device) -> bool:
    """Whether our mark for this very volume is on it."""
    offset = mark_offset(device.size_bytes)
    return offset is not None and is_mark_of(claimed.read(offset, MARK_BYTES), device.volume_id)


def write(claimed: ClaimedDevice, device: Device, now_s: float) -> None:
    """Write the mark and read it back; a volume that is too small gets none.

    Raises:
        NodeError: FORMAT_FAILED, it is not there when read back.
    """
    offset = mark_offset(device.size_bytes)
    if offset is None:
        return
    claimed.write(offset, mark_block(device.volume_id, int(now_s)))
    _check(device, is_as_wanted=is_marked(claimed, device))


def clear(claimed: ClaimedDevice, device: Device) -> None:
    """Zero the mark, if what is there is a whole mark of this volume; anything else is kept.

    Raises:
        NodeError: FORMAT_FAILED, it still is there when read back.
    """
    offset = mark_offset(device.size_bytes)
    if offset is None or not is_marked(claimed, device):
        return
    claimed.write(offset, _BLANK)
    _check(device, is_as_wanted=not is_marked(claimed, device))


def _check(device: Device, *, is_as_wanted: bool) -> None:
    if not is_as_wanted:
        raise NodeError(
            Reason.FORMAT_FAILED,
            f"device {device.path} of volume {device.volume_id} does not give back what was "
            "written to it; nothing is formatted or mounted; see the kernel's log",
        )
