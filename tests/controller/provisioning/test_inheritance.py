"""What a process before this one may have sent: never doubled by a refusal, an age, or a restart."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta

import pytest

from provisioner.controller.claims.zone_annotations import AFTER_CONFLICT
from provisioner.controller.provisioning.creation_rules import TOKEN_LIFE_S
from provisioner.model.claim import SELECTED_NODE, UNKNOWN_ZONE, Claim
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import WHEN_WOKEN
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.names import PINNED_ZONE, VOLUME_NAME
from tests.builders import (
    JUST_NOW,
    UID,
    VOLUME,
    ZONE,
    a_claim,
    a_persistent_volume,
    a_volume,
    an_ec2_error,
)
from tests.controller.claims.test_zone_annotations import annotations_sent, zones_asked
from tests.controller.provisioning.test_flow import CLAIM, PINNED, World, annotated
from tests.controller.services import seconds
from tests.ec2.virtual_time import Clock, in_virtual_time

MADE_BEFORE = a_volume(zone=ZONE, tags={VOLUME_NAME: f"pvc-{UID}"})
DENIED = an_ec2_error(Reason.PERMISSION_DENIED)
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
DOUBTED = annotated(CLAIM, "8", **{PINNED_ZONE: CLAIM.pin(UNKNOWN_ZONE)})


def saved_volume(world: World) -> str:
    """The volume that the persistent volume names, which was saved last."""
    verb, kind, body = world.kube.sent[-1]
    assert (verb, kind) == ("create", "persistentvolumes")
    return str(body["spec"]["csi"]["volumeHandle"])


async def for_a_while(world: World, within_s: float) -> None:
    """Reconcile as the queue does, until nothing is left to do."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while True:
                try:
                    wait_s = seconds(await world.provisioner.reconcile(UID))
                except StorageError:
                    wait_s = 1.0
                if wait_s is None:
                    return
                await asyncio.sleep(wait_s)


# -- another controller's


def test_the_doubt_is_written_before_the_first_look_and_outlives_one_that_ec2_denied():
    async def story(_: Clock) -> World:
        first = World(CLAIM)
        first.provisioner.takeover.begin([CLAIM], from_stranger=True)
        first.ec2.failure = DENIED
        first.kube.answers = [DOUBTED]
        with pytest.raises(StorageError):
            await first.provisioner.reconcile(UID)
        assert annotations_sent(first) == [{PINNED_ZONE: CLAIM.pin(UNKNOWN_ZONE)}]

        claim = annotated(DOUBTED, "9", **{SELECTED_NODE: "node-2"})
        second = World(claim)
        second.provisioner.takeover.begin([claim], from_stranger=False)
        second.ec2.shown = [MADE_BEFORE]
        second.kube.answers = [claim, a_persistent_volume()]
        await second.provisioner.reconcile(UID)
        return second

    world = in_virtual_time(story)

    assert zones_asked(world) == []
    assert saved_volume(world) == VOLUME


def test_nothing_is_looked_at_or_begun_while_the_doubt_cannot_be_written():
    async def story(_: Clock) -> World:
        world = World(CLAIM)
        world.provisioner.takeover.begin([CLAIM], from_stranger=True, ended_s_ago=CONSISTENCY_S)
        world.kube.answers = [KubeError(Reason.CONFLICT, "the claim has changed")]
        assert await world.provisioner.reconcile(UID) == AFTER_CONFLICT
        return world

    world = in_virtual_time(story)

    assert zones_asked(world) == []
    assert len(world.kube.sent) == 1


def test_a_doubt_that_ec2_has_dispelled_ends_with_the_zone_that_is_chosen():
    async def story(_: Clock) -> World:
        world = World(CLAIM)
        world.provisioner.takeover.begin([CLAIM], from_stranger=True, ended_s_ago=CONSISTENCY_S)
        world.kube.answers = [
            *(DOUBTED, annotated(PINNED, "9"), a_persistent_volume()),
        ]
        world.ec2.answers = [a_volume()]
        await world.provisioner.reconcile(UID)
        return world

    world = in_virtual_time(story)

    zones = [sent[PINNED_ZONE] for sent in annotations_sent(world)]
    assert zones == [CLAIM.pin(UNKNOWN_ZONE), CLAIM.pin(ZONE)]
    assert zones_asked(world) == [ZONE]


def test_after_a_certain_refusal_nothing_is_searched_for_any_more():
    async def story(_: Clock) -> World:
        world = World(CLAIM)
        world.provisioner.takeover.begin([CLAIM], from_stranger=True, ended_s_ago=CONSISTENCY_S)
        world.kube.answers = [DOUBTED, annotated(PINNED, "9"), annotated(CLAIM, "10")]
        world.ec2.answers = [DENIED]
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(UID)

        world.ec2.failure = DENIED  # of a search
        world.kube.answers = [annotated(PINNED, "11"), a_persistent_volume()]
        world.ec2.answers = [a_volume()]
        await world.provisioner.reconcile(UID)
        return world

    assert zones_asked(in_virtual_time(story)) == [ZONE, ZONE]


def test_a_zone_that_one_of_ours_has_begun_in_since_is_kept_although_the_claim_is_older():
    async def story(_: Clock) -> World:
        # The leader before us searched for a minute, pinned the zone, sent the call, and died.
        claim = annotated(PINNED, "9", **{SELECTED_NODE: "node-2"})
        world = World(claim)
        world.provisioner.takeover.begin([claim], from_stranger=True, ended_s_ago=3600.0)
        world.ec2.shown = []  # EC2 does not show it yet
        world.kube.answers = [a_persistent_volume()]
        world.ec2.answers = [a_volume()]
        await world.provisioner.reconcile(UID)
        return world

    world = in_virtual_time(story)

    assert zones_asked(world) == [ZONE]
    assert annotations_sent(world) == []


# -- our own predecessor's

REFUSALS = [Reason.PERMISSION_DENIED, Reason.ZONE_OUT_OF_CAPACITY]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_says_nothing_of_what_the_process_before_us_has_sent(refusal: Reason):
    async def story(_: Clock) -> World:
        world = World(PINNED)
        world.provisioner.takeover.begin([PINNED], from_stranger=False)
        world.ec2.shown = [MADE_BEFORE]
        world.kube.answers = [a_persistent_volume()]
        world.ec2.answers = [an_ec2_error(refusal)]
        await for_a_while(world, 10)
        return world

    world = in_virtual_time(story)

    assert zones_asked(world) == [ZONE]
    assert annotations_sent(world) == []
    assert saved_volume(world) == VOLUME


@pytest.mark.parametrize("refusal", REFUSALS)
def test_only_when_ec2_has_shown_nothing_for_a_minute_is_its_zone_given_up(refusal: Reason):
    async def story(_: Clock) -> World:
        world = World(PINNED)
        world.provisioner.takeover.begin([PINNED], from_stranger=False)
        world.ec2.answers = [an_ec2_error(refusal)]
        await for_a_while(world, CONSISTENCY_S - 1)
        assert world.kube.sent == []
        world.kube.answers = [CLAIM]
        with contextlib.suppress(IndexError):  # it may begin anew, for which nothing is laid out
            await for_a_while(world, 10)
        return world

    world = in_virtual_time(story)

    assert annotations_sent(world)[0][PINNED_ZONE] is None


def test_a_claim_that_it_surely_never_sent_is_given_up_at_once():
    async def story(_: Clock) -> World:
        world = World(CLAIM)
        world.provisioner.takeover.begin([CLAIM], from_stranger=False)
        world.kube.answers = [PINNED, annotated(CLAIM, "9")]
        world.ec2.answers = [an_ec2_error(Reason.ZONE_OUT_OF_CAPACITY)]
        assert await world.provisioner.reconcile(UID) == WHEN_WOKEN
        return world

    world = in_virtual_time(story)

    assert annotations_sent(world)[-1] == {SELECTED_NODE: None, PINNED_ZONE: None}


def pinned(created_at: datetime | None) -> Claim:
    claim = a_claim(node="node-1", created_at=created_at)
    return annotated(claim, "8", **{PINNED_ZONE: claim.pin(ZONE)})


OLD = pinned(JUST_NOW - timedelta(seconds=TOKEN_LIFE_S + 60))


@pytest.mark.parametrize("claim", [OLD, pinned(None)], ids=["old", "of unknown age"])
def test_a_token_that_ec2_may_have_forgotten_is_not_sent_before_a_minute_of_looks(claim: Claim):
    async def story(_: Clock) -> tuple[int, World]:
        world = World(claim)
        world.provisioner.takeover.begin([claim], from_stranger=False)
        world.kube.answers = [a_persistent_volume()]
        world.ec2.answers = [a_volume()]
        await for_a_while(world, CONSISTENCY_S - 1)
        early = len(world.ec2.requests)
        await for_a_while(world, 15)
        return early, world

    early, world = in_virtual_time(story)

    assert early == 0
    assert zones_asked(world) == [ZONE]
    assert saved_volume(world) == VOLUME


async def test_a_young_token_is_sent_again_at_once():
    young = pinned(JUST_NOW - timedelta(hours=1))
    world = World(young)
    world.provisioner.takeover.begin([young], from_stranger=False)
    world.kube.answers = [a_persistent_volume()]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert zones_asked(world) == [ZONE]


def test_a_token_that_grew_old_in_this_process_is_not_sent_again_without_a_look():
    async def story(_: Clock) -> World:
        world = World(CLAIM)
        world.kube.answers = [PINNED]
        world.ec2.answers = [LOST]
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(UID)
        await asyncio.sleep(TOKEN_LIFE_S + 1)
        world.ec2.shown = [MADE_BEFORE]
        world.kube.answers = [a_persistent_volume()]
        await world.provisioner.reconcile(UID)
        return world

    world = in_virtual_time(story)

    assert zones_asked(world) == [ZONE]
    assert saved_volume(world) == VOLUME


def test_a_call_that_was_cut_off_is_as_uncertain_as_a_lost_reply():
    async def story(_: Clock) -> World:
        world = World(CLAIM)
        world.kube.answers = [PINNED]
        world.ec2.waits_s = 60.0
        working = asyncio.create_task(world.provisioner.reconcile(UID))
        await asyncio.sleep(30)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

        world.ec2.waits_s = 0.0
        world.ec2.answers = [DENIED]
        world.ec2.shown = [MADE_BEFORE]
        world.kube.answers = [a_persistent_volume()]
        await for_a_while(world, 10)
        return world

    world = in_virtual_time(story)

    assert annotations_sent(world) == [{PINNED_ZONE: CLAIM.pin(ZONE)}]
    assert saved_volume(world) == VOLUME
