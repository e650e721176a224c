"""The bytes of disks: a copy is of one moment, as a snapshot of EC2 is."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provisioner.sandbox.real_node.disk_files import DiskFiles, copy_moment

MIB = 2**20
SIZE = 48 * MIB
BYTES = 8


@contextmanager
def written(file: Path, pause_s: float) -> Iterator[None]:
    """Count at the file's beginning, then at its end, again and again."""
    over = threading.Event()
    chance = random.Random(7)

    def work() -> None:
        descriptor = os.open(file, os.O_RDWR)
        count = 0
        while not over.is_set():
            count += 1
            for offset in (0, SIZE - BYTES):
                os.pwrite(descriptor, count.to_bytes(BYTES, "big"), offset)
                time.sleep(pause_s and chance.uniform(0, pause_s / 10))
            over.wait(pause_s and chance.uniform(pause_s / 2, pause_s))
        os.close(descriptor)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def disk(folder: Path) -> Path:
    file = folder / "vol-1"
    file.write_bytes(b"\1" * SIZE)
    for offset in (0, SIZE - BYTES):
        with file.open("r+b") as opened:
            opened.seek(offset)
            opened.write(bytes(BYTES))
    return file


def counts(file: Path) -> tuple[int, int]:
    content = file.read_bytes()
    return int.from_bytes(content[:BYTES], "big"), int.from_bytes(content[-BYTES:], "big")


def test_a_copy_of_what_is_written_to_meanwhile_is_of_one_moment(tmp_path: Path) -> None:
    disk(tmp_path)
    with written(tmp_path / "vol-1", 0.2):
        for turn in range(12):
            DiskFiles(tmp_path).copy("vol-1", f"snap-{turn}")

    for turn in range(12):
        first, last = counts(tmp_path / f"snap-{turn}")
        assert first - last in {0, 1}


def test_a_copy_that_may_be_torn_says_so(tmp_path: Path) -> None:
    source, target = disk(tmp_path), tmp_path / "snap-1"
    with written(source, 0):
        time.sleep(0.05)  # it has begun

        assert not copy_moment(source, target, patience_s=0.2)

    assert copy_moment(source, target)
    assert counts(target) == counts(source)
