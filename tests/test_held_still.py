"""Holding a process still: it has stopped before anything else is done."""

import subprocess
import sys
import time
from pathlib import Path

from tests.held_still import held_still

WRITES = (
    "import pathlib, sys, threading\n"
    "def write(name):\n"
    "    number = 0\n"
    "    while True:\n"
    "        number += 1\n"
    "        pathlib.Path(sys.argv[1], name).write_text(str(number))\n"
    "for name in 'abcd':\n"
    "    threading.Thread(target=write, args=(name,)).start()\n"
)


def test_a_process_that_is_held_still_writes_nothing_and_goes_on_afterwards(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", WRITES, str(tmp_path)]) as writer:
        try:
            _until_others_than({}, tmp_path)
            with held_still(writer.pid):
                seen = _written(tmp_path)
                time.sleep(0.05)
                assert _written(tmp_path) == seen
            _until_others_than(seen, tmp_path)
        finally:
            writer.kill()


def _written(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in folder.iterdir()}


def _until_others_than(seen: dict[str, str], folder: Path) -> None:
    until_s = time.monotonic() + 30
    while _written(folder) == seen:
        assert time.monotonic() < until_s
        time.sleep(0.001)
