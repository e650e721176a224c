"""What a node plugin with 25 real volumes weighs, and how long it takes to mount one."""

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.node import privileged

MOST_MIB = 65
MOST_NEW_S = 2.0
MOST_EXISTING_S = 0.5


@pytest.fixture(scope="module")
def facts() -> Iterator[dict[str, Any]]:
    if why := privileged.lacks():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="weight-") as folder:  # short, for sockets
        run = privileged.run("weight_world", folder)
        sys.stdout.write(run.stderr[-10_000:])  # for whoever reads of a failure
        assert run.returncode == 0
        yield json.loads(run.stdout)


def test_25_volumes_fit_into_65_mib(facts: dict[str, Any]):
    assert facts["resident_mib"] < MOST_MIB


def test_all_are_measured(facts: dict[str, Any]):
    assert facts["measured"]
    assert facts["code"] == 0


def test_a_new_volume_is_soon_mounted(facts: dict[str, Any]):
    assert len(facts["new_s"]) == 25
    assert statistics.median(facts["new_s"]) <= MOST_NEW_S


def test_an_existing_volume_is_mounted_at_once(facts: dict[str, Any]):
    assert statistics.median(facts["existing_s"]) <= MOST_EXISTING_S
