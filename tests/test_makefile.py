"""What ``make`` would run, in which order; nothing of it is carried out."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RIGHTS = "tests/cluster/test_rights.py"
BINARIES = ".venv/bin/ebs-provisioner sandbox binaries"


def planned(*words: str) -> list[str]:
    done = subprocess.run(
        ["make", "--file", "Makefile", "--dry-run", "--no-print-directory", *words],
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
        ("conformance", f"{BINARIES} --conformance", ".venv/bin/python -m tests.e2e"),
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

    others, rights = (each for each in commands if "-m pytest" in each and "--used" in each)

    folder = re.search(r"--used-rights (\S+)", others)
    assert folder is not None
    assert f"--ignore {RIGHTS}" in others
    assert rights.endswith(f"--used-rights {folder[1]} {RIGHTS}")
    assert commands.index(f"rm -rf {folder[1]}") < commands.index(others) < commands.index(rights)


def test_everything_is_linted_and_type_checked_and_types_beside_the_tests() -> None:
    commands = [each.strip() for each in planned("test")]

    assert set(commands) >= {each.strip() for each in planned("check")}
    (beside,) = (each for each in commands if "--jobs 2" in each)
    assert beside.endswith(" types suite")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["quick"], ".venv/bin/python -m tests.quick"),
        (
            ["quick", "OF=webhook/reviews docs"],
            ".venv/bin/python -m tests.quick webhook/reviews docs",
        ),
    ],
)
def test_what_a_change_may_break_is_run_after_lint_and_types(
    words: list[str], command: str
) -> None:
    checks, commands = planned("check"), planned(*words)

    assert [each.strip() for each in commands] == [*(each.strip() for each in checks), command]


def test_all_tests_without_a_control_plane_are_run_by_one_command() -> None:
    (command,) = (each for each in planned("unit") if "-m pytest" in each)

    assert command.endswith("-m 'not cluster'")


def first(commands: list[str], command: str) -> int:
    return next(n for n, each in enumerate(commands) if each.startswith(command))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((), ""),
        (("QUICK=1",), "--quick"),
        (("PART=2/3", "DOCS=1"), "--part 2/3 --docs"),
    ],
)
def test_the_storage_tests_are_chosen_by_variables(words: tuple[str, ...], options: str) -> None:
    command = planned("conformance", *words)[-1]

    assert command.split() == [".venv/bin/python", "-m", "tests.e2e", *options.split()]
