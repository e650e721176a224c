from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.sandbox import workdir
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.workdir import LOGS, STATE, work_folder

OWNER = """
import pathlib, sys, time
from provisioner.sandbox.workdir import work_folder
chosen = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
with work_folder(chosen, parent=pathlib.Path(sys.argv[1])) as folder:
    (folder / "state").mkdir()
    (folder / "kubeconfig").write_text("")
    print(folder, flush=True)
    time.sleep(60)
"""


DIES = """
import os, pathlib, sys
from provisioner.sandbox.workdir import work_folder
setattr(pathlib.Path, sys.argv[2], lambda *_: os._exit(9))
with work_folder(pathlib.Path(sys.argv[1])):
    pass
"""


def a_killed_owner(parent: Path, *chosen: Path) -> Path:
    """Return the folder of a sandbox whose process was killed."""
    root = str(Path(workdir.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(parent), *map(str, chosen)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        owner.kill()
        owner.wait()
    assert folder.exists()
    return folder


def test_nothing_is_left_of_an_unnamed_folder(tmp_path: Path) -> None:
    with work_folder(parent=tmp_path) as folder:
        (folder / STATE).mkdir()
        (folder / "kubeconfig").write_text("")

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_after_an_error_either(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), work_folder(parent=tmp_path):
        raise ZeroDivisionError

    assert list(tmp_path.iterdir()) == []


def test_the_next_start_removes_what_a_killed_owner_left(tmp_path: Path) -> None:
    abandoned = a_killed_owner(tmp_path)

    with work_folder(parent=tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not abandoned.exists()


def test_the_folder_of_a_living_owner_is_left_alone(tmp_path: Path) -> None:
    with work_folder(parent=tmp_path) as folder:
        assert workdir.remove_abandoned(tmp_path) == []
        assert folder.exists()


def test_a_folder_that_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{workdir.PREFIX}new").mkdir()

    assert workdir.remove_abandoned(tmp_path) == []


def test_only_logs_stay_in_a_folder_that_the_user_named(tmp_path: Path) -> None:
    chosen = tmp_path / "mine"
    with work_folder(chosen) as folder:
        (folder / STATE).mkdir()
        for name in ("kubeconfig", f"{LOGS}/etcd.log"):
            (folder / name).write_text("")

    assert [path.name for path in chosen.iterdir()] == [LOGS]
    assert (chosen / LOGS / "etcd.log").exists()


@pytest.mark.parametrize("name", ["notes.txt", "kubeconfig-prod", "kubeconfig.d", "state.old"])
def test_what_the_user_put_beside_ours_stays(tmp_path: Path, name: str) -> None:
    with work_folder(tmp_path / "mine") as folder:
        (folder / name).write_text("the user's")

    assert (tmp_path / "mine" / name).read_text() == "the user's"


def test_logs_that_are_the_users_own_are_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / LOGS).mkdir()
    (tmp_path / LOGS / "app.log").write_text("the user's")

    with pytest.raises(SandboxError, match="is not empty"), work_folder(tmp_path):
        pass
    assert (tmp_path / LOGS / "app.log").read_text() == "the user's"


def test_a_named_folder_can_be_used_again_and_begins_without_old_logs(tmp_path: Path) -> None:
    for _ in range(2):
        with work_folder(tmp_path / "mine") as folder:
            assert list((folder / LOGS).glob("*.log")) == []
            (folder / LOGS / "etcd.log").write_text("")


def test_what_the_user_put_beside_our_logs_stays(tmp_path: Path) -> None:
    for _ in range(2):
        with work_folder(tmp_path / "mine") as folder:
            (folder / LOGS / "what-i-saw.txt").write_text("the user's")

    assert (tmp_path / "mine" / LOGS / "what-i-saw.txt").exists()


def test_a_named_folder_whose_owner_was_killed_can_be_used_again(tmp_path: Path) -> None:
    chosen = a_killed_owner(tmp_path, tmp_path / "mine")

    with work_folder(chosen) as folder:
        assert not (folder / STATE).exists()


@pytest.mark.parametrize("step", ["touch", "rename"], ids=["its logs", "its owner file"])
@pytest.mark.parametrize("times", [0, 1], ids=["new", "used before"])
def test_a_named_folder_whose_owner_died_when_it_began_can_be_used_again(
    tmp_path: Path, step: str, times: int
) -> None:
    for _ in range(times):
        with work_folder(tmp_path / "mine"):
            pass
    root = Path(workdir.__file__).parents[2]
    command = [sys.executable, "-c", DIES, str(tmp_path / "mine"), step]
    assert subprocess.run(command, cwd=root, check=False).returncode == 9

    with work_folder(tmp_path / "mine") as folder:
        assert (folder / LOGS / workdir.MARKER).is_file()
    assert [path.name for path in folder.iterdir()] == [LOGS]


def test_an_empty_folder_of_logs_is_taken(tmp_path: Path) -> None:
    (tmp_path / LOGS).mkdir()

    with work_folder(tmp_path) as folder:
        assert (folder / LOGS / workdir.MARKER).is_file()


def test_a_folder_that_another_sandbox_is_just_taking_is_refused(tmp_path: Path) -> None:
    with (tmp_path / f"{workdir.OWNER}.4711").open("w") as unnamed:
        fcntl.flock(unnamed, fcntl.LOCK_EX)
        with pytest.raises(SandboxError, match="is not empty"), work_folder(tmp_path):
            pass


def test_logs_that_cannot_be_written_leave_the_folder_free(tmp_path: Path) -> None:
    with work_folder(tmp_path):
        pass
    (tmp_path / LOGS / "etcd.log").mkdir()
    for _ in range(2):
        with pytest.raises(SandboxError, match="cannot be used"), work_folder(tmp_path):
            pass

    (tmp_path / LOGS / "etcd.log").rmdir()
    with work_folder(tmp_path):
        pass


def test_a_folder_with_a_running_sandbox_is_refused(tmp_path: Path) -> None:
    with (
        work_folder(tmp_path / "mine"),
        pytest.raises(SandboxError, match="a sandbox that is running"),
        work_folder(tmp_path / "mine"),
    ):
        pass


def test_a_folder_with_foreign_files_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / STATE).mkdir()

    with pytest.raises(SandboxError, match="is not empty"), work_folder(tmp_path):
        pass
    assert (tmp_path / STATE).exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SandboxError, match="Not a directory"), work_folder(tmp_path / "file" / "x"):
        pass
