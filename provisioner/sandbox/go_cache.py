"""What the Go compiler has downloaded and compiled, kept from one build to the next, in bounds.

A kubelet that is wanted later then compiles only what is its own. What takes seconds to make again
is not kept: sources that were unpacked from what was downloaded, and modules of ours.

Go takes the folder of a module for whole if it is there. So nothing is removed in place: it is
first renamed into the folder ``old``, whose rest the next build removes if this one is killed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

KEPT_GB = 4.0
"""Room for all that tests need."""

_KEPT = {"build", "modules", "path"}
"""What is compiled, what was downloaded, and what the checksum database said (``compiler``)."""


def begin(work: Path) -> None:
    """Remove what an interrupted build left and the next one makes itself, like a cut go.mod."""
    _remove(work, [each for each in _entries(work) if each.name not in _KEPT])


def keep(work: Path, limit_gb: float = KEPT_GB) -> None:
    """Remove from ``work`` what is made again in seconds, and what is older than ``limit_gb``."""
    begin(work)
    # The archives are in "cache", and go's notes about them.
    _remove(work, [each for each in _entries(work / "modules") if each.name != "cache"])
    _bound(work, int(limit_gb * 1e9))


def _bound(work: Path, limit: int) -> None:
    # Go takes what is not there for never compiled, whichever file it is, and renews the time of
    # what it uses (at most once an hour). It does not renew that of a download, and without that
    # the next build would need a network.
    compiled = work / "build"
    files = sorted(((each.stat().st_mtime, each) for each in _files(compiled)), reverse=True)
    total = size(work) - size(compiled)
    for _, path in files:
        total += path.stat().st_size
        if total > limit:
            path.unlink()


def size(work: Path) -> int:
    """Return how many bytes the files in ``work`` have; 0 if there is none."""
    return sum(each.stat().st_size for each in _files(work))


def remove(work: Path) -> int:
    """Remove all of it; how many bytes it had.

    Raises:
        OSError: something of it cannot be removed.
    """
    had = size(work)
    _remove(work, _entries(work))
    if work.is_dir():
        work.rmdir()
    return had


def _files(work: Path) -> Iterator[Path]:
    for each in work.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if each.is_file() and not each.is_symlink():
                yield each


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _remove(work: Path, entries: list[Path]) -> None:
    """Remove ``entries`` of ``work``, each of them whole or not at all."""
    old = work / "old"
    if old.exists():
        shutil.rmtree(old)
    if not entries:
        return
    old.mkdir()
    for number, entry in enumerate(each for each in entries if each != old):
        entry.rename(old / str(number))
    shutil.rmtree(old)
