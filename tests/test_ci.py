"""What CI would install, and what it then demands; nothing is installed here."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from provisioner.sandbox.real_node.requirements import CNI_PACKAGE, PROGRAMS
from tests.skips import VARIABLE

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "run"
PACKAGES = dict(re.findall(r"\[([\w.]+)\]=([\w-]+)", SCRIPT.read_text()))
# They come with others.
BESIDE = {"ctr": "containerd", "containerd-shim-runc-v2": "containerd"}


class Machine:
    """A folder with all the programs that there are."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._asked = folder / "asked"
        self._asked.touch()
        for name in ("bash", "dirname"):
            found = shutil.which(name)
            assert found is not None
            (self._bin / name).symlink_to(found)
        self.has("id", "echo 0")
        self.has("make", f'echo "{VARIABLE}=${VARIABLE}, make $*"')
        self.has("dpkg-query", "exit 1")
        self.has("apt-get", f'echo "$*" >> {self._asked}')

    def has(self, name: str, script: str = "exit 1") -> None:
        program = self._bin / name
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)

    def has_all(self) -> None:
        for name in PACKAGES:
            self.has(name)
        both = "busybox-static | containernetworking-plugins"
        self.has("dpkg-query", f'case "${{@: -1}}" in {both}) echo -n installed;; esac')

    def lacks(self, name: str) -> None:
        (self._bin / name).unlink()

    def runs(self, after_s: int = 0) -> str:
        """What the script prints when it began so long ago; it has to succeed."""
        ended = self.ends(after_s)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def ends(self, after_s: int = 0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", f'SECONDS={after_s}; . "{SCRIPT}"', SCRIPT],
            env={"PATH": str(self._bin)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    @property
    def updates(self) -> int:
        return [line.split()[0] for line in self._asked.read_text().splitlines()].count("update")

    @property
    def installed(self) -> list[str]:
        lines = [line.split() for line in self._asked.read_text().splitlines()]
        assert all(len(line) == 5 for line in lines if line[0] == "install")  # one at a time
        return sorted(line[-1] for line in lines if line[0] == "install")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_installs_what_real_nodes_and_tests_need_and_nothing_else():
    sources = [
        path.read_text()
        for folder in ("copying", "node", "image", "monitoring")
        for path in (ROOT / "tests" / folder).rglob("*.py")
    ]
    of_tests = {name for text in sources for name in re.findall(r'(?:needed|which)\("(\w+)"', text)}

    assert of_tests >= {"pvcreate", "cryptsetup", "strace", "skopeo", "promtool"}
    assert PROGRAMS.items() <= (PACKAGES | BESIDE).items()
    assert set(PACKAGES) == (set(PROGRAMS) - set(BESIDE)) | of_tests | {"ptp"}
    assert PACKAGES["ptp"] == CNI_PACKAGE


def test_a_bare_machine_gets_all_of_it(machine):
    said = machine.runs()

    assert machine.installed == sorted(PACKAGES.values())
    assert machine.updates == 1
    assert "make test\n" in said


def test_one_that_cannot_be_had_keeps_no_other_away(machine):
    machine.has("apt-get", f'echo "$*" >> {machine._asked}; exit 100')

    assert "make test\n" in machine.runs()
    assert machine.installed == sorted(PACKAGES.values())


def test_a_machine_that_has_all_of_it_is_left_alone(machine):
    machine.has_all()
    machine.runs()

    assert (machine.updates, machine.installed) == (0, [])


def test_a_busybox_with_libraries_makes_way_for_the_static_one(machine):
    machine.has_all()
    machine.has("dpkg-query", '[ "${@: -1}" != busybox-static ] && echo -n installed')
    machine.runs()

    assert machine.installed == ["busybox-static"]


def test_who_is_not_root_installs_nothing_and_may_skip(machine):
    machine.has("id", "echo 1000")

    assert machine.runs() == f"{VARIABLE}=, make test\n"
    assert machine.installed == []


@pytest.mark.parametrize("has_apt", [True, False])
def test_as_root_with_loop_devices_nothing_may_be_skipped_and_the_storage_tests_are_run(
    machine, *, has_apt
):
    if not has_apt:
        machine.lacks("apt-get")

    if os.access("/dev/loop-control", os.W_OK):
        assert machine.runs() == (
            f"{VARIABLE}=1, make test\n{VARIABLE}=1, make conformance PART=commit/3\n"
        )
    else:
        assert machine.runs() == f"{VARIABLE}=, make test\n"


def test_when_little_time_is_left_the_storage_tests_are_left_out(machine):
    assert machine.runs(after_s=2500).endswith("make test\n")


@pytest.mark.parametrize("target", ["test", "conformance"])
def test_a_target_that_fails_fails_it(machine, target):
    machine.has("make", f'[ "$1" != {target} ]')
    is_run = target == "test" or os.access("/dev/loop-control", os.W_OK)

    assert bool(machine.ends().returncode) is is_run
