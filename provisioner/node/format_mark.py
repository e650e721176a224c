"""Writes, reads and clears the mark "a format of ours was begun here" on a device.

All calls block, and what they write is on the device when they return.
"""

from collections.abc import Callable

from provisioner.decide.format_mark import MARK_BYTES, is_mark_of, mark_block, mark_offsets
from provisioner.model.errors import NodeError, Reason
from provisioner.node.claimed import ClaimedDevice
from provisioner.node.devices import Device

Read = Callable[[int, int], bytes]
_BLANK = bytes(MARK_BYTES)


def is_marked(read: Read, device: Device) -> bool:
    """Whether our mark for this very volume is on it.

    Args:
        read: reads from the device; takes an offset and a length, in bytes.
        device: the volume's device.
    """
    return bool(_places(read, device))


def write(claimed: ClaimedDevice, device: Device, now_s: float) -> None:
    """Write the mark and read it back; a volume that is too small gets none.

    Raises:
        NodeError: FORMAT_FAILED, it is not there when read back.
    """
    offsets = mark_offsets(device.size_bytes)
    for offset in offsets:
        claimed.write(offset, mark_block(device.volume_id, int(now_s)))
    _check(device, is_as_wanted=_places(claimed.read, device) == offsets)


def clear(claimed: ClaimedDevice, device: Device) -> None:
    """Zero the mark, where there is a whole mark of this volume; anything else is kept.

    Raises:
        NodeError: FORMAT_FAILED, it still is there when read back.
    """
    places = _places(claimed.read, device)
    for offset in places:
        claimed.write(offset, _BLANK)
    if places:
        _check(device, is_as_wanted=not is_marked(claimed.read, device))


def _places(read: Read, device: Device) -> tuple[int, ...]:
    return tuple(
        offset
        for offset in mark_offsets(device.size_bytes)
        if is_mark_of(read(offset, MARK_BYTES), device.volume_id)
    )


def _check(device: Device, *, is_as_wanted: bool) -> None:
    if not is_as_wanted:
        raise NodeError(
            Reason.FORMAT_FAILED,
            f"device {device.path} of volume {device.volume_id} does not give back what was "
            "written to it; nothing is formatted or mounted; see the kernel's log",
        )
