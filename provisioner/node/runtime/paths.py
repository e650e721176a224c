"""The kubelet's staging and target paths: checked, created and removed.

``node/csi/service.py`` has checked them as text. Here links are resolved: a link on the way that
leads out of the kubelet's directory would make us mount over anything.
"""

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.model.volume import normalised_handle
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.mount_table_rules import Mount

log = structlog.get_logger(__name__)
T = TypeVar("T")
_DIRECTORY_MODE, _FILE_MODE = 0o750, 0o640
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Kubelet's record beside a staged volume. Source: Kubernetes 1.36 pkg/volume/csi/csi_util.go,
# saveVolumeData.
_VOL_DATA = "vol_data.json"


class _Note(msgspec.Struct, frozen=True, rename="camel"):
    """What kubelet records about a volume that it has staged."""

    volume_handle: str
    driver_name: str = ""


class Paths:
    """Staging and target paths on this node.

    Args:
        blocking: for calls that may hang.
        kubelet_dir: the kubelet's root directory.
    """

    def __init__(self, blocking: BlockingCalls, kubelet_dir: Path) -> None:
        self._blocking = blocking
        self._kubelet_dir = kubelet_dir

    async def real(self, path: str) -> str:
        """The path with all links resolved, as in the kernel's mount table.

        Raises:
            NodeError: INVALID_REQUEST, it is a link or leads out of the kubelet's directory;
                TIMED_OUT.
        """
        return await self._call(path, partial(_real, path, self._kubelet_dir))

    async def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless it exists.

        Raises:
            NodeError: TARGET_FULL; MOUNT_FAILED, it exists and is no directory; TIMED_OUT.
        """
        await self._call(path, partial(_made, path, _make_directory, stat.S_ISDIR))

    async def make_file(self, path: str) -> None:
        """Create an empty file to bind a device node on, unless it exists.

        Raises:
            NodeError: as ``make_directory``, for a file.
        """
        await self._call(path, partial(_made, path, _make_file, stat.S_ISREG))

    async def remove(self, volume_id: str, path: str) -> None:
        """Remove an empty directory or an empty file; leave anything else.

        Raises:
            NodeError: TARGET_BUSY, MOUNT_FAILED, TIMED_OUT.
        """
        if not await self._call(path, partial(_remove, path)):
            log.warning("did not remove a path that is not empty", volume=volume_id, path=path)

    async def device_number(self, path: str) -> str | None:
        """The "major:minor" of the block device at a path; None for anything else.

        Raises:
            NodeError: TIMED_OUT.
        """
        return await self._call(path, partial(_device_number, path))

    async def _call(self, path: str, function: Callable[[], T]) -> T:
        return await self._blocking.call(path, function, what=f"access to {path}")


def noted_volume(mount: Mount) -> str:
    """The id of the volume that kubelet has mounted at a path; "" if unknown."""
    note = _note(Path(mount.path).parent)
    return normalised_handle(note.volume_handle) if note is not None else ""


def noted_block_volume(mount: Mount, devices: Path, driver: str) -> str:
    """The id of the raw block volume of this driver that a pod has at a path; "" if it has none.

    Source: Kubernetes 1.36 pkg/volume/csi/csi_block.go. Of a volume NAME, the plugin mounts
    publish/NAME/POD, kubelet mounts NAME/dev/POD, and its record is in NAME/data.

    Args:
        mount: of a device.
        devices: the directory in which the kubelet keeps raw block volumes of all CSI drivers.
        driver: our name.
    """
    top = devices.resolve()
    if not mount.path.startswith(f"{top}/"):
        return ""
    match Path(mount.path).relative_to(top).parts:
        case ("publish", name, _) | (name, "dev", _):
            note = _note(top / name / "data")
            if note is not None and note.driver_name == driver:
                return normalised_handle(note.volume_handle)
    return ""


def _note(folder: Path) -> _Note | None:
    """Kubelet's record there; None if it has none that can be read."""
    try:
        return msgspec.json.decode((folder / _VOL_DATA).read_bytes(), type=_Note)
    except (OSError, ValueError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
        return None


def _real(path: str, kubelet_dir: Path) -> str:
    folder, name = os.path.split(path)
    real = Path(os.path.realpath(folder)) / name
    top = Path(os.path.realpath(kubelet_dir))
    if not real.is_relative_to(top) or real == top or name in ("", ".", ".."):
        raise NodeError(
            Reason.INVALID_REQUEST,
            f"path {path} leads to {real}, which is not below the kubelet's directory {top}; "
            "remove the link that leads out of it",
        )
    if os.path.islink(real):  # noqa: PTH114 -- at a dead mount, pathlib's raises
        raise NodeError(
            Reason.INVALID_REQUEST,
            f"path {path} is a symbolic link; remove it: volumes are mounted on directories and "
            "files only",
        )
    return str(real)


def _made(path: str, make: Callable[[str], None], is_right: Callable[[int], bool]) -> None:
    """Create it, or check that what exists is of the right kind."""
    try:
        make(path)
        found = os.lstat(path).st_mode
    except OSError as error:
        if error.errno in _FULL:
            raise NodeError(
                Reason.TARGET_FULL,
                f"{path} cannot be created: its file system is out of space or inodes, or a quota "
                "is used up; free space there",
            ) from error
        if error.errno not in (errno.EEXIST, errno.ENOTDIR):
            raise NodeError(
                Reason.MOUNT_FAILED, f"{path} cannot be created: {error.strerror}"
            ) from error
        found = 0
    if not is_right(found):
        wanted = "directory" if is_right is stat.S_ISDIR else "file"
        raise NodeError(
            Reason.MOUNT_FAILED,
            f"{path} cannot be mounted on: it, or one of its parents, exists and is not a "
            f"{wanted}; move it away",
        )


def _make_directory(path: str) -> None:
    Path(path).mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)


def _make_file(path: str) -> None:
    Path(path).parent.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _FILE_MODE))
    except FileExistsError:
        return


def _remove(path: str) -> bool:
    """Whether it is gone; False if it is not empty."""
    try:
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            Path(path).rmdir()
        elif stat.S_ISREG(status.st_mode) and not status.st_size:
            Path(path).unlink()
        else:
            return False
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        reason = Reason.TARGET_BUSY if error.errno == errno.EBUSY else Reason.MOUNT_FAILED
        raise NodeError(reason, f"{path} cannot be removed: {error.strerror}") from error
    return True


def _device_number(path: str) -> str | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
