"""What each example of values changes in what the chart renders, written down.

    python -m tests.chart.snapshots

writes the files again; read the difference before you commit it.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import yaml

from tests.chart.helm import rendered
from tests.documents import DOCS

EXAMPLES = DOCS / "examples/chart"
SNAPSHOTS = Path(__file__).parent / "rendered"
# As a cluster that has all that an example names.
KINDS = (
    *("snapshot.storage.k8s.io/v1", "cert-manager.io/v1"),
    *("monitoring.coreos.com/v1", "monitoring.coreos.com/v1/ServiceMonitor"),
)


def text(objects: list[dict[str, object]]) -> list[str]:
    """The objects as lines, in one order."""
    return yaml.safe_dump_all(objects, sort_keys=True, width=1000).splitlines(keepends=True)


def change(example: Path) -> str:
    """What the values of an example change, as a diff."""
    values = yaml.safe_load(example.read_text())
    before, after = rendered(kinds=KINDS), rendered(values, kinds=KINDS)
    lines = difflib.unified_diff(text(before), text(after), "default", example.name, n=2)
    # Without the numbers of lines, which whatever comes before would change.
    return "".join("@@\n" if each.startswith("@@ ") else each for each in lines)


def main() -> None:
    """Write all of them."""
    SNAPSHOTS.mkdir(exist_ok=True)
    for example in sorted(EXAMPLES.glob("*.yaml")):
        (SNAPSHOTS / f"{example.stem}.diff").write_text(change(example))


if __name__ == "__main__":
    main()
