"""Four hours of a small cluster in virtual time, with all troubles of the day of ``make bench``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.day import report
from tests.day.report import Found

ROOT = Path(__file__).parents[2]
VOLUMES, HOURS = 300, 4
_TIMEOUT_S = 300.0


def lived(volumes: int = VOLUMES, hours: int = HOURS, troubles: str = "day") -> Found:
    """In a process of its own: its clocks are the day's."""
    command = [sys.executable, "-m", "tests.day", f"--volumes={volumes}", f"--hours={hours}"]
    command += [f"--troubles={troubles}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=_TIMEOUT_S, check=False)
    assert run.returncode == 0, run.stderr.decode()
    found: Found = json.loads(run.stdout)
    return found


def test_a_day_of_troubles_loses_doubles_and_leaks_nothing_and_ends_as_it_began() -> None:
    found = lived()

    assert report.missed(found) == []
    # Or it was too quiet a day to show anything.
    assert len(found["hours"]) == HOURS
    assert found["leaders"] == 5  # three were killed, one lost its leases in the outage
    assert found["ended"] > VOLUMES * HOURS * 0.05 * 0.6
    assert found["replaced"] >= 2
    assert sum(found["relists"].values()) >= 5
    unheard = ("CreateVolume lost", "CreateVolume hung", "AttachVolume lost", "DeleteVolume lost")
    assert any(each in found["failed"] for each in unheard)


def test_a_leader_that_is_left_alone_for_two_days_holds_nothing_of_what_has_gone() -> None:
    found = lived(volumes=100, hours=48, troubles="none")

    then, last = found["hours"][11], found["hours"][-1]
    assert report.missed(found) == []
    assert found["leaders"] == 1
    assert found["ended"] > 200
    # What it holds of 190 claims that were made and deleted in between.
    assert last["held_objects"] <= then["held_objects"]
    # What comes once, as the time of each renewal of a lease, takes no place of what is common.
    assert last["pushed_out"] == 0
