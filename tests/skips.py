"""Whether a test may be skipped: anywhere for want of root or a program, but not where CI sees to both.

``.ci/run`` sets the variable where it can have real nodes: as root, with loop devices.
"""

import os
import re

import pytest

VARIABLE = "EBS_PROVISIONER_TESTS_MAY_NOT_SKIP"
_OF_THE_MACHINE = (
    # Containers without it are common, and the kernel asks for it.
    r"growing a mounted ext4 needs CAP_SYS_RESOURCE",
    r"a real node needs Linux",
    r"a real node needs cgroups, which are not mounted here",
    r"control groups of version 2 that control something",
    # Building them takes longer than all tests.
    r"Kubernetes' storage tests are not built",
    # Debian has released a newer one since: `make image-lock`, and a commit of it.
    r"the image cannot be built: cannot fetch Debian package",
)
"""Reasons that nothing that can be installed does away with."""


def forbid(report: pytest.TestReport) -> None:
    """Make a failure of a skipped test that should have run."""
    if not os.environ.get(VARIABLE) or not report.skipped or hasattr(report, "wasxfail"):
        return
    why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not any(re.search(reason, why) for reason in _OF_THE_MACHINE):
        report.outcome = "failed"
        report.longrepr = f"{why}; it may not be skipped where {VARIABLE} is set, as .ci/run does"
