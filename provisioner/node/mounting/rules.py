"""Decide how a volume is mounted, with which options, and what to think of what is mounted already.

Options that may be are named, and all others refused. mount(8) and the file systems have options
that mount another thing than the volume, here or elsewhere, write to a second device (``logdev=``,
``journal_path=``), or run a program (``helper=``); each release may bring one more, and the plugin
runs as root for whoever may write a StorageClass.

Source: mount(8) of util-linux 2.38 (libmount/src/optstr.c for how options are parted: a backslash
takes the meaning from a comma or quote behind it), ext4(5), xfs(5); Linux 6.18 fs/ext4/super.c
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
# How options begin that no kernel gets to see: those of fstab.
_REMARKS = ("comment=", "x-systemd.", "x-initrd.", "x-fstrim.")
_REMARK = re.compile(r"[\w.:@%=+-]+", re.ASCII)
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
    """See that a volume may be mounted with an option.

    Raises:
        ValueError: one sentence, it may not.
    """
    name, equals, value = option.partition("=")
    if option in _ALONE or (option.startswith(_REMARKS) and _REMARK.fullmatch(option)):
        return
    allowed = _VALUES.get(name)
    if allowed is not None and equals and re.fullmatch(allowed, value, re.ASCII):
        return
    is_known = name in _ALONE or allowed is not None
    why = (
        f"{name} has another value, or none, where it can"
        if is_known
        else "docs/reference/mount-options.md has the list of those that can"
    )
    raise ValueError(
        f"mount option {option[:60]!r} cannot be used for volumes; take it out of mountOptions of "
        f"the class and of the PersistentVolume, or correct it: {why}"
    )


def markdown() -> str:
    """The list of them in docs/reference/mount-options.md."""
    groups = {
        "All file systems": _OF_ALL.split(),
        "ext3 and ext4": _OF_EXT.split(),
        "xfs": _OF_XFS.split(),
        "With a value": [f"{name}=" for name in _VALUES],
        "Of fstab, without effect": [f"{start}…" for start in _REMARKS],
    }
    return "\n".join(
        f"- {group}: {', '.join(f'`{name}`' for name in names)}." for group, names in groups.items()
    )


class MountState(Enum):
    """What is to be done about what is mounted where a volume should be."""

    FREE = "free"  # nothing is mounted there
    DONE = "done"  # the volume is there, as it is wanted
    REMOUNT = "remount"  # it is there, but read-only or writable as it should not be
    STALE = "stale"  # the mount is dead: it goes first
    READ_ONLY = "read-only"  # it is there, read-only, and others use it: it cannot be made writable
    FOREIGN = "foreign"  # another volume is there, and alive


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found at a path.

    Attributes:
        mount: the uppermost mount there; None if none is.
        is_corrupted: it does not even tell its root's attributes.
        has_device: the machine still has the device that it was mounted from.
    """

    mount: Mount | None
    is_corrupted: bool = False
    has_device: bool = True


def is_corrupted(error: OSError) -> bool:
    """Whether a look at a path fails as it does at a dead mount."""
    return error.errno in _CORRUPTED


def wants_read_only(capability: Capability) -> bool:
    """Whether a volume is asked for to be read only, by its mode or by its mount options."""
    return capability.is_read_only or "ro" in parted(capability.mount_flags)


def mount_options(file_system: str, capability: Capability) -> tuple[str, ...]:
    """The options to mount a volume's device with, each once.

    xfs always has nouuid: a volume and its clone on one node have the same id.

    Raises:
        ValueError: one sentence, an option cannot be used for volumes.
    """
    options = parted(capability.mount_flags)
    for option in options:
        check(option)
    mode = ["ro"] if wants_read_only(capability) else ["rw"]
    others = [option for option in options if option not in ("ro", "rw")]
    own = ["nouuid"] if file_system == "xfs" else []
    return tuple(dict.fromkeys([*mode, *others, *own]))


def staged(
    seen: Seen, number: str, *, read_only: bool, has_errors: bool, is_alone: bool
) -> MountState:
    """What to do at a staging path.

    A file system with errors, or one that the kernel has made read-only after an error, heals by
    the check before the next mount, if nothing else has it mounted.

    Args:
        seen: what is there.
        number: "major:minor" of the volume's device.
        read_only: how it is wanted.
        has_errors: the kernel has found some in it, and it was not checked since.
        is_alone: the device is mounted nowhere else.
    """
    place = _place(seen, number, root="/")
    if place is not MountState.DONE or seen.mount is None or read_only:
        return place
    if is_alone and (has_errors or seen.mount.is_read_only):
        return MountState.STALE
    return MountState.READ_ONLY if seen.mount.is_read_only else MountState.DONE


def published(seen: Seen, staging: Mount, *, read_only: bool) -> MountState:
    """What to do at a target path, given the staged mount that it is to show.

    What is shown already stays, also if the file system has become read-only since.
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
    """The sentence for a request to write to what is staged read-only.

    Args:
        volume_id: the volume.
        staging: where it is staged.
        paths: where it is mounted besides.
    """
    who = f"the pods of {', '.join(paths)}" if paths else "the volume's pods on this node"
    return (
        f"volume {volume_id} is asked for to be written, and is mounted read-only at {staging}: "
        f"it was asked for so before, or has become so after an error of its disk; delete {who}, "
        "then it is mounted anew"
    )


def mount_failure(said: str, *paths: str) -> Reason:
    """The reason behind what mount(8) said about these paths."""
    said = _words(said, paths)
    if "already mounted" in said or "busy" in said:
        return Reason.DEVICE_BUSY
    if "write-protected" in said or "read-only" in said:
        return Reason.DEVICE_READ_ONLY
    if "unknown filesystem type" in said:
        return Reason.NOT_SUPPORTED
    return Reason.MOUNT_FAILED


def is_in_use(said: str, path: str) -> bool:
    """Whether that is why umount(8) did not unmount a path."""
    return "busy" in _words(said, [path])


def _words(said: str, paths: Iterable[str]) -> str:
    """What a program said without the names in it, which people choose: a volume "busybox"."""
    for path in paths:
        said = said.replace(path, "")
    # Each in the form the program gave it, too: quoted, shortened, links resolved.
    return _PATH.sub("", said).lower()


def _place(seen: Seen, number: str, *, root: str) -> MountState:
    if seen.mount is None:
        return MountState.STALE if seen.is_corrupted else MountState.FREE
    if seen.is_corrupted:
        return MountState.STALE
    if (seen.mount.number, seen.mount.root) == (number, root):
        return MountState.DONE
    # A disk that went while mounted keeps its number until it is unmounted: no other one has it.
    return MountState.FOREIGN if seen.has_device else MountState.STALE
