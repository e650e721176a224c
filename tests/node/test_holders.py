"""Who uses a file system, from a made /proc."""

import os

import pytest

from provisioner.node import holders


@pytest.fixture
def proc(tmp_path):
    return tmp_path / "proc"


@pytest.fixture
def number(tmp_path):
    device = tmp_path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def process(proc, pid, name, **links):
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    for link, target in links.items():
        (folder / link.replace("fd", "fd/")).symlink_to(target)


def test_tells_who_works_there_and_who_has_files_open(proc, number, tmp_path):
    file = tmp_path / "file"
    file.touch()
    process(proc, 7, "postgres", cwd=tmp_path, fd3=file)
    process(proc, 12, "tail", cwd="/proc", fd0="/dev/null", fd3=file)
    process(proc, 13, "idle", cwd="/proc", fd0="/dev/null")
    (proc / "sys").mkdir()

    assert set(holders.of(proc, str(tmp_path), number)) == {
        f"process 7 (postgres) works in {tmp_path}",
        f"process 12 (tail) has {file} open",
    }


def test_tells_some_of_many(proc, number, tmp_path):
    for pid in range(20):
        process(proc, pid, "shell", cwd=tmp_path)

    assert len(holders.of(proc, str(tmp_path), number)) == 5


def test_processes_that_end_meanwhile_are_no_trouble(proc, number, tmp_path):
    (proc / "3").mkdir(parents=True)
    process(proc, 4, "gone", cwd="/no/such/folder")

    assert holders.of(proc, str(tmp_path), number) == ()
    assert holders.of(proc / "no", str(tmp_path), number) == ()
