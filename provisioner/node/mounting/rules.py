"""Decide with which options a volume is mounted, and what to do about existing mounts.

Allowed options are listed, all others are refused. mount(8) and the file systems have options that
mount something else or somewhere else, write to a second device (``logdev=``, ``journal_path=``),
or run a program (``helper=``). Each release may add another, and the plugin runs as root for
everyone who may write a StorageClass.

Source: mount(8) of util-linux 2.38 (libmount/src/optstr.c for how options are split: a backslash
escapes the comma or quote after it), ext4(5), xfs(5); Linux 6.18 fs/ext4/super.c
``ext4_param_specs`` and fs/xfs/xfs_super.c ``xfs_fs_parameters``; aws-ebs-csi-driver v1.64
pkg/driver/node.go ``collectMountOptions``; Kubernetes' mount-utils ``IsCorruptedMnt``.
"""

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from provisioner.model.errors import Reason
from provisioner.node.requests import Capability
from provisioner.node.runtime.mount_table_rules import Mount

_LONGEST_WAIT_S = 60.0
# Left for the answer, which says what was waited for: a bare DeadlineExceeded says nothing.
_TO_ANSWER_S = 5.0
# One option; a quoted value may hold commas: context="system_u:object_r:container_file_t:s0:c1,c2".
_OPTION = re.compile(r'(?:[^,"]|"[^"]*"?)+')

_OF_ALL = (
    "defaults ro rw async sync dirsync atime noatime diratime nodiratime relatime norelatime "
    "strictatime nostrictatime lazytime nolazytime dev nodev suid nosuid exec noexec symfollow "
    "nosymfollow iversion noiversion mand nomand silent loud auto noauto nofail nouser _netdev "
    "discard nodiscard barrier nobarrier norecovery dax quota noquota usrquota grpquota prjquota "
    "grpid nogrpid bsdgroups sysvgroups"
)
_OF_EXT = (
    "acl noacl user_xattr nouser_xattr bsddf minixdf debug nouid32 oldalloc orlov noload delalloc "
    "nodelalloc journal_checksum nojournal_checksum journal_async_commit auto_da_alloc "
    "noauto_da_alloc init_itable noinit_itable block_validity noblock_validity dioread_lock "
    "dioread_nolock i_version mblk_io_submit nomblk_io_submit nombcache no_mbcache "
    "prefetch_block_bitmaps no_prefetch_block_bitmaps warn_on_error nowarn_on_error bh nobh nocheck"
)
_OF_XFS = (
    "attr2 noattr2 filestreams ikeep noikeep inode32 inode64 largeio nolargeio noalign nouuid "
    "swalloc wsync uquota uqnoenforce gquota gqnoenforce pquota pqnoenforce qnoenforce lifetime "
    "nolifetime"
)
_ALONE = frozenset(f"{_OF_ALL} {_OF_EXT} {_OF_XFS}".split())

_NUMBERED = (
    "commit stripe resuid resgid min_batch_time max_batch_time inode_readahead_blks journal_ioprio "
    "max_dir_size_kb init_itable barrier auto_da_alloc mb_optimize_scan allocsize logbufs logbsize "
    "sunit swidth max_open_zones max_atomic_write"
)
_NUMBER = r"[0-9]{1,18}[kKmMgG]?"
_LABEL = r"[\w.:@+-]+"
# What the value may be, as a regular expression.
_VALUES: Mapping[str, str] = {
    **dict.fromkeys(_NUMBERED.split(), _NUMBER),
    "data": "journal|ordered|writeback",
    "data_err": "ignore|abort",
    # Not "panic": the node is not the volume's.
    "errors": "continue|remount-ro",
    "dax": "always|never|inode",
    "check": "none",
    "jqfmt": "vfsold|vfsv0|vfsv1",
    # Files at the top of the volume itself.
    **dict.fromkeys(("usrjquota", "grpjquota"), r"[\w.-]*"),
    **dict.fromkeys(
        ("context", "fscontext", "defcontext", "rootcontext"),
        rf'{_LABEL}|"{_LABEL}(?:,{_LABEL})*"',
    ),
}
# Prefixes of fstab options, which the kernel never sees.
_FSTAB_PREFIXES = ("comment=", "x-systemd.", "x-initrd.", "x-fstrim.")
_FSTAB_OPTION = re.compile(r"[\w.:@%=+-]+", re.ASCII)
_PATH = re.compile(r"\S*/\S*")
_CORRUPTED = frozenset(
    {
        errno.ENOTCONN,
        errno.ESTALE,
        errno.EIO,
        errno.EACCES,
        errno.EHOSTDOWN,
        errno.EWOULDBLOCK,
        errno.ENODEV,
        errno.ENXIO,
        errno.ESHUTDOWN,
    }
)


def wait_s(time_left_s: float | None) -> float:
    """How long a call waits for a device, given what is left of the kubelet's deadline, if any."""
    if time_left_s is None:
        return _LONGEST_WAIT_S
    return min(_LONGEST_WAIT_S, max(time_left_s / 2, time_left_s - _TO_ANSWER_S))


def parted(flags: Iterable[str]) -> list[str]:
    """The single options; each flag may be several, with commas."""
    return [option.strip() for flag in flags for option in _OPTION.findall(flag) if option.strip()]


def check(option: str) -> None:
    """Check that a volume may be mounted with an option.

    Raises:
        ValueError: one sentence, it may not.
    """
    name, equals, value = option.partition("=")
    if option in _ALONE or (option.startswith(_FSTAB_PREFIXES) and _FSTAB_OPTION.fullmatch(option)):
        return
    allowed = _VALUES.get(name)
    if allowed is not None and equals and re.fullmatch(allowed, value, re.ASCII):
        return
    is_known = name in _ALONE or allowed is not None
    why = (
        f"{name} is allowed, but not with this value, or not without one"
        if is_known
        else "docs/reference/mount-options.md lists the allowed ones"
    )
    raise ValueError(
        f"mount option {option[:60]!r} is not allowed for volumes; remove it from mountOptions of "
        f"the StorageClass and of the PersistentVolume, or correct it: {why}"
    )


def markdown() -> str:
    """The list in docs/reference/mount-options.md."""
    groups = {
        "All file systems": _OF_ALL.split(),
        "ext3 and ext4": _OF_EXT.split(),
        "xfs": _OF_XFS.split(),
        "With a value": [f"{name}=" for name in _VALUES],
        "Of fstab, without effect": [f"{start}…" for start in _FSTAB_PREFIXES],
    }
    return "\n".join(
        f"- {group}: {', '.join(f'`{name}`' for name in names)}." for group, names in groups.items()
    )


class MountState(Enum):
    """What is mounted where a volume should be."""

    FREE = "free"  # nothing
    DONE = "done"  # the volume, as requested
    REMOUNT = "remount"  # the volume, but read-only instead of writable or the other way round
    STALE = "stale"  # a dead mount, which has to be unmounted first
    READ_ONLY = "read-only"  # the volume, read-only and in use: it cannot be made writable
    FOREIGN = "foreign"  # something else, which is alive


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found at a path.

    Attributes:
        mount: the uppermost mount there; None if none is.
        is_corrupted: stat of its root fails as it does at a dead mount.
        has_device: the device that it was mounted from still exists.
    """

    mount: Mount | None
    is_corrupted: bool = False
    has_device: bool = True


def is_corrupted(error: OSError) -> bool:
    """Whether a stat failed as it does at a dead mount."""
    return error.errno in _CORRUPTED


def wants_read_only(capability: Capability) -> bool:
    """Whether a volume is requested read-only, by its access mode or its mount options."""
    return capability.is_read_only or "ro" in parted(capability.mount_flags)


def mount_options(
    file_system: str, capability: Capability, *, read_only: bool = False
) -> tuple[str, ...]:
    """The options to mount a volume's device with, each once; ``read_only``: whatever is requested.

    xfs always gets nouuid: a volume and its clone on one node have the same UUID.

    Raises:
        ValueError: one sentence, an option is not allowed.
    """
    options = parted(capability.mount_flags)
    for option in options:
        check(option)
    mode = ["ro"] if read_only or wants_read_only(capability) else ["rw"]
    others = [option for option in options if option not in ("ro", "rw")]
    own = ["nouuid"] if file_system == "xfs" else []
    return tuple(dict.fromkeys([*mode, *others, *own]))


def staged(
    seen: Seen, number: str, *, read_only: bool, has_errors: bool, is_alone: bool
) -> MountState:
    """What is at a staging path.

    A file system with errors, or one that the kernel has made read-only after an error, is repaired
    by the check before the next mount. So it counts as stale, if it is mounted nowhere else.

    Args:
        seen: what was found there.
        number: "major:minor" of the volume's device.
        read_only: whether it is requested read-only.
        has_errors: the kernel has found errors in it since its last check.
        is_alone: the device is mounted nowhere else.
    """
    place = _place(seen, number, root="/")
    if place is not MountState.DONE or seen.mount is None or read_only:
        return place
    if is_alone and (has_errors or seen.mount.is_read_only):
        return MountState.STALE
    return MountState.READ_ONLY if seen.mount.is_read_only else MountState.DONE


def published(seen: Seen, staging: Mount, *, read_only: bool) -> MountState:
    """What is at a target path, given the staged mount that should be bound there.

    An existing bind mount stays, even if the file system has become read-only since.
    """
    place = _place(seen, staging.number, root=staging.root)
    if place is MountState.FOREIGN:
        return place
    if place is MountState.DONE and seen.mount is not None:
        wanted = read_only or "ro" in staging.options
        if ("ro" in seen.mount.options) == wanted:
            return place
        place = MountState.REMOUNT
    return MountState.READ_ONLY if staging.is_read_only and not read_only else place


def read_only_for(volume_id: str, staging: str, paths: Sequence[str]) -> str:
    """The message if a volume is requested writable, but staged read-only.

    Args:
        volume_id: the volume.
        staging: where it is staged.
        paths: where else it is mounted.
    """
    pods = f"the pods of {', '.join(paths)}" if paths else "the volume's pods on this node"
    return (
        f"volume {volume_id} is requested writable, but is mounted read-only at {staging}: an "
        "earlier pod requested it read-only, or the kernel made it read-only after a disk error; "
        f"delete {pods}, then it is mounted again"
    )


def mount_failure(said: str, *paths: str) -> Reason:
    """Why mount(8) failed, from its output about these paths."""
    said = _words(said, paths)
    if "already mounted" in said or "busy" in said:
        return Reason.DEVICE_BUSY
    if "write-protected" in said or "read-only" in said:
        return Reason.DEVICE_READ_ONLY
    if "unknown filesystem type" in said:
        return Reason.NOT_SUPPORTED
    return Reason.MOUNT_FAILED


def may_be_unknown_features(said: str) -> bool:
    """Whether mount(8) failed as it does for features that the kernel does not know.

    The kernel answers EINVAL, and mount(8) of util-linux lists what that may be (Linux
    fs/xfs/xfs_super.c ``xfs_fs_fill_super``, util-linux 2.38 libmount/src/context_mount.c, read
    2026-11-23).
    """
    return "wrong fs type, bad option, bad superblock" in said


def is_in_use(said: str, path: str) -> bool:
    """Whether umount(8) failed because the path is in use."""
    return "busy" in _words(said, [path])


def _words(said: str, paths: Iterable[str]) -> str:
    """Output without the names that users choose: a volume may be called "busybox"."""
    for path in paths:
        said = said.replace(path, "")
    # The program may have quoted or shortened a path, or resolved its links.
    return _PATH.sub("", said).lower()


def _place(seen: Seen, number: str, *, root: str) -> MountState:
    if seen.mount is None:
        return MountState.STALE if seen.is_corrupted else MountState.FREE
    if seen.is_corrupted:
        return MountState.STALE
    if (seen.mount.number, seen.mount.root) == (number, root):
        return MountState.DONE
    # A disk that disappears while mounted keeps its number until it is unmounted.
    return MountState.FOREIGN if seen.has_device else MountState.STALE
