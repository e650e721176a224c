"""The mount table of each mount namespace on the machine, as far as a process lives in it.

The standard library only: the agent's keeper uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def all_tables() -> Iterator[str]:
    """Yield ``/proc/<pid>/mountinfo`` of one process in each namespace."""
    seen: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            namespace = str((process / "ns" / "mnt").readlink())
            if namespace in seen:
                continue
            table = (process / "mountinfo").read_text()
            seen.add(namespace)
            yield table


def places(table: str, device: str) -> Iterator[str]:
    """Yield where a device, "major:minor", is mounted."""
    for line in table.splitlines():
        fields = line.split()
        if fields[2] == device:
            yield fields[4]
