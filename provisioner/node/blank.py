"""Reads a volume for zeros where ``decide/blank.py`` says.

It reads the device, not the page cache, and looks between two reads whether anybody still wants to
know. It blocks.
"""

import threading
import time
from collections.abc import Iterator

import structlog

from provisioner.decide.blank import Data, Stretch, Zeros, stretches
from provisioner.node.claimed import CHUNK_BYTES, ClaimedDevice

log = structlog.get_logger(__name__)
_NOTHING = bytes(CHUNK_BYTES)
_SAMPLE_BYTES = 64


def read_content(
    device: ClaimedDevice, size_bytes: int, volume_id: str, unwanted: threading.Event
) -> Zeros | Data:
    """Whether a volume is all zeros where it is read, or the first byte that is not.

    Args:
        device: the volume's.
        size_bytes: of it.
        volume_id: the volume.
        unwanted: set when nobody waits any more: then it ends at the next chunk.

    Raises:
        OSError: it cannot be read, or is not wanted any more.
    """
    began_s = time.monotonic()
    places = stretches(size_bytes, volume_id)
    found = _read(device, places, unwanted)
    log.info(
        "read a volume for zeros",
        volume=volume_id,
        device=str(device.path),
        read_bytes=sum(place.length_bytes for place in places),
        first_data_at=found.offset_bytes if isinstance(found, Data) else None,
        seconds=round(time.monotonic() - began_s, 3),
    )
    return found


def _read(
    device: ClaimedDevice, places: tuple[Stretch, ...], unwanted: threading.Event
) -> Zeros | Data:
    read_bytes = 0
    for place in _chunks(places):
        if unwanted.is_set():
            raise InterruptedError
        data = device.read(place.offset_bytes, place.length_bytes)
        read_bytes += len(data)
        if data != _NOTHING[: len(data)]:
            return _first_of(data, place.offset_bytes)
    return Zeros(read_bytes)


def _chunks(places: tuple[Stretch, ...]) -> Iterator[Stretch]:
    for place in places:
        for offset in range(place.offset_bytes, place.end_bytes, CHUNK_BYTES):
            yield Stretch(offset, min(CHUNK_BYTES, place.end_bytes - offset))


def _first_of(data: bytes, offset_bytes: int) -> Data:
    blank = len(data) - len(data.lstrip(b"\0"))
    return Data(offset_bytes + blank, data[blank : blank + _SAMPLE_BYTES])
