"""What may be on a volume that is not ours to erase; each written as its own program would."""

import hashlib
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable

import pytest

from tests.node.loop_disks import MIB, SIZE_BYTES, Disk, run

SECTOR = 512


def noise(length: int, seed: str = "noise") -> bytes:
    """Bytes without any structure, the same each time."""
    return hashlib.shake_256(seed.encode()).digest(length)


def needed(program: str) -> str:
    """The name of a program, if this machine has it; without it the test is skipped."""
    if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        pytest.skip(f"this machine has no {program}")
    return program


def lvm(disk: Disk) -> None:
    # Within the test's own folder LVM would not look for devices.
    subprocess.run(
        [
            needed("pvcreate"),
            "--config",
            f'devices {{ filter=["a|{disk.loop}$|","r|.*|"] }}',
            disk.loop,
        ],
        capture_output=True,
        check=True,
        timeout=60,
    )


def raid(disk: Disk) -> None:
    """A member of an MD array, metadata 1.2 (4 KiB from the start)."""
    disk.write(4096, _md_superblock(4096 // SECTOR))


def raid_at_the_end(disk: Disk) -> None:
    """The same with metadata 1.0: within the last 12 KiB."""
    sector = (SIZE_BYTES // SECTOR - 16) // 8 * 8
    disk.write(sector * SECTOR, _md_superblock(sector))


def luks(disk: Disk) -> None:
    subprocess.run(
        [
            *(needed("cryptsetup"), "luksFormat", "--batch-mode", "--type", "luks2"),
            *("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", disk.loop, "-"),
        ],
        input=b"a key",
        capture_output=True,
        check=True,
        timeout=60,
    )


def dos_partitions(disk: Disk) -> None:
    """A master boot record with one Linux partition from 1 MiB on."""
    entry = struct.pack("<B3sB3sII", 0, bytes(3), 0x83, bytes(3), 2048, SIZE_BYTES // SECTOR - 2048)
    disk.write(0, bytes(440) + b"\x78\x56\x34\x12\0\0" + entry + bytes(48) + b"\x55\xaa")


def gpt_partitions(disk: Disk) -> None:
    """A GUID partition table with one partition, both copies, and its protective boot record."""
    last = SIZE_BYTES // SECTOR - 1
    entry = struct.pack("<16s16sQQQ72s", b"\x01" * 16, b"\x02" * 16, 2048, last - 2048, 0, b"a\0")
    entries = entry.ljust(128 * 128, b"\0")
    protective = struct.pack("<B3sB3sII", 0, bytes(3), 0xEE, bytes(3), 1, last)
    disk.write(0, bytes(446) + protective + bytes(48) + b"\x55\xaa")
    disk.write(SECTOR, _gpt_header(1, last, 2, entries))
    disk.write(2 * SECTOR, entries)
    disk.write((last - 32) * SECTOR, entries)
    disk.write(last * SECTOR, _gpt_header(last, 1, last - 32, entries))


def swap(disk: Disk) -> None:
    run("mkswap", disk.loop)


def zeroed_first_mib(disk: Disk) -> None:
    disk.write(MIB, noise(MIB))


def wiped_ext4(disk: Disk) -> None:
    """A file system whose first 16 MiB somebody wiped: only copies of its superblock are left."""
    run("mkfs.ext4", "-F", "-q", disk.loop)
    disk.write(0, bytes(16 * MIB))


def wiped_xfs(disk: Disk) -> None:
    run("mkfs.xfs", "-f", "-q", disk.loop)
    disk.write(0, bytes(16 * MIB))


def data_in_the_last_mib(disk: Disk) -> None:
    disk.write(SIZE_BYTES - SECTOR, noise(SECTOR))


def data_in_the_middle(disk: Disk) -> None:
    """A little more than the distance of two samples, somewhere."""
    disk.write(200 * MIB + 12345, noise(SIZE_BYTES // 64 + 1))


def raw_database(disk: Disk) -> None:
    """A database that is kept on the raw device, without any signature that blkid knows."""
    pages = b"".join(struct.pack("<II", 0xDB, page) + noise(4088, str(page)) for page in range(64))
    disk.write(0, b"SQLite format 3\0" + pages)


def unknown_file_system(disk: Disk) -> None:
    """A superblock of a file system that is still to be invented."""
    disk.write(64 * 1024, b"_FUTURE1" + noise(4000))


def boot_sector(disk: Disk) -> None:
    """The beginning of an NTFS."""
    disk.write(0, b"\xebR\x90NTFS    \0\x02\x08" + bytes(496) + b"\x55\xaa")


KINDS: dict[str, tuple[Callable[[Disk], None], str]] = {
    # What it is -> who writes it, and what the refusal says of it.
    "LVM": (lvm, "blkid finds LVM2_member"),
    "RAID": (raid, "blkid finds linux_raid_member"),
    "RAID with its superblock at the end": (raid_at_the_end, "blkid finds linux_raid_member"),
    "LUKS": (luks, "blkid finds crypto_LUKS"),
    "a DOS partition table": (dos_partitions, "a partition table (dos)"),
    "a GUID partition table": (gpt_partitions, "a partition table (gpt)"),
    "swap": (swap, "blkid finds swap"),
    "a zeroed first MiB with data behind": (zeroed_first_mib, "at byte 1048576"),
    "an ext4 whose beginning was wiped": (wiped_ext4, "blkid finds no file system"),
    "an xfs whose beginning was wiped": (wiped_xfs, "blkid finds no file system"),
    "data in the last MiB only": (data_in_the_last_mib, f"at byte {SIZE_BYTES - SECTOR}"),
    "data in the middle only": (data_in_the_middle, "blkid finds no file system"),
    "a raw database": (raw_database, "(SQLite.format.3."),
    "a file system that blkid does not know": (unknown_file_system, "at byte 65536"),
    "a boot sector": (boot_sector, "NTFS"),
}


def _md_superblock(sector: int) -> bytes:
    """Of linux/raid/md_p.h ``mdp_superblock_1``: one of two devices of a RAID 1."""
    block = bytearray(256 + 2 * 2)
    struct.pack_into("<III", block, 0, 0xA92B4EFC, 1, 0)
    block[16:32] = b"\x11" * 16  # set_uuid
    block[32:64] = b"host:data".ljust(32, b"\0")
    # level, layout, size, chunk size, devices
    struct.pack_into("<iIQII", block, 72, 1, 0, 1000 * 1024, 0, 2)
    struct.pack_into("<QQQ", block, 128, 2048, 1000 * 1024, sector)  # data from, size, this block
    block[168:184] = b"\x22" * 16  # device_uuid
    struct.pack_into("<I", block, 220, 2)  # max_dev
    block[256:260] = struct.pack("<HH", 0, 1)
    total = sum(word for (word,) in struct.iter_unpack("<I", block))
    struct.pack_into("<I", block, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    return bytes(block).ljust(4096, b"\0")


def _gpt_header(own: int, other: int, entries_at: int, entries: bytes) -> bytes:
    last = max(own, other)

    def packed(checksum: int) -> bytes:
        return struct.pack(
            "<8sIIIIQQQQ16sQIII",
            *(b"EFI PART", 0x10000, 92, checksum, 0, own, other, 34, last - 33),
            *(b"\x03" * 16, entries_at, 128, 128, zlib.crc32(entries)),
        )

    return packed(zlib.crc32(packed(0))).ljust(SECTOR, b"\0")
