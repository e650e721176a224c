"""The control groups of a node's pods: made before its kubelet, gone with the node.

Below one folder of the same name in each hierarchy (version 1, or both), or in the only one
(version 2). The name says who has made it, so that what a killed one has left is known; a group
below can say more of the node, as nothing else is as sure to outlive its keeper.
The standard library only: the agent's keeper uses it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "ebs-sandbox-"
_DEV: Final = "dev-"
_MOVED: Final = "init"
_EMPTY_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02
# What a kubelet demands of its group where the root has it: Kubernetes 1.36
# pkg/kubelet/cm/cgroup_v2_manager_linux.go, Validate.
_DEMANDED: Final = frozenset(("cpu", "cpuset", "memory", "pids", "hugetlb"))
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")


def name_for(pid: int) -> str:
    """Return the name for the groups of a process that keeps a node."""
    return f"{_PREFIX}{pid}-{_born(pid)}"


def make(name: str, root: Path = ROOT) -> None:
    """Make the groups.

    With version 2 the topmost group passes on to all below it what a kubelet demands, if it does
    not yet; in a container, what runs in that group is moved to one below it for that. Both stay.

    Raises:
        OSError: control groups cannot be written here.
    """
    if absent := _absent(root):
        _pass_on(absent, root)
    for hierarchy in _hierarchies(root):
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for file in _INHERITED:
            # Version 1 makes groups that have no processors, into which nothing can be put.
            if (group / file).exists() and not (group / "cgroup.controllers").exists():
                (group / file).write_text((hierarchy / file).read_text())


def note_dev(name: str, dev: int, root: Path = ROOT) -> None:
    """Note which number the /dev of the node has.

    Raises:
        OSError: control groups cannot be written here.
    """
    for hierarchy in _hierarchies(root):
        (hierarchy / name / f"{_DEV}{dev}").mkdir(exist_ok=True)
        return


def noted_dev(name: str, root: Path = ROOT) -> int | None:
    """Return the noted number; None if the node never came so far."""
    for hierarchy in _hierarchies(root):
        for note in (hierarchy / name).glob(f"{_DEV}*"):
            return int(note.name.removeprefix(_DEV))
    return None


def remove(name: str, root: Path = ROOT) -> None:
    """Remove the groups and all below them, once what ran there has ended.

    Raises:
        OSError: something still runs there after ten seconds.
    """
    for hierarchy in _hierarchies(root):
        group = hierarchy / name
        if group.is_dir():
            for folder, _, _ in sorted(os.walk(group), reverse=True):
                _remove_one(Path(folder))


def abandoned(root: Path = ROOT) -> list[str]:
    """Return the names of groups whose keepers were killed."""
    found = {
        path.name for hierarchy in _hierarchies(root) for path in hierarchy.glob(f"{_PREFIX}*")
    }
    return sorted(name for name in found if not _is_kept(name))


def _hierarchies(root: Path) -> Iterator[Path]:
    if (root / "cgroup.controllers").exists():
        yield root
        return
    for path in sorted(root.iterdir()):
        if not path.is_symlink() and (path / "cgroup.procs").exists():
            yield path


def _absent(root: Path) -> list[str]:
    """Return what the topmost group of version 2 has and does not pass on."""
    with suppress(FileNotFoundError):  # version 1
        has = set((root / "cgroup.controllers").read_text().split())
        passed_on = set((root / "cgroup.subtree_control").read_text().split())
        return sorted(has & _DEMANDED - passed_on)
    return []


def _pass_on(controllers: list[str], root: Path) -> None:
    def change() -> None:
        _make_room(root)
        (root / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in controllers))

    # Something may begin there meanwhile.
    _once_empty(change)


def _make_room(root: Path) -> None:
    """Move what runs in a container's topmost group, which passes nothing on as long as it does.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint"; of all
    groups the machine's root, which alone has no type, is free of it.
    """
    if not (root / "cgroup.type").exists():
        return
    (root / _MOVED).mkdir(exist_ok=True)
    for pid in (root / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):  # it has ended
            (root / _MOVED / "cgroup.procs").write_text(pid)


def _remove_one(folder: Path) -> None:
    # A process that was killed counts until it is wholly gone.
    with suppress(FileNotFoundError):
        _once_empty(folder.rmdir)


def _once_empty(change: Callable[[], None]) -> None:
    """Change a group as soon as no process is in the way."""
    until_s = time.monotonic() + _EMPTY_WITHIN_S
    while True:
        try:
            change()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until_s:
                raise
            time.sleep(_LOOK_EVERY_S)
        else:
            return


def _is_kept(name: str) -> bool:
    pid, _, born = name.removeprefix(_PREFIX).partition("-")
    return not pid.isdecimal() or _born(int(pid)) == born


def _born(pid: int) -> str:
    """When a process began, in ticks since the machine did; "" if there is none that lives."""
    with suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[18] if state not in "ZX" else ""
    return ""
