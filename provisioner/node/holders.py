"""Who uses what is mounted, as far as ``/proc`` tells: for a message, so the look is short."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

_MOST_S = 1.0
_MOST_TOLD = 5


def of(proc: Path, path: str, number: str) -> tuple[str, ...]:
    """Processes that have files of a file system open, or stand in it, or have a device open.

    Sees only processes of our own PID namespace, and looks for a second at most. It blocks, and on
    a dead disk it may hang.

    Args:
        proc: where procfs is.
        path: what is mounted: a file system, or the node of a device.
        number: of the file system's device, "major:minor".

    Returns:
        A few, each as "process 123 (postgres) has /var/… open".
    """
    uses = _uses_of(path, number)
    until_s = time.monotonic() + _MOST_S
    found: list[str] = []
    for process in sorted(one for one in _entries(proc) if one.name.isdigit()):
        if time.monotonic() > until_s or len(found) == _MOST_TOLD:
            break
        use = next(uses(process), None)
        if use is not None:
            found.append(f"process {process.name} ({_name(process)}) {use}")
    return tuple(found)


def _uses_of(path: str, number: str) -> Callable[[Path], Iterator[str]]:
    """How a process uses what is mounted at a path."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- beside makedev
    except OSError:
        status = None
    if status is not None and stat.S_ISBLK(status.st_mode):
        # A device's node is itself on a file system, on which many have files open.
        return partial(_open_files, partial(_is_device, status.st_rdev))
    major, _, minor = number.partition(":")
    device = os.makedev(int(major), int(minor))
    return partial(_uses, lambda file: file.st_dev == device)


def _uses(is_it: Callable[[os.stat_result], bool], process: Path) -> Iterator[str]:
    links = {"cwd": "works in", "root": "has as its root", "exe": "runs"}
    for name, use in links.items():
        if _is(is_it, process / name):
            yield f"{use} {_target(process / name)}"
    yield from _open_files(is_it, process)


def _open_files(is_it: Callable[[os.stat_result], bool], process: Path) -> Iterator[str]:
    for link in _entries(process / "fd"):
        if _is(is_it, link):
            yield f"has {_target(link)} open"


def _is_device(number: int, file: os.stat_result) -> bool:
    return stat.S_ISBLK(file.st_mode) and file.st_rdev == number


def _is(is_it: Callable[[os.stat_result], bool], link: Path) -> bool:
    try:
        return is_it(link.stat())
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
