"""Who uses a file system, as far as ``/proc`` tells: for a message, so the look is short."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

_MOST_S = 1.0
_MOST_TOLD = 5


def of(proc: Path, number: str) -> tuple[str, ...]:
    """Processes that have files of a file system open, or stand in it.

    Sees only processes of our own PID namespace, and looks for a second at most. It blocks, and on
    a dead disk it may hang.

    Args:
        proc: where procfs is.
        number: of the file system's device, "major:minor".

    Returns:
        A few, each as "process 123 (postgres) has /var/… open".
    """
    major, _, minor = number.partition(":")
    device = os.makedev(int(major), int(minor))
    until_s = time.monotonic() + _MOST_S
    found: list[str] = []
    for process in sorted(one for one in _entries(proc) if one.name.isdigit()):
        if time.monotonic() > until_s or len(found) == _MOST_TOLD:
            break
        use = next(_uses(process, device), None)
        if use is not None:
            found.append(f"process {process.name} ({_name(process)}) {use}")
    return tuple(found)


def _uses(process: Path, device: int) -> Iterator[str]:
    links = {"cwd": "works in", "root": "has as its root", "exe": "runs"}
    for name, use in links.items():
        if _is_on(process / name, device):
            yield f"{use} {_target(process / name)}"
    for link in _entries(process / "fd"):
        if _is_on(link, device):
            yield f"has {_target(link)} open"


def _is_on(link: Path, device: int) -> bool:
    try:
        return link.stat().st_dev == device
    except OSError:  # it has ended, or is none of ours
        return False


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return "a file there"


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "ended by now"


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
