"""Which contents may have a snapshot that another controller has taken."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec

from provisioner.controller.snapshotting import content_rules
from provisioner.controller.snapshotting.attempts import Attempts
from provisioner.controller.snapshotting.content_rules import Attempt
from provisioner.model.leadership import Epoch
from provisioner.model.volume_snapshot import VolumeSnapshotContent
from tests.builders import DRIVER
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.snapshot_builders import a_content, a_content_status, a_snapshot

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def made(name: str, *, ago: timedelta) -> VolumeSnapshotContent:
    content = a_content(name)
    metadata = msgspec.structs.replace(content.metadata, creation_timestamp=NOW - ago)
    return msgspec.structs.replace(content, metadata=metadata)


def no_owner(_: VolumeSnapshotContent) -> None:
    """Its VolumeSnapshot is not known."""


def test_nothing_is_proven_of_contents_that_are_there_whatever_their_clocks_say():
    old, early = made("old", ago=timedelta(hours=1)), made("early", ago=timedelta(hours=-1))
    later = made("later", ago=timedelta(hours=-2))

    async def story(_: Clock) -> None:
        await asyncio.sleep(100)
        attempts = Attempts(no_owner, now=lambda: NOW)
        attempts.take_over(None, [old, early], NOW)
        await asyncio.sleep(20)
        assert attempts.of(old) == attempts.of(early) == Attempt(looking_since_s=100.0)
        assert attempts.of(later) == Attempt()
        attempts.forget(early.uid)
        assert attempts.of(early) == Attempt()

    in_virtual_time(story)


def test_a_content_of_our_own_epoch_is_in_no_doubt():
    before, within = made("before", ago=timedelta(hours=2)), made("within", ago=timedelta())

    async def story(_: Clock) -> None:
        attempts = Attempts(no_owner, now=lambda: NOW)
        attempts.take_over(Epoch.after([NOW - timedelta(hours=1)], ()), [before, within], NOW)
        assert attempts.of(before).looking_since_s is not None
        assert attempts.of(within) == Attempt()

    in_virtual_time(story)


def test_one_look_up_decides_where_an_earlier_content_may_have_had_a_snapshot_taken():
    async def story(_: Clock) -> None:
        again, first = a_content("again"), a_content("first", status=a_content_status())
        attempts = Attempts(lambda _: a_snapshot(ready=True), now=lambda: NOW)
        found = attempts.of(again)
        assert content_rules.decide(again, found, driver=DRIVER) == content_rules.LookUp()
        after = content_rules.after_look_up(found, again, [], 0.0)
        assert content_rules.decide(again, after, driver=DRIVER) == content_rules.Take()
        assert attempts.of(first) == Attempt()  # it names its snapshot

    in_virtual_time(story)
