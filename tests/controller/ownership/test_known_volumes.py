"""Tagged volumes that a process before this one left, known from its start: used, not doubled."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.controller.claims.zone_annotations import AFTER_CONFLICT
from provisioner.model.claim import SELECTED_NODE, Claim
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.names import PINNED_ZONE, UNCLAIMED
from tests.builders import UID, VOLUME, ZONE, a_claim, a_persistent_volume, a_volume
from tests.controller.claims.test_zone_annotations import annotations_sent, zones_asked
from tests.controller.provisioning.test_flow import CLAIM, OTHER_ZONE, PINNED, World, annotated
from tests.controller.provisioning.test_inheritance import MADE_BEFORE, saved_volume
from tests.ec2.virtual_time import Clock, in_virtual_time

TAGGED = a_volume(zone=ZONE, tags={**MADE_BEFORE.tags, UNCLAIMED: "Delete"})


def knowing(claim: Claim) -> World:
    """A process that has found the tagged volume at its start."""
    world = World(claim, cluster_id="prod")
    world.unclaimed._learned.set()
    world.unclaimed._answered.set()
    world.unclaimed._unused = {f"pvc-{UID}": TAGGED}
    world.unclaimed._learned_at_s = asyncio.get_running_loop().time()
    world.provisioner.takeover.begin([claim], from_stranger=False)
    return world


@pytest.mark.parametrize("pin", [None, CLAIM.pin(OTHER_ZONE)], ids=["no pin", "another zone"])
async def test_a_tagged_volume_of_the_claim_is_used_whatever_the_pin_says(pin: str | None):
    claim = annotated(CLAIM, "9", **{SELECTED_NODE: "node-2", PINNED_ZONE: pin})
    world = knowing(claim)
    world.kube.answers = [annotated(claim, "10"), a_persistent_volume()]

    await world.provisioner.reconcile(UID)

    assert zones_asked(world) == []
    assert annotations_sent(world) == [{PINNED_ZONE: CLAIM.pin(ZONE)}]
    assert saved_volume(world) == VOLUME


async def test_it_is_not_forgotten_when_the_claim_changes_at_that_moment():
    claim = annotated(CLAIM, "9", **{SELECTED_NODE: "node-2"})
    world = knowing(claim)
    world.kube.answers = [KubeError(Reason.CONFLICT, "the claim has changed")]
    assert await world.provisioner.reconcile(UID) == AFTER_CONFLICT
    world.kube.answers = [annotated(claim, "10"), a_persistent_volume()]

    await world.provisioner.reconcile(UID)

    assert zones_asked(world) == []
    assert saved_volume(world) == VOLUME


@pytest.mark.parametrize("is_there", [True, False])
def test_what_was_found_a_while_ago_is_used_only_if_it_is_still_there(*, is_there: bool):
    async def story(_: Clock) -> World:
        world = knowing(PINNED)
        await asyncio.sleep(31)
        world.ec2.shown = [TAGGED] if is_there else []
        world.kube.answers = [a_persistent_volume()]
        world.ec2.answers = [a_volume("vol-0fffffffffffffff0")]
        await world.provisioner.reconcile(UID)
        return world

    world = in_virtual_time(story)

    assert zones_asked(world) == ([] if is_there else [ZONE])
    assert saved_volume(world) == (VOLUME if is_there else "vol-0fffffffffffffff0")


class Named:
    """Caches in which a persistent volume has come to name the volume."""

    def __init__(self, *, is_named: bool) -> None:
        self.is_named = is_named

    async def nobody_names(self, volume_id: str) -> None:
        if self.is_named:
            raise KubeError(Reason.CONFLICT, f"{volume_id} is named")


@pytest.mark.parametrize("is_named", [True, False])
async def test_one_that_is_too_small_is_deleted_with_a_word_unless_somebody_names_it(
    monkeypatch: pytest.MonkeyPatch, *, is_named: bool
):
    claim = a_claim(node="node-1", size="4Gi")
    world = knowing(claim)
    named = Named(is_named=is_named)
    monkeypatch.setattr(world.caches, "nobody_names", named.nobody_names)
    world.kube.answers = [annotated(claim, "8", **{PINNED_ZONE: claim.pin(ZONE)}), claim]

    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)

    assert world.ec2.deleted == ([] if is_named else [VOLUME])
    if not is_named:
        [told] = world.events.told
        assert f"EC2 created volume {VOLUME} with 1 GiB instead of the requested 4 GiB" in told
