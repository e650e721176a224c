"""Control groups in a folder that stands for /sys/fs/cgroup."""

from __future__ import annotations

import os
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


def test_the_number_of_a_nodes_dev_goes_with_its_groups(first_version: Path) -> None:
    cgroups.make("ebs-sandbox-1-2", first_version)
    assert cgroups.noted_dev("ebs-sandbox-1-2", first_version) is None

    cgroups.note_dev("ebs-sandbox-1-2", 57, first_version)

    assert cgroups.noted_dev("ebs-sandbox-1-2", first_version) == 57
    cgroups.remove("ebs-sandbox-1-2", first_version)
    assert cgroups.noted_dev("ebs-sandbox-1-2", first_version) is None
