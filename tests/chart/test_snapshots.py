"""The examples of values change what they changed when somebody last read it."""

from pathlib import Path

import pytest

from tests.chart.helm import built
from tests.chart.snapshots import EXAMPLES, SNAPSHOTS, change

pytestmark = built


def test_every_example_has_its_snapshot_and_no_other():
    assert {each.stem for each in EXAMPLES.glob("*.yaml")} == {
        each.stem for each in SNAPSHOTS.iterdir()
    }


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_renders_as_it_was_read(example: Path):
    wanted = (SNAPSHOTS / f"{example.stem}.diff").read_text()

    assert change(example) == wanted, "python -m tests.chart.snapshots, and read the difference"
