"""What the strict EC2 tells whoever keeps the bytes of its volumes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from provisioner.sandbox.strict_ec2.client import StrictEc2, ask, disk_changes, leave_disks
from provisioner.sandbox.strict_ec2.disk_changes import HOLD_S
from tests.sandbox.lab import Lab, wait_until


class Follower:
    """Reads the changes; ``carry_out`` says by the next question that they are done."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.after = 0
        self.ask()  # from now on changes are kept

    def ask(self, wait_s: float = 0.0) -> list[tuple[str, ...]]:
        """What came after what was carried out; asking again brings the same."""
        return [self.seen(each) for each in disk_changes(self.endpoint, self.after, wait_s)[1]]

    def carry_out(self, wait_s: float = 0.0) -> list[tuple[str, ...]]:
        self.after, changes = disk_changes(self.endpoint, self.after, wait_s)
        disk_changes(self.endpoint, self.after)
        return [self.seen(each) for each in changes]

    @staticmethod
    def seen(change: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(v) for k, v in change.items() if k != "number" and v not in ("", 0))


@pytest.fixture
def follower(strict_ec2: StrictEc2) -> Iterator[Follower]:
    yield Follower(strict_ec2.endpoint)
    leave_disks(strict_ec2.endpoint)


def test_an_instance_has_a_disk_from_attached_to_detaching(
    strict_lab: Lab, follower: Follower
) -> None:
    strict_lab.control(delays={"attach_s": 5, "detach_s": 5})
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.attach(volume, instance)
    assert follower.ask() == []

    strict_lab.control(advance_s=5)
    assert strict_lab.attachment_state(volume) == "attached"
    assert follower.carry_out() == [("attached", volume, instance, "/dev/xvdba", "10")]

    strict_lab.detach(volume)
    assert strict_lab.attachment_state(volume) == "detaching"
    assert follower.carry_out() == [("detached", volume, instance)]
    strict_lab.control(advance_s=5)
    assert follower.carry_out() == []


def test_a_busy_volume_stays_where_it_is_until_it_is_forced(
    strict_lab: Lab, follower: Follower
) -> None:
    strict_lab.control(stuck_detaching=1)
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.attach(volume, instance)
    strict_lab.detach(volume)
    assert [what for what, *_ in follower.carry_out()] == ["attached"]

    strict_lab.detach(volume, Force=True)
    assert follower.carry_out() == [("detached", volume, instance)]


def test_a_terminated_instance_loses_its_volumes(strict_lab: Lab, follower: Follower) -> None:
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.attach(volume, instance)
    follower.carry_out()

    strict_lab.ec2.terminate_instances(InstanceIds=[instance])

    assert ("detached", volume, instance) in follower.carry_out()


def test_an_instance_sees_a_new_size_once_the_modification_is_optimizing(
    strict_lab: Lab, follower: Follower
) -> None:
    strict_lab.control(delays={"modify_s": 5, "optimize_s": 60, "modified_shown_after_s": 30})
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.modify(volume, Size=20)
    assert follower.carry_out() == []

    strict_lab.control(advance_s=5)
    assert follower.carry_out() == [("resized", volume, "20")]
    assert strict_lab.look(volume)["Size"] == 10
    strict_lab.attach(volume, instance)
    assert follower.carry_out() == [("attached", volume, instance, "/dev/xvdba", "20")]


def test_the_sources_of_volumes_come_in_order(strict_lab: Lab, follower: Follower) -> None:
    volume = strict_lab.volume()
    with ThreadPoolExecutor(1) as pool:  # each waits until it is carried out
        taken = pool.submit(strict_lab.snapshot, volume)
        wait_until(lambda: follower.carry_out() != [])
        snapshot = taken.result()
        restored = strict_lab.create(SnapshotId=snapshot)["VolumeId"]
        copying = pool.submit(strict_lab.copy, volume)
        wait_until(lambda: len(follower.ask()) == 2)
        changes = follower.carry_out()
        copied = copying.result()
    strict_lab.ec2.delete_snapshot(SnapshotId=snapshot)
    strict_lab.ec2.delete_volume(VolumeId=restored)

    assert changes == [("made", restored, snapshot), ("made", copied, volume)]
    assert follower.carry_out() == [("deleted", snapshot), ("deleted", restored)]


def test_a_snapshot_is_answered_once_its_moment_is_held_fast(
    strict_lab: Lab, follower: Follower
) -> None:
    volume = strict_lab.volume()
    with ThreadPoolExecutor(1) as pool:
        answered = threading.Event()
        taken = pool.submit(strict_lab.snapshot, volume)
        taken.add_done_callback(lambda _: answered.set())
        assert [what for what, *_ in follower.ask(wait_s=10)] == ["snapshot"]
        assert follower.ask() != []
        assert not answered.wait(0.2)

        [(_, snapshot, source)] = follower.carry_out()

        assert taken.result(timeout=10) == snapshot
    assert source == volume


def test_without_a_follower_nothing_is_kept_and_nothing_waits(
    strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    began_s = time.monotonic()
    strict_lab.snapshot(strict_lab.volume())

    assert time.monotonic() - began_s < HOLD_S
    assert Follower(strict_ec2.endpoint).ask() == []
    leave_disks(strict_ec2.endpoint)
    began_s = time.monotonic()
    strict_lab.snapshot(strict_lab.volume())
    assert time.monotonic() - began_s < HOLD_S


def test_a_long_question_is_answered_when_something_becomes_due(
    strict_lab: Lab, follower: Follower
) -> None:
    volume, instance = strict_lab.volume(), strict_lab.instance()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(follower.ask, 30.0)
        strict_lab.control(delays={"attach_s": 0.3})
        began_s = time.monotonic()
        strict_lab.attach(volume, instance)

        # Nobody else asks: the wait itself carries out what is due.
        assert [what for what, *_ in waiting.result(timeout=20)] == ["attached"]
        assert 0.3 <= time.monotonic() - began_s < 10


def test_a_long_question_that_nothing_answers_ends(follower: Follower) -> None:
    began_s = time.monotonic()

    assert follower.ask(wait_s=0.2) == []
    assert time.monotonic() - began_s >= 0.2


def test_a_reset_is_told(strict_ec2: StrictEc2, follower: Follower) -> None:
    strict_ec2.reset()

    assert follower.carry_out() == [("reset",)]


def test_a_question_that_cannot_be_read_is_refused(strict_ec2: StrictEc2) -> None:
    status, reply = ask(strict_ec2.endpoint, "/_disks?after=yesterday")

    assert status == 400
    assert "yesterday" in json.loads(reply)["error"]


def test_a_question_that_still_waits_when_its_follower_leaves_makes_it_follow_no_more(
    strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    follower = Follower(strict_ec2.endpoint)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(follower.ask, 20.0)
        time.sleep(0.3)  # nothing tells from outside that the question has come
        leave_disks(strict_ec2.endpoint)
        assert waiting.result(timeout=5) == []

    strict_lab.volume()
    assert disk_changes(strict_ec2.endpoint, 0)[1] == []
    leave_disks(strict_ec2.endpoint)
