"""Decide whether a volume is mounted as it is, formatted, or left alone.

The first rule: a volume that may hold data is never formatted. A volume is formatted only if

- it was created blank (or its origin is unknown), blkid recognizes nothing on it, and everything
  that was read of it is zero; or
- an mkfs of ours was started on it and did not finish (the mark, see below): the volume was blank
  then, and was never mounted since; or
- its PersistentVolume consents to erasing exactly what is on it now: the value of the annotation
  names the volume and a fingerprint of what was found. So it consents neither for another volume
  nor for other content of this one in two years.

The fingerprint covers what blkid recognizes, and the first 64 bytes that are not zero with their
offset. So a consent for zeros counts whenever the samples read as zeros, even if there are data in
between, and a consent for data counts for everything that begins the same. Only people remove the
annotation.

Formatting with consent leaves no mark: if it is interrupted, what is there then needs a consent of
its own. Read-only requests never write anything here; the kernel does when it mounts, because it
replays the journal. Expensive inputs (the zero scan, the annotation) are fetched only when a
decision needs them: each is a step of its own, which the caller carries out before it asks again.

The mark "our mkfs was started here" is on the volume itself. It is written before mkfs and cleared
after it, always before the first mount. So a mark proves that nothing but an mkfs has written to
this volume since it was found blank. It survives a crash of the process or of the node, and a move
of the volume. It does not count on a copy of the volume, which has another id.

It is written to two places, and one of them is enough. One follows the size: 5/8 of the volume is
behind the xfs log and the ext4 journal, and 37 MiB more are behind a flex group's tables. The other
is where the smallest volume has its mark, so it is found after a growth, too. With default options
neither mkfs.ext4 nor mkfs.xfs writes to them (killed at each of their writes on 512 MiB, and at
their end up to 1 TiB, 2026-11-22). If an mkfs does, the mark is gone and the volume needs a human,
which is safe. After a growth, the mark for the old size stays as 4 KiB of free space: volumes never
shrink, so it is never read again.

Only we clear it. If our mkfs died, and another driver then put a file system or raw data on the
volume and its signature was lost again before we saw the volume, the mark would still count. Every
stage of ours clears it, also of a raw device.

Source: blkid(8) of util-linux 2.38: exit codes 0, 2 (nothing found) and 8 (several signatures);
ext4's superblock (``s_mtime`` 0x2C, ``s_mnt_count`` 0x34, ``s_state`` 0x3A, at byte 1024); xfs's
``sb_inprogress`` at byte 126, which mkfs.xfs clears last and with which no kernel mounts it.
Killed at each of its writes (2026-11-22, e2fsprogs 1.47, xfsprogs 6.1), mkfs.ext4 leaves nothing
that blkid recognizes until it is done; mkfs.xfs leaves an xfs in progress from its fourth write on.
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
# and others; partition tables are detected as well.
BLKID = ("blkid", "-p", "-u", "filesystem,raid,crypto,other", "-o", "export")
HEAD_BYTES = 4096  # enough of the device to see how far an mkfs got
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
    """What blkid recognizes; "" for nothing of that kind.

    Attributes:
        type: a file system, or "LVM2_member", "crypto_LUKS", "swap" and so on.
        usage: "filesystem", "raid", "crypto" or "other".
        partition_table: "dos", "gpt" and so on.
        uuid: of the file system or its like.
        is_ambivalent: blkid found several signatures.
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
        return " and ".join(kinds) or "nothing that it recognizes"


def read_signature(exit_code: int, output: str) -> Signature:
    """Read the output of ``blkid -o export``.

    Raises:
        ValueError: one sentence, it failed.
    """
    if exit_code == _SEVERAL:
        return Signature(is_ambivalent=True)
    if exit_code not in (_FOUND, _NOTHING):
        raise ValueError("blkid failed")
    said = dict(line.partition("=")[::2] for line in output.splitlines())
    return Signature(
        type=said.get("TYPE", ""),
        usage=said.get("USAGE", ""),
        partition_table=said.get("PTTYPE", ""),
        uuid=said.get("UUID", "") or said.get("PTUUID", ""),
    )


def is_unfinished(file_system: str, head: bytes) -> bool:
    """Whether an mkfs was interrupted, so that what it made cannot have been mounted.

    That is an ext file system that is not valid and was never mounted, or an xfs in progress.

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
    """Where a volume of this size has the mark; nowhere if it is too small for one.

    The first offset is the same for all volumes.
    """
    if size_bytes < _LEAST_BYTES:
        return ()
    return tuple(dict.fromkeys((_of_size(_LEAST_BYTES), _of_size(size_bytes))))


def _of_size(size_bytes: int) -> int:
    return size_bytes * 5 // 8 // MIB * MIB + _BEHIND_TABLES_BYTES


def mark_block(volume_id: str, begun_at_s: int) -> bytes:
    """The mark itself: magic, version, volume, Unix time, and a checksum at the end."""
    head = _HEAD.pack(_MAGIC, _VERSION, volume_id.encode("ascii"), begun_at_s)
    body = head.ljust(MARK_BYTES - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(zlib.crc32(body))


def is_mark_of(block: bytes, volume_id: str) -> bool:
    """Whether a block is an intact mark of exactly this volume."""
    if len(block) != MARK_BYTES:
        return False
    _, _, _, begun_at_s = _HEAD.unpack_from(block)
    return block == mark_block(volume_id, begun_at_s)


@dataclass(frozen=True, slots=True)
class Consent:
    """What the PersistentVolume says about formatting.

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
        wanted: the requested file system.
        read_only: the volume is requested read-only.
        device_read_only: the kernel refuses writes to it.
        origin: "blank", "snap-…", "vol-…", or "" if unknown.
        signature: what blkid recognizes.
        is_unfinished: what blkid recognizes comes from an mkfs that was interrupted.
        is_marked: it has our mark for this volume id.
        content: the result of the zero scan; None: not read yet.
        consent: what the PersistentVolume says; None: not read yet.
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
    INTERRUPTED = "an earlier mkfs of ours on it was interrupted"
    CONSENT = "its PersistentVolume allows what is on it to be erased"


@dataclass(frozen=True, slots=True)
class Mount:
    """Mount it as this file system, after clearing our mark if ``clears_mark``."""

    file_system: str
    clears_mark: bool


@dataclass(frozen=True, slots=True)
class Format:
    """Make the requested file system; with ``writes_mark``, write our mark first."""

    because: Because
    writes_mark: bool


@dataclass(frozen=True, slots=True)
class Read:
    """Scan it for zeros, then decide again."""


@dataclass(frozen=True, slots=True)
class AskConsent:
    """Read the PersistentVolume's annotation, then decide again."""


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
        return Format(Because.INTERRUPTED, writes_mark=True)
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
    """The annotation's value that allows erasing exactly what is on the volume now."""
    found = f"{view.signature} {view.signature.uuid} "
    if isinstance(view.content, Data):
        found += f"{view.content.offset_bytes} {view.content.sample.hex()}"
    fingerprint = hashlib.sha256(found.encode()).hexdigest()[:8]
    return f"yes-erase-{view.volume_id}-{fingerprint}"


def serves(signature: Signature, wanted: str) -> bool:
    """Whether what is there can be mounted as the requested file system.

    The kernel's ext4 mounts ext3 and ext2 as well.
    """
    if signature.is_ambivalent:
        return False
    return signature.type == wanted or (wanted == "ext4" and signature.type in EXT)


def _mounts(view: View) -> bool:
    return serves(view.signature, view.wanted)


def _is_other_file_system(view: View) -> bool:
    return view.signature.usage == "filesystem" and not _mounts(view)


def _refusal(view: View, consent: Consent) -> Refuse:
    """Why it is not formatted, what was found, and what helps."""
    reason = Reason.FILE_SYSTEM_MISMATCH if _is_other_file_system(view) else Reason.NOT_BLANK
    return Refuse(
        reason,
        f"volume {view.volume_id} ({view.device}) is not formatted with {view.wanted}: "
        f"{_what_is_there(view)}; {_what_helps(view, consent)}",
    )


def _what_is_there(view: View) -> str:
    if _is_other_file_system(view):
        return f"it already has {view.signature.type}"
    found = []
    if view.is_unfinished:
        found.append(f"an mkfs.{view.signature.type} on it was interrupted")
    elif not view.signature.is_nothing:
        found.append(f"blkid finds {view.signature} on it")
    if isinstance(view.content, Data):
        found.append(f"it is not blank: it has {_shown(view.content)}")
    if view.signature.is_nothing:
        found.append("blkid finds no file system on it")
    if view.origin not in (BLANK, UNKNOWN):
        found.append(f"it was created from {view.origin}, whose data may be where it was not read")
    return ", ".join(found)


def _shown(data: Data) -> str:
    sample = data.sample[:_SHOWN_BYTES]
    text = "".join(chr(byte) if 0x20 < byte < 0x7F else "." for byte in sample)  # noqa: PLR2004
    return f"{sample.hex(' ')} ({text}) at byte {data.offset_bytes}"


def _what_helps(view: View, consent: Consent) -> str:
    if consent.trouble:
        return (
            "the PersistentVolume, which may allow formatting it, could not be read: "
            f"{consent.trouble}"
        )
    other = ""
    if consent.value is not None:
        other = (
            f"the annotation {FORMAT_CONSENT} of its PersistentVolume is {consent.value[:100]!r}, "
            "which does not match what is on it now; "
        )
    name = consent.persistent_volume or "<its PersistentVolume>"
    can_be_mounted = _is_other_file_system(view) and view.signature.type in FILE_SYSTEMS
    instead = (
        f"set fsType to {view.signature.type} to mount it, or,"
        if can_be_mounted
        else "check what it is;"
    )
    return (
        f"{other}{instead} if ALL DATA on it may be lost, run: kubectl annotate "
        f"persistentvolume {name} --overwrite {FORMAT_CONSENT}={consent_value(view)}"
    )


def _nothing_to_read(view: View) -> Refuse:
    found = f"blkid finds {view.signature} on it"
    if view.is_unfinished:
        found = "its mkfs was interrupted"
    return Refuse(
        Reason.FILE_SYSTEM_MISMATCH,
        f"volume {view.volume_id} ({view.device}) cannot be mounted read-only as {view.wanted}: "
        f"{found}, and read-only volumes are never formatted; mount it writable once, or set "
        "fsType to what is there",
    )


def _read_only_device(view: View, helps: str) -> Refuse:
    return Refuse(
        Reason.DEVICE_READ_ONLY,
        f"volume {view.volume_id} ({view.device}) is a read-only device on this node: {helps}; if "
        f"it should be writable, run `blockdev --setrw {view.device}` on the node",
    )
