"""What a node plugin with 25 real volumes weighs; ``make bench`` shows how soon it mounts one."""

import sys
import tempfile

import pytest

from tests.node import privileged

MOST_MIB = 65
LEAST_MIB = 20  # of Python with grpc alone: less is not of the plugin


@pytest.mark.skipif(privileged.lacks() != "", reason=privileged.lacks())
def test_25_volumes_that_are_measured_fit_into_65_mib():
    with tempfile.TemporaryDirectory(prefix="weight-") as folder:  # short, for sockets
        run = privileged.run("weight_world", folder)

    sys.stdout.write(run.stderr[-10_000:])  # for whoever reads of a failure
    assert run.returncode == 0
    assert LEAST_MIB < float(run.stdout) < MOST_MIB
