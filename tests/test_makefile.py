"""What ``make`` would run, in which order; nothing of it is carried out."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
    ("target", "command"),
    [("test", ".venv/bin/python -m pytest"), ("bench", ".venv/bin/python -m tests.bench")],
)
def test_the_programs_are_built_before_what_needs_them(target: str, command: str) -> None:
    # Within a test they would take minutes, longer than pytest's watchdog waits for one.
    commands = planned(target)

    assert commands.index(BINARIES) < commands.index(command)
