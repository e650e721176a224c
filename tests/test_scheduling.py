"""Which worker runs which file next."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import scheduling

ROOT = Path(__file__).parents[1]
SHORT, LONG, LONGER = (
    *("tests/cluster/test_up.py", "tests/cluster/test_kill.py"),
    "tests/cluster/test_crash_walk.py",
)
# The second one has the name of a long story.
UNIT, UNIT_TOO = "tests/ec2/test_rate_option.py", "tests/controller/nodes/test_dead_node.py"


def order(worker: str, *files: str) -> list[str]:
    left, begun = list(files), []
    while left:
        begun.append(scheduling.next_file(left, worker))
        left.remove(begun[-1])
    return begun


def test_one_worker_begins_with_what_needs_no_control_plane():
    assert order("gw0", SHORT, UNIT, LONG, UNIT_TOO) == [UNIT, UNIT_TOO, LONG, SHORT]


def test_the_others_begin_with_the_longest_stories():
    assert order("gw1", UNIT, SHORT, LONG, UNIT_TOO, LONGER) == [
        *(LONGER, LONG, SHORT, UNIT, UNIT_TOO),
    ]


def test_the_longest_files_exist_and_are_named_once():
    names = {path.stem for path in (ROOT / "tests/cluster").glob("test_*.py")}

    assert set(scheduling.LONGEST) <= names
    assert len(set(scheduling.LONGEST)) == len(scheduling.LONGEST)


def test_xdist_asks_for_it(tmp_path: Path):
    """In a house of two files; each worker says what it ran."""
    for name in ("cluster/test_waits.py", "test_computes.py"):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def test_it(worker_id): print('ran', {name!r}, 'on', worker_id)\n")
    hook = "from tests.scheduling import scheduler as pytest_xdist_make_scheduler\n"
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{hook}")

    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-rP"),
            *("--import-mode=importlib", "--rootdir", str(tmp_path), "tests"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "ran test_computes.py on gw0\n" in done.stdout, done.stdout
    assert "ran cluster/test_waits.py on gw1\n" in done.stdout


def report(file: str, worker: str, start: float, stop: float) -> pytest.TestReport:
    made = pytest.TestReport(
        f"{file}::test", (file, 1, "test"), {}, "passed", None, "call", start=start, stop=stop
    )
    vars(made)["node"] = SimpleNamespace(gateway=SimpleNamespace(id=worker))  # as xdist does
    return made


def test_it_tells_how_long_files_took_and_when_each_worker_ended():
    reports = [
        report(SHORT, "gw1", 100.0, 104.0),
        report(LONG, "gw0", 103.0, 110.0),
        report(LONG, "gw0", 110.0, 131.5),
        report(LONGER, "gw1", 104.0, 160.0),
    ]

    assert list(scheduling.timeline(reports, files=2)) == [
        f"  56.0 s from    4.0 s on gw1: {LONGER}",
        f"  28.5 s from    3.0 s on gw0: {LONG}",
        "ended after 32 s gw0, 60 s gw1",
    ]


def test_it_tells_nothing_of_a_run_in_one_process():
    alone = report(SHORT, "gw0", 0.0, 1.0)
    del vars(alone)["node"]

    assert list(scheduling.timeline([alone])) == []
