"""``make compat KUBERNETES=1.34``: the demo and chosen cluster tests on one Kubernetes; a table row.

``SANDBOX_KUBERNETES`` and ``SANDBOX_KUBELET`` say which. The rows are in docs/kubernetes-versions.md.
"""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from provisioner.sandbox.binaries import ensure_binaries, version_of
from provisioner.sandbox.programs import CONTROL_PLANE, REAL_NODE, minor_of

CHANGED_BY = 34
"""The first minor that serves VolumeAttributesClasses."""

SINCE = {
    "test_control_plane": 33,
    "test_kube_contract": 33,
    "test_manifests": 33,
    "test_node_manifests": 33,
    "test_webhook_manifests": 33,
    "test_chart": 33,
    "test_attachment_limit": 33,
    "test_grow": 33,
    "test_clone": 33,
    "test_restore": 33,
    "test_late_kinds": 33,
    "test_optional_kinds": 33,
    "test_initialization": 33,
    "test_webhook": 33,
    "test_change": CHANGED_BY,
    "test_change_refused": CHANGED_BY,
    "test_real_node_stories": 33,
    "test_real_node_services": 33,
}
"""Files that meet what differs between versions, and the first minor that has what they need."""

OF_NODES = "test_real_node_"
"""With an older kubelet, only these are run: nothing else has a kubelet."""


def chosen(minor: int, *, nodes_only: bool = False) -> list[str]:
    """Return the files of tests/cluster to run on Kubernetes 1.``minor``."""
    names = [name for name, since in SINCE.items() if since <= minor]
    return [
        f"tests/cluster/{name}.py" for name in names if not nodes_only or name.startswith(OF_NODES)
    ]


def row(kubernetes: str, kubelet: str, *, demo: bool, tests: dict[str, int], today: dt.date) -> str:
    """Return a row of the page's table.

    Args:
        kubernetes: the API server's version, as it says itself.
        kubelet: the kubelet's.
        demo: whether it was complete.
        tests: how many tests, failures, errors and skipped ones there were.
        today: the date.
    """
    bad = tests["failures"] + tests["errors"]
    ran = tests["tests"] - tests["skipped"]
    skipped = f", {tests['skipped']} skipped" if tests["skipped"] else ""
    cells = (
        kubernetes.removeprefix("v"),
        kubelet.removeprefix("v"),
        "complete" if demo else "**not complete**",
        f"{ran - bad} of {ran} passed{skipped}",
        today.isoformat(),
    )
    return f"| {' | '.join(cells)} |"


def _counted(report: Path) -> dict[str, int]:
    suites = list(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 - our own
    return {
        name: sum(int(suite.get(name, "0")) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }


def main() -> int:
    """Run it; the exit status is that of a test."""
    folder = ensure_binaries(programs=(*CONTROL_PLANE, *REAL_NODE))
    versions = [version_of(name, folder / name) or "?" for name in ("kube-apiserver", "kubelet")]
    files = chosen(minor_of(versions[0]), nodes_only=versions[0] != versions[1])
    command = [sys.executable, "-m", "provisioner.cli", "sandbox", "demo"]
    demo = subprocess.run(command, check=False)
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        options = ["--dist", "loadfile", "-n", os.environ.get("WORKERS", "2")]
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *files]
        status = subprocess.run(command, check=False).returncode
        tests = _counted(report)
    today = dt.datetime.now(dt.UTC).date()
    print(row(*versions, demo=demo.returncode == 0, tests=tests, today=today))  # noqa: T201
    return status or demo.returncode


if __name__ == "__main__":
    sys.exit(main())
