"""What ``make`` would run, in which order; nothing of it is carried out."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RIGHTS = "tests/cluster/test_rights.py"
BINARIES = ".venv/bin/ebs-provisioner sandbox binaries"


def printed_by(*words: str) -> str:
    done = subprocess.run(
        ["make", "--file", "Makefile", "--no-print-directory", *words],
        cwd=ROOT,
        # What the make that runs the tests was given would count here too.
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def planned(*words: str) -> list[str]:
    return printed_by("--dry-run", *words).splitlines()


@pytest.mark.parametrize(
    ("target", "build", "command"),
    [
        ("test", f"{BINARIES} --tests", ".venv/bin/python -m pytest"),
        ("bench", BINARIES, ".venv/bin/python -m tests.bench"),
        ("compat", f"{BINARIES} --tests", "WORKERS=2 .venv/bin/python -m tests.compat"),
        ("conformance", f"{BINARIES} --conformance", ".venv/bin/python -m tests.e2e"),
    ],
)
def test_the_programs_are_built_before_what_needs_them(
    target: str, build: str, command: str
) -> None:
    # Within a test they would take minutes, longer than pytest's watchdog waits for one.
    commands = planned(target)

    assert commands.index(build) < first(commands, command)


def test_the_processes_of_compat_are_as_many_as_are_asked_for() -> None:
    assert planned("compat", "WORKERS=3")[-1] == "WORKERS=3 .venv/bin/python -m tests.compat"


@pytest.mark.parametrize(
    ("words", "printed"),
    [(["KUBERNETES=1.35", "KUBELET=1.34"], ["1.35", "1.34"]), (["KUBERNETES=1.35"], ["1.35"])],
)
def test_the_kubernetes_that_is_named_is_the_sandboxs(words: list[str], printed: list[str]) -> None:
    rule = "show: ; @echo $$SANDBOX_KUBERNETES $$SANDBOX_KUBELET"

    assert printed_by(f"--eval={rule}", "show", *words).split() == printed


def test_the_rights_are_judged_by_what_all_other_tests_have_used() -> None:
    commands = planned("test")

    others, rights = (each for each in commands if "-m pytest" in each and "--used" in each)

    # Joined to its option: else a worker that replaces a dead one takes the folder, which is there by
    # then, for the tests to run, and does not find the conftest.py that knows the option.
    folder = re.search(r"--used-rights=(\S+)", others)
    assert folder is not None
    assert f"--ignore {RIGHTS}" in others
    assert rights.endswith(f"--used-rights={folder[1]} {RIGHTS}")
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


class Clone:
    """A fresh clone; its Python only writes down what it was asked for, and its pip may fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
        self.python = folder / "python"
        self.python.write_text(
            f"""#!/bin/sh
echo "$@" >> {self.log}
case "$*" in
"-m venv .venv") mkdir -p .venv/bin && cp {self.python} .venv/bin/python &&
  printf '#!/bin/sh\\n' > .venv/bin/ebs-provisioner && chmod +x .venv/bin/ebs-provisioner &&
  [ ! -e {folder}/killed ] && cp .venv/bin/python .venv/bin/pip ;;
*"pip install"*) [ ! -e {folder}/offline ] ;;
esac
"""
        )
        self.python.chmod(0o755)

    def make(self, target: str) -> tuple[int, list[str]]:
        """Make ``target``; the exit status, and what Python was asked for."""
        self.log.write_text("")
        status = subprocess.run(
            ["make", "--no-print-directory", f"PYTHON={self.python}", target],
            cwd=self.folder,
            capture_output=True,
            check=False,
            timeout=60,
        ).returncode
        asked = self.log.read_text().splitlines()
        return status, [re.sub(r".*--editable (\S+)$", r"\1", each) for each in asked]

    def change_what_is_installed(self) -> None:
        # make compares times: what was installed is made older than what says what to install.
        now = time.time()
        for stamp in (self.folder / ".venv").glob(".set-up*"):
            os.utime(stamp, (now - 20, now - 20))
        os.utime(self.folder / "pyproject.toml", (now - 10, now - 10))
        os.utime(self.folder / "constraints.txt", (now - 10, now - 10))


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


VENV, DEMO, ALL = "-m venv .venv", ".[sandbox,node]", ".[sandbox,node,dev]"


def test_the_demo_installs_only_what_it_needs_and_only_once(clone: Clone) -> None:
    assert clone.make("demo") == (0, [VENV, DEMO])
    assert clone.make("demo") == (0, [])


def test_the_environment_of_the_demo_grows_into_that_of_the_tests(clone: Clone) -> None:
    clone.make("demo")

    assert clone.make("setup") == (0, [ALL])
    assert clone.make("setup") == (0, [])


def test_the_demo_installs_nothing_where_all_is_installed(clone: Clone) -> None:
    assert clone.make("setup") == (0, [VENV, ALL])
    assert clone.make("demo") == (0, [])


@pytest.mark.parametrize(
    ("target", "command"), [("image", "-m image"), ("image-lock", "-m image --lock")]
)
def test_the_image_needs_no_linters_and_plotters_either(
    target: str, command: str, clone: Clone
) -> None:
    assert clone.make(target) == (0, [VENV, DEMO, command])
    assert clone.make("demo") == (0, [])


def test_what_is_installed_for_the_demo_after_a_change_is_not_taken_for_all(clone: Clone) -> None:
    clone.make("setup")
    clone.change_what_is_installed()

    assert clone.make("demo") == (0, [DEMO])
    assert clone.make("setup") == (0, [ALL])


def test_packages_that_could_not_be_installed_are_installed_the_next_time(clone: Clone) -> None:
    (clone.folder / "offline").touch()
    assert clone.make("demo") == (2, [VENV, DEMO])
    (clone.folder / "offline").unlink()

    assert clone.make("demo") == (0, [DEMO])


def test_an_environment_whose_making_was_interrupted_is_completed(clone: Clone) -> None:
    (clone.folder / "killed").touch()
    assert clone.make("demo") == (2, [VENV])
    (clone.folder / "killed").unlink()

    assert clone.make("demo") == (0, [VENV, DEMO])


def test_both_environments_respect_the_constraints() -> None:
    text = (ROOT / "Makefile").read_text()

    assert text.count("pip install") == 1
    assert "--constraint constraints.txt" in text
