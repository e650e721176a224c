"""Files of odd kinds are copied and compared, by rsync itself."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from provisioner.copying import files, run
from provisioner.copying.room_rules import Used
from provisioner.model.copy_report import CopyReport, decoded

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
IS_ROOT = os.geteuid() == 0
ODD = ["plain", "with space", "new\nline", "-n", "*", "üñí", os.fsdecode(b"\xff\xfe"), ".hidden"]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    (target / "lost+found").mkdir()
    return source, target, tmp_path / "report"


def furnish(folder: Path) -> None:
    for name in ODD:
        (folder / name).write_text(f"in {name!r}", errors="surrogateescape")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "data").write_bytes(os.urandom(300_000))
    os.link(folder / "plain", folder / "deep" / "same")
    (folder / "link").symlink_to("nowhere/at all")
    os.mkfifo(folder / "pipe", 0o640)
    with (folder / "sparse").open("wb") as file:
        file.truncate(8 << 20)
        file.seek(4 << 20)
        file.write(b"x")
    (folder / "plain").chmod(0o4751)
    if IS_ROOT:
        os.chown(folder / "*", 1234, 5678)
        os.chown(folder / "link", 4321, 8765, follow_symlinks=False)
    for path in [*folder.rglob("*"), folder]:  # a folder after what is in it
        os.utime(path, ns=(1, 1_234_567_890_123_456_789), follow_symlinks=False)


async def copied(folders: tuple[Path, Path, Path]) -> CopyReport:
    source, target, report = folders
    told = await run.run(str(source), str(target), report, checks_mount=False)
    assert decoded(report.read_text(), CopyReport) == told
    return told


def picture(folder: Path) -> dict[bytes, Any]:
    """All that a copy has to keep, by path."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        if path.name == "lost+found":
            continue
        is_file = path.is_file() and not path.is_symlink()
        status = path.lstat()
        found[os.fsencode(path.relative_to(folder))] = (
            *(status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns),
            status.st_nlink if is_file else 0,
            path.read_bytes() if is_file else "",
            str(path.readlink()) if path.is_symlink() else "",
        )
    return found


async def test_all_kinds_of_files_are_the_same_afterwards(folders):
    source, target, _ = folders
    furnish(source)

    told = await copied(folders)

    assert (told.done, told.refused) == (True, "")
    assert told.files == len(picture(source)) - 2  # without the folder itself, one hard link once
    assert picture(target) == picture(source)
    assert (target / "plain").stat().st_ino == (target / "deep" / "same").stat().st_ino
    assert (target / "sparse").stat().st_blocks < (1 << 20) // 512
    assert (target / "lost+found").is_dir()


async def test_a_copy_that_was_killed_goes_on_and_what_is_too_much_is_deleted(folders):
    source, target, _ = folders
    furnish(source)
    (target / "plain").write_text("half of it")
    (target / "stranger").write_text("of an earlier run")

    assert (await copied(folders)).done
    assert picture(target) == picture(source)


async def test_too_little_room_is_refused_before_anything_is_written(folders, monkeypatch):
    source, target, _ = folders
    furnish(source)
    monkeypatch.setattr(files, "room", lambda *_: Used(1000, 1000))

    told = await copied(folders)

    assert not told.done
    assert "ask for a larger size" in told.refused
    assert [each.name for each in target.iterdir()] == ["lost+found"]


async def test_a_wrong_byte_with_the_same_size_and_time_is_found(folders, monkeypatch):
    source, target, _ = folders
    furnish(source)
    real = run._rsync

    async def spoiling(arguments: list[str]) -> str:
        output = await real(arguments)
        if "--dry-run" not in arguments:
            data = target / "deep" / "er" / "data"
            status = data.stat()
            content = bytearray(data.read_bytes())
            content[1000] ^= 1
            data.write_bytes(content)
            os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))
        return output

    monkeypatch.setattr(run, "_rsync", spoiling)
    told = await copied(folders)

    assert not told.done
    assert "1 files differ from the old volume" in told.refused
    assert "deep/er/data" in told.refused


async def test_a_socket_that_a_program_left_is_no_trouble(folders, monkeypatch):
    monkeypatch.chdir(folders[0])
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("socket")

    assert (await copied(folders)).done
    assert (folders[1] / "socket").is_socket()


async def test_a_program_that_the_image_lacks_fails_instead_of_being_taken_for_a_copy(folders):
    with pytest.raises(run.CopyError, match="no-such-program is not in this image"):
        await run._run("no-such-program")
    with pytest.raises(run.CopyError, match="false fails"):
        await run._run("false")
