"""Decide which mountOptions a volume may be mounted with.

Those are named, and all others refused. mount(8) and the file systems have options that mount
another thing than the volume, here or elsewhere, write to a second device (``logdev=``,
``journal_path=``), or run a program (``helper=``); each release may bring one more, and the plugin
runs as root for whoever may write a StorageClass.

Source: mount(8), ext4(5), xfs(5); Linux 6.18 fs/ext4/super.c ``ext4_param_specs`` and
fs/xfs/xfs_super.c ``xfs_fs_parameters``; util-linux 2.38 libmount/src/optstr.c for how they are
parted: a backslash takes the meaning from a comma or quote behind it.
"""

import re
from collections.abc import Iterable, Mapping

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
