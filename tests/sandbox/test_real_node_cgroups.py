"""Control groups in a folder that stands for /sys/fs/cgroup."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from provisioner.sandbox.real_node import cgroups


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
    assert cgroups.obstacle(second_version) == ""

    cgroups.make("ebs-sandbox-1-2", second_version)

    # The kernel adds them to what is there, this folder holds what was written.
    assert (second_version / "cgroup.subtree_control").read_text() == "+cpuset +hugetlb"


def test_what_is_passed_on_already_is_not_written(second_version: Path) -> None:
    passed_on = "cpuset cpu memory hugetlb pids\n"
    (second_version / "cgroup.subtree_control").write_text(passed_on)
    (second_version / "cgroup.type").write_text("domain\n")

    cgroups.make("ebs-sandbox-1-2", second_version)

    assert cgroups.obstacle(second_version) == ""
    assert (second_version / "cgroup.subtree_control").read_text() == passed_on


def test_a_container_that_cannot_pass_them_on_says_so(second_version: Path) -> None:
    (second_version / "cgroup.type").write_text("domain\n")

    assert cgroups.obstacle(second_version).startswith(
        "a control group with the controllers cpuset, hugetlb, which cannot be passed on while"
    )
    (second_version / "cgroup.procs").write_text("")
    assert cgroups.obstacle(second_version) == ""


def test_of_the_first_version_nothing_has_to_be_passed_on(first_version: Path) -> None:
    assert cgroups.obstacle(first_version) == ""


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
