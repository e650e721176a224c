"""What ``make`` would run, in which order; nothing of it is carried out."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RIGHTS = "tests/cluster/test_rights.py"
BINARIES = ".venv/bin/ebs-provisioner sandbox binaries"


def planned(target: str) -> list[str]:
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("target", "build", "command"),
    [
        ("test", f"{BINARIES} --tests", ".venv/bin/python -m pytest"),
        ("bench", BINARIES, ".venv/bin/python -m tests.bench"),
    ],
)
def test_the_programs_are_built_before_what_needs_them(
    target: str, build: str, command: str
) -> None:
    # Within a test they would take minutes, longer than pytest's watchdog waits for one.
    commands = planned(target)

    assert commands.index(build) < first(commands, command)


def test_the_rights_are_judged_by_what_all_other_tests_have_used() -> None:
    commands = planned("test")

    others, rights = (each for each in commands if "-m pytest" in each)

    folder = re.search(r"--used-rights (\S+)", others)
    assert folder is not None
    assert f"--ignore {RIGHTS}" in others
    assert rights.endswith(f"--used-rights {folder[1]} {RIGHTS}")
    assert commands.index(f"rm -rf {folder[1]}") < commands.index(others) < commands.index(rights)


def first(commands: list[str], command: str) -> int:
    return next(n for n, each in enumerate(commands) if each.startswith(command))
