"""Control groups in a folder that stands for /sys/fs/cgroup."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from provisioner.sandbox.real_node import cgroups

CONTROLLERS = "cgroup.controllers"
DEMANDED = {"cpu", "cpuset", "memory", "pids", "hugetlb"}


@pytest.fixture
def first_version(tmp_path: Path) -> Path:
    """Three hierarchies, one of them the second version's, and a link to one."""
    for name in ("memory", "cpuset", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    (tmp_path / "cpu,cpuacct").symlink_to("memory")
    return tmp_path


def groups(root: Path) -> list[str]:
    found = [path for path in root.glob("*/ebs-sandbox-*") if not path.parent.is_symlink()]
    return sorted(str(path.relative_to(root)) for path in found)


def test_a_node_has_a_group_in_each_hierarchy(first_version: Path) -> None:
    cgroups.make("ebs-sandbox-1-2", first_version)

    names = ("cpuset", "memory", "unified")
    assert groups(first_version) == [f"{name}/ebs-sandbox-1-2" for name in names]


def test_of_the_second_version_there_is_one_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "system.slice").mkdir()
    (tmp_path / "system.slice" / "cgroup.procs").touch()

    cgroups.make("ebs-sandbox-1-2", tmp_path)

    assert (tmp_path / "ebs-sandbox-1-2").is_dir()
    assert list((tmp_path / "system.slice").iterdir()) == [tmp_path / "system.slice/cgroup.procs"]


@pytest.fixture
def second_version(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.procs").write_text("1\n17\n")
    return tmp_path


def test_the_machines_root_passes_on_what_a_kubelet_demands(second_version: Path) -> None:
    cgroups.make("ebs-sandbox-1-2", second_version)

    assert not (second_version / "init").exists()
    # The kernel adds them to what is there, this folder holds what was written.
    assert (second_version / "cgroup.subtree_control").read_text() == "+cpuset +hugetlb"


def test_what_is_passed_on_already_is_not_written(second_version: Path) -> None:
    told = "cpuset cpu memory hugetlb pids\n"
    (second_version / "cgroup.subtree_control").write_text(told)
    (second_version / "cgroup.type").write_text("domain\n")

    cgroups.make("ebs-sandbox-1-2", second_version)

    assert not (second_version / "init").exists()
    assert (second_version / "cgroup.subtree_control").read_text() == told


def passed_on(group: Path) -> str:
    return (group / "cgroup.subtree_control").read_text().strip()


@pytest.fixture
def container() -> Iterator[Path]:
    """A group of the kernel's own, with something to pass on, as a container's topmost one has."""
    unified = cgroups.ROOT / "unified"
    top = unified if unified.is_dir() else cgroups.ROOT
    with suppress(FileNotFoundError):  # version 1 alone
        has = (top / CONTROLLERS).read_text().split()
        before = set(passed_on(top).split())
        if os.geteuid() == 0 and DEMANDED.intersection(has):
            name = cgroups.name_for(os.getpid())
            cgroups.make(name, top)
            yield top / name
            cgroups.remove(name, top)
            if top == unified:  # beside version 1, where real nodes use nothing of it
                for each in set(passed_on(top).split()) - before:
                    (top / "cgroup.subtree_control").write_text(f"-{each}")
            return
    pytest.skip("needs root, and control groups of version 2 that control something")


def test_in_a_container_what_runs_there_makes_room(container: Path) -> None:
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as quiet,
        subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"]) as busy,
    ):
        try:
            for each in (quiet, busy):
                (container / "cgroup.procs").write_text(str(each.pid))

            cgroups.make("ebs-sandbox-1-2", container)

            demanded = (container / "ebs-sandbox-1-2" / CONTROLLERS).read_text()
            assert demanded.strip() == passed_on(container) != ""
            assert (container / "cgroup.procs").read_text() == ""
            moved = (container / "init" / "cgroup.procs").read_text().split()
            assert {str(quiet.pid), str(busy.pid)} <= set(moved)
        finally:
            quiet.kill()
            busy.kill()


def test_removing_takes_all_that_is_below(first_version: Path) -> None:
    cgroups.make("ebs-sandbox-1-2", first_version)
    pod = first_version / "memory/ebs-sandbox-1-2/kubepods/besteffort/pod1"
    pod.mkdir(parents=True)

    cgroups.remove("ebs-sandbox-1-2", first_version)

    assert groups(first_version) == []


def test_only_what_nobody_keeps_is_abandoned(first_version: Path) -> None:
    kept = cgroups.name_for(os.getpid())
    reused = f"ebs-sandbox-{os.getpid()}-1"  # the number of a process that died long ago
    for name in (kept, reused, "ebs-sandbox-of-somebody"):
        cgroups.make(name, first_version)

    assert cgroups.abandoned(first_version) == [reused]


def test_who_is_dead_and_not_reaped_yet_keeps_nothing(first_version: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as keeper:
        name = cgroups.name_for(keeper.pid)
        cgroups.make(name, first_version)
        assert cgroups.abandoned(first_version) == []

        keeper.kill()
        os.waitid(os.P_PID, keeper.pid, os.WEXITED | os.WNOWAIT)

        assert cgroups.abandoned(first_version) == [name]


def test_the_number_of_a_nodes_dev_goes_with_its_groups(first_version: Path) -> None:
    cgroups.make("ebs-sandbox-1-2", first_version)
    assert cgroups.noted_dev("ebs-sandbox-1-2", first_version) is None

    cgroups.note_dev("ebs-sandbox-1-2", 57, first_version)

    assert cgroups.noted_dev("ebs-sandbox-1-2", first_version) == 57
    cgroups.remove("ebs-sandbox-1-2", first_version)
    assert cgroups.noted_dev("ebs-sandbox-1-2", first_version) is None
