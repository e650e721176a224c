"""What a sandbox has left on the machine after its end, as the kernel shows it: nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from provisioner.sandbox.real_node import cgroups


def remains(folder: Path, groups: Iterable[str]) -> list[str]:
    """Return what is left, in words.

    Args:
        folder: where all files of the sandbox were.
        groups: names of its nodes' control groups.
    """
    within = f"{folder}/"
    loops = [
        f"loop device {shown.parts[3]}"
        for shown in Path("/sys/block").glob("loop*/loop/backing_file")
        if _read(shown).startswith(within)
    ]
    mounts = [
        f"mount {line.split()[4]}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if within in line
    ]
    names = set(groups)
    # One hierarchy (version 2), or several and each of its own.
    every = [*cgroups.ROOT.glob("*"), *cgroups.ROOT.glob("*/*")]
    left = [f"control group {path}" for path in every if path.name in names]
    return [*loops, *mounts, *left, *([f"folder {folder}"] if folder.exists() else [])]


def _read(path: Path) -> str:
    with suppress(OSError):  # it has been cleared meanwhile
        return path.read_text()
    return ""
