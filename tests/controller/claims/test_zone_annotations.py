"""The zone that is written to a claim: for whom it counts, how long, and what it never does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.model.claim import SELECTED_NODE, UNKNOWN_ZONE, Claim
from provisioner.model.consistency import LOOK_AGAIN_S
from provisioner.model.decision import SETTLED, Later
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.names import PINNED_ZONE
from tests.builders import (
    UID,
    ZONE,
    a_claim,
    a_class,
    a_node,
    a_persistent_volume,
    a_term,
    a_volume,
    an_ec2_error,
)
from tests.controller.provisioning.test_flow import (
    CLAIM,
    OTHER_ZONE,
    PINNED,
    World,
    annotated,
    no_such_node,
)
from tests.ec2.virtual_time import Clock, in_virtual_time

OF_ANOTHER = f"{ZONE}/the-uid-of-another-claim"


def zones_asked(world: World) -> list[str]:
    return [request.zone for request in world.ec2.requests]


def annotations_sent(world: World) -> list[dict[str, Any]]:
    return [body["metadata"]["annotations"] for verb, _, body in world.kube.sent if verb == "patch"]


async def test_a_pin_that_came_with_a_backup_does_not_count():
    claim = annotated(a_claim(node="node-2"), "8", **{PINNED_ZONE: OF_ANOTHER})
    world = World(claim)
    world.provisioner.takeover.begin([claim], from_stranger=False)
    world.kube.answers = [claim, a_persistent_volume()]
    world.ec2.answers = [a_volume(zone=OTHER_ZONE)]

    await world.provisioner.reconcile(UID)

    assert zones_asked(world) == [OTHER_ZONE]


async def test_a_pin_that_its_author_wrote_counts_for_nothing_that_we_have_begun():
    claim = annotated(a_claim(), "8", **{PINNED_ZONE: a_claim().pin("us-east-1f")})
    world = World(claim)
    world.caches.classes._store._objects["fast"] = a_class(allowed=[a_term(zone=[ZONE])])
    world.kube.answers = [claim, a_persistent_volume()]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert zones_asked(world) == [ZONE]


@pytest.mark.parametrize(
    ("allowed", "pin", "asked"),
    [
        pytest.param([a_term(zone=[ZONE])], "us-east-1f", ZONE, id="a zone"),
        pytest.param([a_term(zone=[ZONE])], ZONE, ZONE, id="its own zone"),
        pytest.param([a_term(zone=["us-east-1f"])], "us-east-1f", "us-east-1f", id="another zone"),
    ],
)
async def test_after_a_take_over_a_pin_counts_only_where_the_class_lets_volumes_be(
    allowed: list[Any], pin: str, asked: str
):
    claim = annotated(a_claim(), "8", **{PINNED_ZONE: a_claim().pin(pin)})
    world = World(claim)
    world.provisioner.takeover.begin([claim], from_stranger=False)
    world.caches.classes._store._objects["fast"] = a_class(allowed=allowed)
    world.kube.answers = [*([] if pin == asked else [claim]), a_persistent_volume()]
    world.ec2.answers = [a_volume(zone=asked)]

    await world.provisioner.reconcile(UID)

    assert zones_asked(world) == [asked]


async def test_after_a_take_over_no_volume_is_made_on_an_outpost_that_the_class_forbids():
    arn = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"
    claim = annotated(a_claim(), "8", **{PINNED_ZONE: a_claim().pin(ZONE, arn)})
    world = World(claim)
    world.provisioner.takeover.begin([claim], from_stranger=False)
    only = a_term(
        zone=[ZONE],
        region=["us-east-1"],
        partition=["aws"],
        account=["111122223333"],
        outpost=["op-2"],
    )
    world.caches.classes._store._objects["fast"] = a_class(allowed=[only])
    world.kube.answers = [claim, a_persistent_volume()]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert [each.outpost_arn for each in world.ec2.requests] == [arn.replace("op-1", "op-2")]


async def test_a_pin_of_the_process_before_us_counts_whatever_node_is_chosen_now():  # race 4
    claim = annotated(PINNED, "9", **{SELECTED_NODE: "node-2"})
    world = World(claim)
    world.provisioner.takeover.begin([claim], from_stranger=False)
    world.kube.answers = [a_persistent_volume()]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert zones_asked(world) == [ZONE]


async def test_a_certain_refusal_takes_the_pin_off():
    world = World(CLAIM)
    world.kube.answers = [PINNED, CLAIM]
    world.ec2.answers = [an_ec2_error(Reason.PERMISSION_DENIED)]

    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)

    assert annotations_sent(world) == [{PINNED_ZONE: CLAIM.pin(ZONE)}, {PINNED_ZONE: None}]


async def test_a_pin_is_written_again_after_its_removal_got_no_reply():
    world = World(CLAIM)
    lost = KubeError(Reason.REPLY_LOST, "the reply was lost", outcome=Outcome.UNKNOWN)
    world.kube.answers = [PINNED, lost, PINNED, a_persistent_volume()]
    world.ec2.answers = [an_ec2_error(Reason.PERMISSION_DENIED), a_volume()]
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)

    await world.provisioner.reconcile(UID)

    pin = {PINNED_ZONE: CLAIM.pin(ZONE)}
    assert annotations_sent(world) == [pin, {PINNED_ZONE: None}, pin]


async def test_a_pin_that_got_no_reply_is_removed_although_the_cache_shows_none():
    world = World(CLAIM)
    lost = KubeError(Reason.REPLY_LOST, "the reply was lost", outcome=Outcome.UNKNOWN)
    world.kube.answers = [lost, CLAIM]
    annotations = world.provisioner._annotations
    with pytest.raises(KubeError):
        await annotations.write(CLAIM, ZONE)

    await annotations.remove(CLAIM)
    await annotations.remove(CLAIM)

    assert annotations_sent(world) == [{PINNED_ZONE: CLAIM.pin(ZONE)}, {PINNED_ZONE: None}]


async def test_a_lost_reply_leaves_the_pin():
    world = World(CLAIM)
    world.kube.answers = [PINNED]
    world.ec2.answers = [an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)]

    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)

    assert annotations_sent(world) == [{PINNED_ZONE: CLAIM.pin(ZONE)}]


async def test_doubt_is_kept_when_the_chosen_node_is_gone():  # race 5
    claim = annotated(CLAIM, "8", **{PINNED_ZONE: CLAIM.pin(UNKNOWN_ZONE)})
    world = World(claim)
    no_such_node(world)
    world.provisioner.takeover.begin([claim], from_stranger=True)

    following = await world.provisioner.reconcile(UID)

    assert following == Later(LOOK_AGAIN_S)
    assert world.kube.sent == []


@pytest.mark.parametrize("claim", [CLAIM, PINNED], ids=["pinning", "asking for another node"])
def test_a_cache_that_stays_behind_is_no_tight_loop(claim: Claim):
    async def story(_: Clock) -> int:
        world = World(claim)
        tries = 0

        async def patch(*_: object, **__: object) -> None:
            nonlocal tries
            tries += 1
            raise KubeError(Reason.CONFLICT, "the claim has changed")

        world.kube.patch = patch  # type: ignore[method-assign]
        world.ec2.answers = [an_ec2_error(Reason.ZONE_OUT_OF_CAPACITY) for _ in range(60)]
        if claim is PINNED:
            world.provisioner._annotations._written.add(UID)
        running = asyncio.create_task(world.provisioner.queue.run())
        world.provisioner.queue.add(UID)
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return tries

    assert 3 <= in_virtual_time(story) <= 10


async def test_our_own_writing_does_not_cut_a_pause_short():
    world = World(CLAIM)
    world.provisioner.subscribe()
    world.provisioner.queue._entries.clear()

    world.caches.claims._store.apply(PINNED)

    assert not world.provisioner.queue._entries


def test_a_claim_deleted_while_its_call_waits_in_the_limiter_is_not_provisioned():  # race 34
    async def story(_: Clock) -> World:
        world = World(CLAIM)
        world.kube.answers = [PINNED]
        world.ec2.waits_s = 60.0
        working = asyncio.create_task(world.provisioner.reconcile(UID))
        await asyncio.sleep(5)
        world.caches.claims._store.remove(CLAIM.key, "99")
        assert await working == SETTLED
        return world

    world = in_virtual_time(story)

    assert world.ec2.requests == []
    assert not world.provisioner.creations.attempts


@pytest.mark.parametrize("late", ["the node", "its label"])
async def test_a_node_that_the_cache_gets_late_wakes_the_claims_without_a_zone(late: str):
    world = World(a_claim())
    world.caches.classes._store._objects["fast"] = a_class()
    for name in ("node-1", "node-2"):
        world.caches.nodes._store.remove(name, "")
    if late == "its label":
        world.caches.nodes._store.apply(a_node("node-1", zone=None, version="1"))
    world.provisioner.subscribe()
    world.provisioner.queue._entries.clear()
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)

    world.caches.nodes._store.apply(a_node("node-1", version="2"))

    assert world.provisioner.queue._entries
