"""Decide whether a volume is mounted as it is, formatted, or left alone.

The one rule above all: what may hold data is never formatted. A volume is formatted only if

- it was made blank (or nobody knows what it was made from), blkid recognizes nothing on it, and all
  that was read of it is zero; or
- a format of ours was begun on it and did not end (the mark, below): it was blank then, and nothing
  was mounted since; or
- its persistent volume says so, for just what is on it now: the value of the annotation names the
  volume and a fingerprint of what was found, so that it is no consent for another volume, nor
  for another thing on this one in two years.

What was found is what blkid knows, and of data the first that is not zero: 64 bytes and their
place. So a consent for what reads as zeros counts each time that it does, also where data lie that
nobody reads, and one for data counts for all that begins so. Only people take the annotation off.

A format by consent leaves no mark: should it end early, what is there then needs a consent of its
own. Nothing here writes for a request for reading only; the kernel does, at a mount: it brings a
log up to date. What is asked for later than needed (reads for zeros, the annotation) is its own
step: the caller does it and asks again.

The mark "a format of ours was begun here" is on the volume itself. It is written before mkfs and
cleared after it, always before the first mount. So a mark that is there says: nothing but a mkfs
has written to this volume since it was found blank. It survives a crash of the process, of the
node, and a move of the volume; a copy of the volume under another id is not meant by it. It is
written to two places, and one of them is enough. One follows the size: 5/8 of the volume is behind
the xfs log and the ext4 journal, 37 MiB more are behind a flex group's tables. The other is where
the smallest volume has its mark: it is found there also after a growth. By their defaults neither
mkfs.ext4 nor mkfs.xfs writes to them (killed at each of their writes on 512 MiB, and at their end
up to 1 TiB, 2026-11-22); where mkfs does, the mark is gone and the volume needs a human, which is
safe. After a growth the one that followed the old size stays as 4 KiB of free space: no size comes
back, so nobody looks there again.

Only we clear it. Where a format of ours died and another driver then took the volume, made it a
file system or a raw device and lost its signature again before we ever saw it, the mark would still
count; each stage of ours clears it, also of a raw device.

Source: blkid(8) of util-linux 2.38: exit codes 0, 2 (nothing found) and 8 (several signatures);
ext4's superblock (``s_mtime`` 0x2C, ``s_mnt_count`` 0x34, ``s_state`` 0x3A, at byte 1024); xfs's
``sb_inprogress`` at byte 126, which mkfs.xfs clears last and with which no kernel mounts it.
Killed at each of its writes (2026-11-22, e2fsprogs 1.47, xfsprogs 6.1), mkfs.ext4 leaves nothing
that blkid knows until it is done; mkfs.xfs leaves an xfs in progress from its fourth write on.
"""

import hashlib
import struct
import zlib
from dataclasses import dataclass
from enum import Enum

from provisioner.model.errors import Reason
from provisioner.model.file_systems import FILE_SYSTEMS
from provisioner.model.names import FORMAT_CONSENT
from provisioner.node.formatting.blank_rules import MIB, Data, Zeros

# -p: read the device itself, not blkid's cache. Filesystems, RAID members, encrypted volumes, swap
# and others; partition tables are looked for as well.
BLKID = ("blkid", "-p", "-u", "filesystem,raid,crypto,other", "-o", "export")
HEAD_BYTES = 4096  # so much of a device's beginning tells how far a mkfs came
EXT = frozenset({"ext2", "ext3", "ext4"})
_FOUND, _NOTHING, _SEVERAL = 0, 2, 8
_EXT_AT = 1024
_EXT_MAGIC = 0xEF53
_EXT_VALID = 1
_XFS_MAGIC = b"XFSB"
_XFS_IN_PROGRESS_AT = 126
MARK_BYTES = 4096
_LEAST_BYTES = 256 * MIB
_BEHIND_TABLES_BYTES = 37 * MIB
_MAGIC = b"ebs-provisioner formatting\n"
_VERSION = 1
_ID_BYTES = 32
_HEAD = struct.Struct(f"<{len(_MAGIC)}sB{_ID_BYTES}sQ")
_CHECKSUM = struct.Struct("<I")
BLANK = "blank"
UNKNOWN = ""
_SHOWN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """What blkid recognizes; "" is nothing of that kind.

    Attributes:
        type: a file system, or "LVM2_member", "crypto_LUKS", "swap" and so on.
        usage: "filesystem", "raid", "crypto" or "other".
        partition_table: "dos", "gpt" and so on.
        uuid: of the file system or its like.
        is_ambivalent: several signatures are there.
    """

    type: str = ""
    usage: str = ""
    partition_table: str = ""
    uuid: str = ""
    is_ambivalent: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether nothing at all was recognized."""
        return not (self.type or self.usage or self.partition_table or self.is_ambivalent)

    def __str__(self) -> str:
        if self.is_ambivalent:
            return "several signatures at once"
        kinds = [self.type or self.usage] if self.type or self.usage else []
        if self.partition_table:
            kinds.append(f"a partition table ({self.partition_table})")
        return " and ".join(kinds) or "nothing that it knows"


def read_signature(exit_code: int, output: str) -> Signature:
    """Read what ``blkid -o export`` has written.

    Raises:
        ValueError: one sentence, it failed.
    """
    if exit_code == _SEVERAL:
        return Signature(is_ambivalent=True)
    if exit_code not in (_FOUND, _NOTHING):
        raise ValueError("blkid could not look")
    said = dict(line.partition("=")[::2] for line in output.splitlines())
    return Signature(
        type=said.get("TYPE", ""),
        usage=said.get("USAGE", ""),
        partition_table=said.get("PTTYPE", ""),
        uuid=said.get("UUID", "") or said.get("PTUUID", ""),
    )


def is_unfinished(file_system: str, head: bytes) -> bool:
    """Whether a mkfs did not come to its end, and nobody can have mounted what it made.

    An ext file system that is not valid and was never mounted; an xfs in progress.

    Args:
        file_system: what blkid recognizes.
        head: the first ``HEAD_BYTES`` of the device.
    """
    if file_system in EXT:
        mounted_at, mounts, magic, state = struct.unpack_from("<I4xH2xHH", head, _EXT_AT + 0x2C)
        is_new = magic == _EXT_MAGIC and not mounted_at and not mounts
        return is_new and not state & _EXT_VALID
    if file_system == "xfs":
        return head[:4] == _XFS_MAGIC and head[_XFS_IN_PROGRESS_AT] != 0
    return False


def mark_offsets(size_bytes: int) -> tuple[int, ...]:
    """Where a volume of this size has the mark; nowhere if it is too small to have one.

    The first place is that of all volumes, whatever their size.
    """
    if size_bytes < _LEAST_BYTES:
        return ()
    return tuple(dict.fromkeys((_of_size(_LEAST_BYTES), _of_size(size_bytes))))


def _of_size(size_bytes: int) -> int:
    return size_bytes * 5 // 8 // MIB * MIB + _BEHIND_TABLES_BYTES


def mark_block(volume_id: str, begun_at_s: int) -> bytes:
    """The block that is written: magic, version, volume, time (Unix), checksum at the end."""
    head = _HEAD.pack(_MAGIC, _VERSION, volume_id.encode("ascii"), begun_at_s)
    body = head.ljust(MARK_BYTES - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(zlib.crc32(body))


def is_mark_of(block: bytes, volume_id: str) -> bool:
    """Whether a block is a whole mark of this very volume."""
    if len(block) != MARK_BYTES:
        return False
    _, _, _, begun_at_s = _HEAD.unpack_from(block)
    return block == mark_block(volume_id, begun_at_s)


@dataclass(frozen=True, slots=True)
class Consent:
    """What the persistent volume says about formatting.

    Attributes:
        persistent_volume: its name; "" if it could not be found.
        value: of the annotation ``FORMAT_CONSENT``; None if there is none.
        trouble: why it could not be read; "" if it was.
    """

    persistent_volume: str
    value: str | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """All that is known of a volume's device.

    Attributes:
        device: its path, for messages.
        volume_id: the volume.
        wanted: the file system asked for.
        read_only: only reading is asked for.
        device_read_only: the kernel lets nobody write to it.
        origin: "blank", "snap-…", "vol-…", or "" if nobody said.
        signature: what blkid recognizes.
        is_unfinished: a mkfs made what blkid recognizes and did not end; it never was mounted.
        is_marked: our mark, for this very volume, is on it.
        content: what reading it gave; None: not read yet.
        consent: what the persistent volume says; None: not asked yet.
    """

    device: str
    volume_id: str
    wanted: str
    read_only: bool
    device_read_only: bool
    origin: str
    signature: Signature
    is_unfinished: bool = False
    is_marked: bool = False
    content: Zeros | Data | None = None
    consent: Consent | None = None


class Because(Enum):
    """Why a volume is formatted."""

    BLANK = "it is blank"
    BEGUN = "a format of ours was begun on it and did not end"
    CONSENT = "its persistent volume says that what is on it may be erased"


@dataclass(frozen=True, slots=True)
class Mount:
    """Mount it as this file system; before that clear our mark, if there is one."""

    file_system: str
    clears_mark: bool


@dataclass(frozen=True, slots=True)
class Format:
    """Make the file system asked for; ``writes_mark``: begin with our mark."""

    because: Because
    writes_mark: bool


@dataclass(frozen=True, slots=True)
class Read:
    """Read it for zeros, then ask again."""


@dataclass(frozen=True, slots=True)
class AskConsent:
    """Read the persistent volume's annotation, then ask again."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Leave it as it is, and say why."""

    reason: Reason
    message: str


Step = Mount | Format | Read | AskConsent | Refuse


def next_step(view: View) -> Step:
    """What to do with a volume's device."""
    if _mounts(view) and not view.is_unfinished:
        if view.device_read_only and not view.read_only:
            return _read_only_device(view, "mount it read-only")
        return Mount(view.signature.type, clears_mark=view.is_marked and not view.read_only)
    if view.read_only:
        return _nothing_to_read(view)
    if view.device_read_only:
        return _read_only_device(view, "it cannot be formatted")
    is_empty = view.signature.is_nothing or (_mounts(view) and view.is_unfinished)
    if is_empty and view.is_marked and view.origin == BLANK:
        return Format(Because.BEGUN, writes_mark=True)
    if view.content is None and not _is_other_file_system(view):
        return Read()
    untouched = view.signature.is_nothing and isinstance(view.content, Zeros)
    if untouched and view.origin in (BLANK, UNKNOWN):
        return Format(Because.BLANK, writes_mark=view.origin == BLANK)
    if view.consent is None:
        return AskConsent()
    if view.consent.value == consent_value(view):
        return Format(Because.CONSENT, writes_mark=False)
    return _refusal(view, view.consent)


def consent_value(view: View) -> str:
    """The annotation's value that lets just what is on the volume now be erased."""
    found = f"{view.signature} {view.signature.uuid} "
    if isinstance(view.content, Data):
        found += f"{view.content.offset_bytes} {view.content.sample.hex()}"
    fingerprint = hashlib.sha256(found.encode()).hexdigest()[:8]
    return f"yes-erase-{view.volume_id}-{fingerprint}"


def serves(signature: Signature, wanted: str) -> bool:
    """Whether what is there serves as what is asked for.

    The kernel's ext4 mounts ext3 and ext2 too; nothing else is two things at once.
    """
    if signature.is_ambivalent:
        return False
    return signature.type == wanted or (wanted == "ext4" and signature.type in EXT)


def _mounts(view: View) -> bool:
    return serves(view.signature, view.wanted)


def _is_other_file_system(view: View) -> bool:
    return view.signature.usage == "filesystem" and not _mounts(view)


def _refusal(view: View, consent: Consent) -> Refuse:
    """Why it is not formatted, what was found, and what would help."""
    reason = Reason.FILE_SYSTEM_MISMATCH if _is_other_file_system(view) else Reason.NOT_BLANK
    return Refuse(
        reason,
        f"volume {view.volume_id} ({view.device}) is not formatted with {view.wanted}: "
        f"{_what_is_there(view)}; {_what_helps(view, consent)}",
    )


def _what_is_there(view: View) -> str:
    if _is_other_file_system(view):
        return f"it has the file system {view.signature.type}, asked for is {view.wanted}"
    found = []
    if view.is_unfinished:
        found.append(f"a mkfs of {view.signature.type} on it did not come to its end")
    elif not view.signature.is_nothing:
        found.append(f"blkid finds {view.signature} on it")
    if isinstance(view.content, Data):
        found.append(f"it is not blank: at byte {view.content.offset_bytes} {_shown(view.content)}")
    if view.signature.is_nothing:
        found.append("blkid finds no file system on it")
    if view.origin not in (BLANK, UNKNOWN):
        found.append(f"it was made from {view.origin}, whose data may be where nobody looked")
    return ", ".join(found)


def _shown(data: Data) -> str:
    sample = data.sample[:_SHOWN_BYTES]
    text = "".join(chr(byte) if 0x20 < byte < 0x7F else "." for byte in sample)  # noqa: PLR2004
    return f"are {sample.hex(' ')} ({text})"


def _what_helps(view: View, consent: Consent) -> str:
    if consent.trouble:
        return f"whether its persistent volume lets it be formatted is not known: {consent.trouble}"
    other = ""
    if consent.value is not None:
        other = (
            f"the annotation {FORMAT_CONSENT} of its persistent volume is {consent.value[:100]!r}, "
            "which is no consent to erase what is there now; "
        )
    name = consent.persistent_volume or "<its persistent volume>"
    can_be_mounted = _is_other_file_system(view) and view.signature.type in FILE_SYSTEMS
    instead = (
        f"set fsType {view.signature.type} to mount it, or"
        if can_be_mounted
        else "look at it first;"
    )
    return (
        f"{other}{instead} if ALL DATA on it may be lost for good: kubectl annotate "
        f"persistentvolume {name} --overwrite {FORMAT_CONSENT}={consent_value(view)}"
    )


def _nothing_to_read(view: View) -> Refuse:
    return Refuse(
        Reason.FILE_SYSTEM_MISMATCH,
        f"volume {view.volume_id} ({view.device}) cannot be mounted read-only as {view.wanted}: "
        f"{'its mkfs did not end' if view.is_unfinished else f'blkid finds {view.signature} on it'}"
        ", and a volume asked for read-only is never formatted; mount it writable once, or set its "
        "fsType to what is there",
    )


def _read_only_device(view: View, helps: str) -> Refuse:
    return Refuse(
        Reason.DEVICE_READ_ONLY,
        f"volume {view.volume_id} ({view.device}) is a read-only device on this node: {helps}; if "
        f"somebody has made it so, `blockdev --setrw {view.device}` on the node helps",
    )
