"""What the Go compiler has downloaded and compiled, kept from one build to the next, in bounds.

A kubelet that is wanted later then compiles only what is its own. What takes seconds to make again
is not kept: sources that were unpacked from what was downloaded, and modules of ours.
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


def keep(work: Path, limit_gb: float = KEPT_GB) -> None:
    """Remove from ``work`` what is made again in seconds, and what is older than ``limit_gb``."""
    for entry in _entries(work):
        if entry.name not in _KEPT:
            _remove(entry)
    for entry in _entries(work / "modules"):
        if entry.name != "cache":  # the archives are there, and go's notes about them
            _remove(entry)
    _bound(work, int(limit_gb * 1e9))


def _bound(work: Path, limit: int) -> None:
    # Go takes what is not there for never made, whichever file it is, and renews the time of what
    # it uses (at most once an hour).
    files = sorted(((each.stat().st_mtime, each) for each in _files(work)), reverse=True)
    total = 0
    for _, path in files:
        total += path.stat().st_size
        if total > limit:
            path.unlink()


def size(work: Path) -> int:
    """Return how many bytes the files in ``work`` have; 0 if there is none."""
    return sum(each.stat().st_size for each in _files(work))


def remove(work: Path) -> int:
    """Remove all of it; how many bytes it had."""
    had = size(work)
    shutil.rmtree(work, ignore_errors=True)
    return had


def _files(work: Path) -> Iterator[Path]:
    for each in work.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if each.is_file() and not each.is_symlink():
                yield each


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink()
