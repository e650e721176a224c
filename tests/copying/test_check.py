"""A volume that is looked at: what is told of its file system, and that not a byte of it changes."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.copying import check
from provisioner.copying.commands import check_volume
from provisioner.model.copy_report import CheckReport, decoded
from provisioner.node.requests import Unstage
from tests.node.machine import OTHER, VOLUME, Machine, run

pytest_plugins = ("tests.node.machine_fixtures",)
FILE_SYSTEMS = ["ext4", "ext3", "xfs"]
FLAGS = ("ro", "norecovery")


async def a_torn_volume(machine: Machine, file_system: str) -> Path:
    """What is on a volume whose node has died: its log is still to be replayed."""
    disk = machine.attach()
    await machine.stager.stage(machine.stage(file_system=file_system))
    (machine.staging() / "file").write_text("written")
    run("sync", "-f", machine.staging())
    torn = machine.folder / OTHER
    shutil.copyfile(disk.image, torn)
    return torn


async def looked_at(machine: Machine, file_system: str, report: Path) -> CheckReport:
    asked = machine.stage(OTHER, origin="snap-1", file_system=file_system, flags=FLAGS)
    await machine.stager.stage(asked)
    try:
        return await check.run(str(machine.staging(OTHER)), report)
    finally:
        await machine.stager.unstage(Unstage(OTHER, str(machine.staging(OTHER))))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("file_system", FILE_SYSTEMS)
async def test_type_and_uuid_are_told_and_nothing_is_written_although_its_log_is_to_be_replayed(
    machine: Machine, tmp_path: Path, file_system: str
):
    torn = await a_torn_volume(machine, file_system)
    before, report = digest(torn), tmp_path / "report"
    disk = machine.attach(OTHER)

    told = await looked_at(machine, file_system, report)

    run("blockdev", "--flushbufs", disk.loop)
    assert told.file_system == file_system
    assert told.uuid == run("blkid", "-p", "-s", "UUID", "-o", "value", disk.loop).strip()
    assert decoded(report.read_text(), CheckReport) == told
    assert digest(torn) == before


@pytest.mark.parametrize("ask", [check._of_ext4, check._of_xfs])
async def test_kernels_that_do_not_know_the_common_question_know_that_of_the_file_system(
    machine: Machine, ask: object, monkeypatch: pytest.MonkeyPatch
):
    machine.attach()
    file_system = "xfs" if ask is check._of_xfs else "ext4"
    await machine.stager.stage(machine.stage(VOLUME, file_system=file_system))
    path = str(machine.staging())
    expected = check.uuid_of(path)

    monkeypatch.setattr(check, "_of_any", lambda _: b"")
    assert check.uuid_of(path) == expected
    monkeypatch.setattr(check, ask.__name__, lambda _: bytes(16))  # type: ignore[attr-defined]
    assert check.uuid_of(path) == ""


async def test_what_cannot_be_listed_is_told_in_one_sentence(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    machine.attach()
    await machine.stager.stage(machine.stage())

    def broken(_: Path) -> None:
        raise OSError(117, os.strerror(117))

    monkeypatch.setattr(Path, "iterdir", broken)
    told = await check.run(str(machine.staging()), tmp_path / "report")

    assert told == CheckReport(
        refused="its root directory cannot be listed: Structure needs cleaning"
    )


def test_a_folder_where_nothing_is_mounted_is_no_volume(tmp_path: Path):
    report = tmp_path / "report"

    done = CliRunner().invoke(check_volume, [str(tmp_path), "--report", str(report)])

    assert done.exit_code == 0
    assert f"no file system is mounted at {tmp_path}" in report.read_text()
