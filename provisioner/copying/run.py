"""Copy all files of one folder to another, so that a kill at any point costs only time.

First the room is looked at; nothing is written if there is none. Then rsync copies, and goes on
where an earlier run was killed. What it wrote is put on the disk and read again from there: a
second run compares both by checksum, and must find nothing.
"""

import asyncio
import logging
from pathlib import Path

from provisioner import clock
from provisioner.copying import files, room_rules, rsync_rules
from provisioner.model.copy_report import CopyReport, encoded
from provisioner.node.runtime import mount_table_rules

log = logging.getLogger(__name__)
_MOUNTS = Path("/proc/self/mountinfo")


class CopyError(Exception):
    """This run has failed; another one may not."""


class _RefusedError(Exception):
    """It cannot be done, in one sentence."""


async def run(source: str, target: str, report: Path, *, checks_mount: bool = True) -> CopyReport:
    """Copy, compare, and write the report.

    Args:
        source: a folder, the root of a file system that is mounted read-only.
        target: a folder, the root of another.
        report: where the report goes.
        checks_mount: refuse a source whose file system somebody could write to.

    Raises:
        CopyError: try again.
    """
    began_s = clock.now_s()
    try:
        used = await _copied(source, target, checks_mount=checks_mount)
    except _RefusedError as error:
        told = CopyReport(refused=str(error))
    except OSError as error:
        raise CopyError(f"{error.filename or source}: {error.strerror}") from error
    else:
        seconds = round(clock.now_s() - began_s)
        told = CopyReport(done=True, files=used.inodes, bytes=used.bytes, seconds=seconds)
    await asyncio.to_thread(report.write_text, encoded(told))
    return told


async def _copied(source: str, target: str, *, checks_mount: bool) -> room_rules.Used:
    if checks_mount:
        await _check_mount(source)
    lost_found = await asyncio.to_thread(files.names_in, Path(source, rsync_rules.LOST_FOUND))
    leaves = rsync_rules.leaves_lost_found(lost_found)
    skipped = rsync_rules.LOST_FOUND if leaves else ""
    used = await asyncio.to_thread(files.measured, source, skipped)
    begun = await asyncio.to_thread(files.measured, target, rsync_rules.LOST_FOUND)
    room = await asyncio.to_thread(files.room, target, begun)
    log.info("%s files take %s bytes; there is room for %s", used.inodes, used.bytes, room.bytes)
    refused = room_rules.no_room(used, room)
    if refused is not None:
        raise _RefusedError(refused)
    await _rsync(rsync_rules.copy(source, target, leaves_lost_found=leaves))
    await _run("sync", "--file-system", target)
    await asyncio.to_thread(files.forget, target)
    log.info("copied; comparing by checksum")
    compare = rsync_rules.comparison(source, target, leaves_lost_found=leaves)
    differences = rsync_rules.differences(await _rsync(compare))
    if differences is not None:
        raise _RefusedError(differences)
    if checks_mount:
        await _check_mount(source)
    return used


async def _check_mount(source: str) -> None:
    table = await asyncio.to_thread(_MOUNTS.read_bytes)
    mount = mount_table_rules.at_in(source, table)
    refused = room_rules.not_alone(mount.super_options if mount is not None else ())
    if refused is not None:
        raise _RefusedError(refused)


async def _rsync(arguments: list[str]) -> str:
    code, output, errors = await _run("rsync", *arguments, may_fail=True)
    if code == 0:
        return output
    told = rsync_rules.failure(code, errors)
    if rsync_rules.is_final(code):
        raise _RefusedError(told)
    raise CopyError(told)


async def _run(*words: str, may_fail: bool = False) -> tuple[int, str, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        raise CopyError(f"{words[0]} is not in this image") from None
    output, errors = await process.communicate()
    code = process.returncode or 0
    if code and not may_fail:
        told = errors.decode(errors="replace").strip()
        raise CopyError(f"{words[0]} fails (exit code {code}): {told}")
    return code, output.decode(errors="replace"), errors.decode(errors="replace")
