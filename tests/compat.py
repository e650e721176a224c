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

from provisioner.sandbox.binaries import KUBELET_VARIABLE, ensure_binaries, version_of
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import CONTROL_PLANE, REAL_NODE, minor_of, release
from provisioner.sandbox.real_node import requirements

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
        kubelet: the kubelet's; "" if none ran.
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
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def counted(report: Path) -> dict[str, int]:
    """Return how many tests, failures, errors and skipped ones pytest's report has.

    Raises:
        SandboxError: there is no report, or no test ran.
    """
    try:
        suites = list(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 - our own
    except (OSError, ET.ParseError) as problem:
        raise SandboxError(f"pytest ended without a report: {problem}") from problem
    tests = {
        name: sum(int(suite.get(name, "0")) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    if tests["tests"] <= tests["skipped"]:
        raise SandboxError(f"no test ran: {tests['skipped']} were skipped, pytest says why")
    return tests


def versions(why: str) -> tuple[str, str]:
    """Return the API server's version and the kubelet's, "" where no kubelet can run.

    Args:
        why: why no real node can run here; "" if one can.

    Raises:
        SandboxError: the programs cannot be had, or another kubelet is wanted where none can run.
    """
    folder = ensure_binaries(programs=CONTROL_PLANE if why else (*CONTROL_PLANE, *REAL_NODE))
    kubernetes = _said("kube-apiserver", folder)
    if not why:
        return kubernetes, _said("kubelet", folder)
    wanted = os.environ.get(KUBELET_VARIABLE)
    if wanted and release(wanted) != kubernetes:
        raise SandboxError(f"kubelet {wanted} cannot be tested on this machine: {why}")
    return kubernetes, ""


def _said(name: str, folder: Path) -> str:
    version = version_of(name, folder / name)
    if version is None:
        raise SandboxError(f"{folder / name} does not say which version it is")
    return version


def run() -> int:
    """Run it and print the row; the exit status is that of a test.

    Raises:
        SandboxError: there is no row; the text says why.
    """
    kubernetes, kubelet = versions(requirements.missing())
    files = chosen(minor_of(kubernetes), nodes_only=kubelet not in {"", kubernetes})
    command = [sys.executable, "-m", "provisioner.cli", "sandbox", "demo"]
    demo = subprocess.run(command, check=False)
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        options = ["--dist", "loadfile", "-n", os.environ.get("WORKERS", "2")]
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *files]
        status = subprocess.run(command, check=False).returncode
        tests = counted(report)
    today = dt.datetime.now(dt.UTC).date()
    complete = demo.returncode == 0
    print(row(kubernetes, kubelet, demo=complete, tests=tests, today=today))  # noqa: T201
    return status or demo.returncode


def main() -> int:
    """Run it; the exit status is 1 if there is no row."""
    try:
        return run()
    except SandboxError as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
