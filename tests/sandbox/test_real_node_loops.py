"""Loop devices as the kernel leaves them to their next users."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from provisioner.sandbox.real_node import loops
from tests.sandbox.disk_room import MIB, needs_loops

pytestmark = needs_loops
_GET_FREE, _ADD, _REMOVE = 0x4C82, 0x4C80, 0x4C81
_BLKROSET, _BLKROGET = 0x125D, 0x125E
_OWN = 700_000  # others take the lowest that is free


@pytest.fixture
def own_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A device that nobody but the test is given."""
    number = _OWN + os.getpid() % 100_000
    node = Path(f"/dev/loop{number}")
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)

    def ioctl(descriptor: int, request: int, *arguments: object) -> object:
        if request == _GET_FREE:
            return number
        return fcntl.ioctl(descriptor, request, *arguments)  # type: ignore[call-overload]

    monkeypatch.setattr(loops, "fcntl", SimpleNamespace(ioctl=ioctl))
    fcntl.ioctl(control, _ADD, number)
    try:
        yield node
    finally:
        fcntl.ioctl(control, _REMOVE, number)
        os.close(control)
        with suppress(FileNotFoundError):  # a /dev that is no devtmpfs
            node.unlink()


def test_it_takes_writes_though_its_last_user_had_it_read_only(
    own_loop: Path, tmp_path: Path
) -> None:
    file = tmp_path / "disk"
    file.write_bytes(bytes(MIB))
    last = loops.make(file)
    with own_loop.open("rb") as opened:
        fcntl.ioctl(opened, _BLKROSET, struct.pack("i", 1))
    assert last.release(10)

    made = loops.make(file)

    try:
        with own_loop.open("r+b") as opened:
            assert not any(fcntl.ioctl(opened, _BLKROGET, bytes(4)))
    finally:
        assert made.release(10)
