"""The folder that a sandbox lives in, and the removal of those whose owner died.

An owner holds a lock (flock) on a file inside its folder for as long as it lives. The kernel
drops the lock when it dies, however that happens, and unlike a process id it is never used again;
so whoever gets the lock of a folder may remove it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from provisioner.sandbox.errors import SandboxError

PREFIX = "ebs-sandbox-"
"""What the names of folders of ours begin with."""

OWNER = ".ebs-sandbox-owner"
"""The file whose lock says that a folder's owner lives."""

STATE = "state"
"""Where all goes that only a running sandbox needs."""

KUBECONFIG = "kubeconfig"
"""The administrator's; gone with the sandbox."""

LOGS = "logs"
"""What each part printed, and the audit log; kept in a folder that the user named."""

MARKER = ".ebs-sandbox-logs"
"""The file that says that a folder of logs is ours; without it, it is the user's own."""


@contextlib.contextmanager
def work_folder(chosen: Path | None = None, parent: Path | None = None) -> Iterator[Path]:
    """Own a fresh folder, and leave nothing of it behind.

    Args:
        chosen: a folder that the user named; in it only ``logs`` outlives us.
        parent: where an unnamed one is made; the system's folder for temporary files.

    Raises:
        SandboxError: ``chosen`` is used by a running sandbox, or cannot be written.
    """
    parent = parent or Path(tempfile.gettempdir())
    remove_abandoned(parent)
    try:
        if chosen is None:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        else:
            folder = chosen.absolute()
            folder.mkdir(parents=True, exist_ok=True)
        lock = _own(folder)
    except OSError as problem:
        raise SandboxError(f"{chosen or parent} cannot be used: {problem.strerror}") from problem
    try:
        yield folder
    finally:
        # Removed while the lock is still held: nobody else may take it for abandoned meanwhile.
        if chosen is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _clear(folder)
        os.close(lock)


def _own(folder: Path) -> int:
    owner = folder / OWNER
    if owner.exists():
        held = _try_lock(owner)
        if held is None:
            raise SandboxError(f"{folder} belongs to a sandbox that is running")
        _clear(folder)
        os.close(held)
    elif not _is_free(folder):
        raise SandboxError(f"{folder} is not empty: name another folder")
    # Locked before it has its name: nobody can see an owner file that is not locked yet.
    unnamed = folder / f"{OWNER}.{os.getpid()}"
    lock = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(owner)
    try:
        _begin_logs(folder / LOGS)  # if we die in the middle, the folder is known for ours
    except OSError:
        owner.unlink()
        os.close(lock)
        raise
    return lock


def _is_free(folder: Path) -> bool:
    """Whether it holds nothing but what an earlier sandbox has left there."""
    logs = folder / LOGS
    left = {entry for entry in folder.iterdir() if not _is_left_by_an_owner(entry)}
    return not left or (left == {logs} and ((logs / MARKER).is_file() or _is_empty(logs)))


def _is_left_by_an_owner(path: Path) -> bool:
    """Whether it is the owner file of one that died before it had its name."""
    if not path.name.startswith(f"{OWNER}."):
        return False
    lock = _try_lock(path)
    if lock is None:
        return False
    os.close(lock)
    return True


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _begin_logs(logs: Path) -> None:
    logs.mkdir(exist_ok=True)
    (logs / MARKER).touch()
    for old in logs.glob("*.log"):
        old.unlink()


def _try_lock(path: Path) -> int | None:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _clear(folder: Path) -> None:
    # By name, and never the whole folder: the user may have put something beside ours.
    shutil.rmtree(folder / STATE, ignore_errors=True)
    for ours in (folder / KUBECONFIG, folder / OWNER, *folder.glob(f"{OWNER}.*")):
        ours.unlink(missing_ok=True)


def remove_abandoned(parent: Path) -> list[Path]:
    """Remove folders in ``parent`` whose owner died; return them.

    A folder without an owner file is being made right now, and is left alone.
    """
    removed = []
    for folder in parent.glob(f"{PREFIX}*"):
        lock = _try_lock(folder / OWNER)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
            removed.append(folder)
    return removed
