"""Where CI can have real nodes, a test that lacks a program fails instead of being left out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skips import VARIABLE

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.conftest import pytest_runtest_makereport\n"
TESTS = """
import pytest

@pytest.mark.skipif(True, reason="a real node needs programs: apt install runc")
def test_marked(): pass

@pytest.fixture
def disk(): pytest.skip("this machine has no pvcreate")

def test_by_its_fixture(disk): pass

def test_by_itself(): pytest.skip("not on this machine: mkfs.xfs")

def test_of_the_machine(): pytest.skip("growing a mounted ext4 needs CAP_SYS_RESOURCE")

@pytest.mark.parametrize(
    "why", ["Linux 5.13 or newer", "cgroups, which are not mounted here (/sys/fs/cgroup)"]
)
def test_of_the_kernel(why): pytest.skip(f"a real node needs {why}")

@pytest.mark.xfail(strict=True)
def test_known_to_fail(): assert False

def test_that_passes(): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def printed(folder: Path, **environment: str) -> str:
    options = ["-p", "no:cacheprovider", "-ra", "--rootdir", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != VARIABLE}
        | {"PYTHONPATH": str(ROOT)}
        | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout


def test_they_are_skipped_on_a_laptop(folder):
    said = printed(folder)

    assert "1 passed, 6 skipped, 1 xfailed" in said


def test_they_fail_in_ci_with_the_reason(folder):
    said = printed(folder, **{VARIABLE: "1"})

    assert "1 failed, 1 passed, 3 skipped, 1 xfailed, 2 errors" in said
    for why in ("apt install runc", "no pvcreate", "not on this machine: mkfs.xfs"):
        assert f"{why}; it may not be skipped where {VARIABLE} is set" in said
