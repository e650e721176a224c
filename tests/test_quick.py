"""Which tests ``make quick`` takes for a change."""

import subprocess
from pathlib import Path

import pytest

from tests import quick

HOUSE = {
    "provisioner/model/noun.py": "",
    "provisioner/story/rules.py": "from provisioner.model import noun\n",
    "provisioner/story/flow.py": "from provisioner.story.rules import (\n    decide,\n)\n",
    "provisioner/cli.py": "import provisioner.story.flow\n",
    "provisioner/far.py": "from provisioner import cli\n",
    "webhook/review.py": "import provisioner.model.noun\n",
    "tests/hands.py": "from provisioner.story import flow\n",
    "tests/conftest.py": "",
    "tests/model/test_noun.py": "from provisioner.model import noun\n",
    "tests/story/conftest.py": "",
    "tests/story/test_rules.py": "from provisioner.story import rules\n",
    "tests/story/test_beside.py": "",
    "tests/test_cli.py": "RUN = ('-m', 'provisioner.cli')\n",
    "tests/test_flow.py": "from tests.hands import flow\n",
    "tests/test_far.py": "from provisioner import far\n",
    "tests/test_docs.py": 'README = "README.md"\nDOCS = ROOT / "docs"\n',
    "tests/cluster/test_all.py": "from provisioner.story import flow\n",
}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name, text in HOUSE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # What is farther than three imports away is left to `make unit`.
        ("provisioner/model/noun.py", ["model/test_noun.py", "story/test_rules.py"]),
        (
            "provisioner/story/rules.py",
            ["story/test_rules.py", "story/test_beside.py", "test_cli.py", "test_flow.py"],
        ),
        (
            "provisioner/story/flow.py",
            [
                *("story/test_beside.py", "story/test_rules.py", "test_cli.py", "test_flow.py"),
                "test_far.py",
            ],
        ),
        # Nothing imports it any more, so it is found by its folder alone.
        ("provisioner/story/gone.py", ["story/test_beside.py", "story/test_rules.py"]),
        ("provisioner/cli.py", ["test_cli.py", "test_far.py"]),
        ("tests/hands.py", ["test_flow.py"]),
        ("tests/story/test_beside.py", ["story/test_beside.py"]),
        ("tests/story/conftest.py", ["story/test_beside.py", "story/test_rules.py"]),
        ("docs/volumes.md", ["test_docs.py"]),
        ("README.md", ["test_docs.py"]),
        ("pictures/plan.svg", []),
    ],
)
def test_the_tests_nearest_to_a_change_come_first(house: Path, change: str, expected: list[str]):
    found = quick.nearest({Path(change)}, house)

    assert [path.relative_to("tests").as_posix() for path in found] == expected


def test_a_test_is_as_far_as_from_the_nearest_of_all_changes(house):
    found = quick.nearest({Path("provisioner/story/gone.py"), Path("provisioner/cli.py")}, house)

    expected = ["test_cli.py", "test_beside.py", "test_rules.py", "test_far.py"]
    assert [path.name for path in found] == expected


def test_no_test_needs_a_control_plane(house):
    every = {Path(name) for name in HOUSE}

    assert not [path for path in quick.nearest(every, house) if "cluster" in path.parts]


def test_every_test_of_ours_is_found_by_the_module_that_it_is_about():
    found = quick.nearest({Path("provisioner/controller/attaching/flow.py")})

    assert Path("tests/controller/attaching/test_flow.py") in found[:5]


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def branch(tmp_path: Path) -> Path:
    """A branch that has left main, whose main has gone on."""
    git(tmp_path, "init", "--initial-branch", "main")
    for name in ("old.py", "committed.py", "edited.py", "gone.py"):
        (tmp_path / name).write_text("1\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "one")
    git(tmp_path, "switch", "--create", "mine")
    (tmp_path / "committed.py").write_text("2\n")
    git(tmp_path, "commit", "--all", "--message", "two")
    git(tmp_path, "switch", "main")
    (tmp_path / "old.py").write_text("2\n")
    git(tmp_path, "commit", "--all", "--message", "three")
    git(tmp_path, "switch", "mine")
    return tmp_path


def names(paths: set[Path]) -> list[str]:
    return sorted(path.name for path in paths)


def test_what_a_branch_has_changed_counts_committed_or_not(branch):
    (branch / "edited.py").write_text("2\n")
    (branch / "new.py").touch()
    (branch / "ignored.py").touch()
    (branch / "gone.py").unlink()

    expected = ["committed.py", "edited.py", "gone.py", "new.py"]
    assert names(quick.changed(branch)) == expected


def test_on_main_what_is_not_committed_counts(branch):
    git(branch, "switch", "main")
    (branch / "edited.py").write_text("2\n")

    assert names(quick.changed(branch)) == ["edited.py"]


def test_where_there_is_no_main_what_is_not_committed_counts(branch):
    git(branch, "branch", "--delete", "--force", "main")
    (branch / "edited.py").write_text("2\n")

    assert names(quick.changed(branch)) == ["edited.py"]


def test_the_farthest_are_left_to_the_whole_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tests = [Path(f"tests/no_such_{number}.py") for number in range(quick.MOST_FILES + 7)]
    monkeypatch.setattr(quick, "nearest", lambda _changes: tests)
    monkeypatch.setattr(quick, "pytest_for", lambda now: ["echo", *map(str, now)])

    assert quick.main(["provisioner/cli.py"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert [Path(name) for name in said[1].split()] == tests[: quick.MOST_FILES]
    assert "the 7 test files farthest away were left out" in said[2]


def test_the_exit_code_is_that_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "pytest_for", lambda _now: ["false"])

    assert quick.main(["provisioner/cli.py"]) == 1


@pytest.mark.parametrize(("files", "options"), [(1, []), (quick.ALONE + 1, ["-n", "2"])])
def test_worker_processes_are_started_where_they_save_time(files: int, options: list[str]) -> None:
    command = quick.pytest_for([Path("tests/test_cli.py")] * files)

    assert command[command.index("not cluster") + 1 :][: len(options)] == options
    assert ("-n" in command) is bool(options)
