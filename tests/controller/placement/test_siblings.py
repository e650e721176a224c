"""Claims of one pod: one that has moved takes the others along, wherever their node was chosen."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from provisioner.model.claim import STORAGE_PROVISIONER, Claim
from provisioner.model.decision import WHEN_WOKEN
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.names import PINNED_ZONE
from provisioner.model.volume import CreateRequest
from provisioner.model.zone import Place
from tests.builders import UID, a_class, a_volume, an_ec2_error
from tests.controller.full_zones import (
    CHOSEN,
    OTHER_UID,
    A,
    B,
    C,
    FullZones,
    other_claim,
    with_volume,
    world_of,
)
from tests.controller.provisioning.test_flow import annotated
from tests.controller.services import seconds
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.pods import a_placed_volume, a_pod

FULL = Reason.ZONE_OUT_OF_CAPACITY
LOGS = other_claim(node="node-a")
POD = a_pod("web", "data", "logs")
NAMES = {f"pvc-{UID}": UID, f"pvc-{OTHER_UID}": OTHER_UID}
ZONES = {"node-a": A, "node-b": B, "node-c": C}
NAMED = f"pvc-{UID}"


def of_class(claim: Claim, name: str) -> Claim:
    spec = msgspec.structs.replace(claim.spec, storage_class_name=name)
    return msgspec.structs.replace(claim, spec=spec)


def uid_of(request: CreateRequest) -> str:
    return next(NAMES[value] for _, value in request.tags if value in NAMES)


async def moved(world: FullZones) -> str:
    """The zone in which the first claim's volume is made, at last."""
    for _ in range(2):
        if not world.claim().selected_node:
            world.choose("node-a")
        await world.provisioner.reconcile(UID)
    assert world.zones_asked[-1] != A
    return world.zones_asked[-1]


async def test_a_claim_whose_class_was_missing_follows_the_one_that_has_moved_meanwhile():
    world = world_of(CHOSEN, of_class(LOGS, "late"), pod=POD, a=FULL)
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(OTHER_UID)
    zone = await moved(world)
    world.caches.classes._store.apply(a_class("late", waits=True))
    world.full.clear()

    await world.provisioner.reconcile(OTHER_UID)

    assert world.zones_asked == [A, A, zone, zone]
    told = [each for each in world.events.told if "another volume of the pod" in each]
    assert any(f"creating the volume in {zone}" in each for each in told)


async def test_a_claim_that_was_refused_for_another_reason_follows_too():
    world = world_of(CHOSEN, LOGS, pod=POD, a=FULL)
    plain, refusals = world.ec2.create, [an_ec2_error(Reason.PERMISSION_DENIED)]

    async def make(request, *, gate):
        if uid_of(request) == OTHER_UID and refusals:
            raise refusals.pop()
        return await plain(request, gate=gate)

    world.ec2.create = make  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(OTHER_UID)
    zone = await moved(world)
    world.full.clear()

    await world.provisioner.reconcile(OTHER_UID)

    assert world.zones_asked == [A, A, zone, zone]


@pytest.mark.parametrize("zone", [B, C])
async def test_a_bound_volume_elsewhere_counts_more_than_the_chosen_node(zone):
    """A process before us has moved it; the scheduler has not looked again since."""
    pinned = annotated(CHOSEN, "8", **{PINNED_ZONE: CHOSEN.pin(zone)})
    world = world_of(with_volume(pinned, NAMED), LOGS, pod=POD)
    world.kube.objects[NAMED] = a_placed_volume(NAMED, zone=zone)

    await world.provisioner.reconcile(OTHER_UID)

    assert world.zones_asked == [zone]


async def test_without_a_node_beside_the_moved_volume_the_scheduler_is_asked_again():
    pinned = annotated(CHOSEN, "8", **{PINNED_ZONE: CHOSEN.pin("us-east-1d")})
    world = world_of(with_volume(pinned, NAMED), LOGS, pod=POD)
    world.kube.objects[NAMED] = a_placed_volume(NAMED, zone="us-east-1d")

    assert await world.provisioner.reconcile(OTHER_UID) == WHEN_WOKEN

    assert world.zones_asked == []
    assert not world.claim(OTHER_UID).selected_node
    assert any(f"PersistentVolume {NAMED} of pod shop/web" in e for e in world.events.told)


async def test_a_pod_without_that_other_volume_gets_the_zone_of_the_chosen_node():
    """No place suits both pods, and the node was surely chosen for the one that can run there."""
    world = world_of(with_volume(CHOSEN, "static"), LOGS, pod=POD)
    world.caches.pods._store.apply(a_pod("job", "logs"))
    world.kube.objects["static"] = a_placed_volume("static", zone="us-east-1d")

    await world.provisioner.reconcile(OTHER_UID)

    assert world.zones_asked == [A]


@pytest.mark.parametrize(
    "bound",
    [
        annotated(CHOSEN, "8", **{PINNED_ZONE: CHOSEN.pin(A)}),
        annotated(CHOSEN, "8", **{STORAGE_PROVISIONER: "topolvm.io"}),
        CHOSEN,
    ],
    ids=["ours", "of another driver", "of the stock driver"],
)
async def test_nothing_is_read_for_volumes_that_were_made_where_the_scheduler_wanted_them(bound):
    world = world_of(with_volume(bound, NAMED), LOGS, pod=POD)

    await world.provisioner.reconcile(OTHER_UID)

    assert world.zones_asked == [A]
    assert world.kube.read == []


async def test_nothing_is_read_for_two_claims_that_are_made_at_the_same_time():
    world = world_of(CHOSEN, LOGS, pod=POD)

    await asyncio.gather(*(world.provisioner.reconcile(uid) for uid in (UID, OTHER_UID)))

    assert world.zones_asked == [A, A]
    assert world.kube.read == []


async def test_a_volume_that_another_driver_is_about_to_make_ties_the_pod_to_its_node():
    scratch = annotated(LOGS, "9", **{STORAGE_PROVISIONER: "topolvm.io"})
    world = world_of(CHOSEN, of_class(scratch, "topolvm"), pod=POD, a=FULL)
    world.provisioner._zones.refused_places.note(Place(A), "gp3", FULL)  # one refusal is enough

    with pytest.raises(StorageError) as waits:
        await world.provisioner.reconcile(UID)

    assert world.zones_asked == [A]
    assert "another volume for pod shop/web is being created elsewhere" in waits.value.message


async def test_what_was_refused_to_a_claim_of_the_same_pod_does_not_count_as_others():
    world = world_of(CHOSEN, LOGS, pod=POD, a=FULL)
    await world.provisioner.reconcile(UID)

    assert await world.provisioner.reconcile(OTHER_UID) == WHEN_WOKEN

    assert world.zones_asked == [A, A]
    assert not world.claim(OTHER_UID).selected_node


@pytest.mark.parametrize(
    "answer",
    [KubeError(Reason.PERMISSION_DENIED, "a webhook says no"), KubeError(Reason.CONFLICT, "old")],
)
async def test_a_claim_whose_zone_could_not_be_written_ties_nobody_to_it(answer):
    world = world_of(CHOSEN, LOGS, pod=POD, a=FULL)
    plain = world.kube.patch

    async def patch(resource, name, body, **given):
        if name == "logs":
            raise answer
        return await plain(resource, name, body, **given)

    world.kube.patch = patch  # type: ignore[method-assign]
    for _ in range(2):  # the second conflict in a row is raised
        try:
            await world.provisioner.reconcile(OTHER_UID)
        except KubeError as error:
            assert error is answer  # noqa: PT017 -- or it is to be looked at again

    assert await moved(world) in {B, C}


def test_a_claim_held_by_a_volume_in_the_making_is_asked_for_again_after_a_minute():
    async def story(clock: Clock) -> tuple[int, list[str], float]:
        world = world_of(CHOSEN, LOGS, pod=POD, a=FULL)
        plain = world.ec2.create

        async def make(request, *, gate):
            if uid_of(request) == OTHER_UID:
                raise an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)  # for ever
            return await plain(request, gate=gate)

        world.ec2.create = make  # type: ignore[method-assign]
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(OTHER_UID)
        await world.provisioner.reconcile(UID)
        world.choose("node-a")
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(UID)
        before, began_s = len(world.zones_asked), clock()
        world.full.clear()
        while len(world.zones_asked) == before and clock() - began_s < 600.0:
            try:
                await world.provisioner.reconcile(UID)
            except StorageError as error:
                await asyncio.sleep(error.retry_after_s or 1.0)
        return before, world.zones_asked, clock() - began_s

    before, zones, took_s = in_virtual_time(story)

    assert zones[:before] == [A] * before
    assert zones[before:] == [A]
    assert 58.0 <= took_s <= 62.0


@pytest.mark.parametrize("seed", range(40))
def test_two_claims_of_a_pod_end_in_one_zone_however_ec2_changes_its_mind(seed):
    made = in_virtual_time(lambda _: a_flapping_zone(random.Random(seed)))

    assert len(made) == 2
    assert len(set(made.values())) == 1


async def a_flapping_zone(chance: random.Random) -> dict[str, str]:
    """Zone A refuses now and then; the scheduler does with its annotation what the real one does.

    It leaves a chosen node as it is, and chooses for all claims at once one that suits them.
    """
    world = world_of(CHOSEN, LOGS, pod=POD)
    made: dict[str, str] = {}

    async def make(request: CreateRequest, *, gate):
        await asyncio.sleep(chance.uniform(0.05, 2.0))
        gate()
        if request.zone == A and chance.random() < 0.6:
            raise an_ec2_error(FULL)
        made[uid_of(request)] = request.zone
        return a_volume(zone=request.zone)

    async def schedule() -> None:
        while len(made) < 2:
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            waiting = [uid for uid in (UID, OTHER_UID) if uid not in made]
            chosen = {world.claim(uid).selected_node for uid in waiting} - {""}
            suiting = [
                n for n, zone in ZONES.items() if chosen <= {n} and {*made.values()} <= {zone}
            ]
            for uid in waiting:
                if suiting and not world.claim(uid).selected_node:
                    world.choose(suiting[0], uid)

    async def follow(uid: str) -> None:
        while uid not in made:
            wait_s: float | None = 0.2
            if world.claim(uid).selected_node:
                try:
                    wait_s = seconds(await world.provisioner.reconcile(uid))
                except StorageError as error:
                    wait_s = error.retry_after_s or 1.0
            await asyncio.sleep(wait_s or 0.05)

    world.ec2.create = make  # type: ignore[method-assign]
    async with asyncio.timeout(3600.0):
        await asyncio.gather(follow(UID), follow(OTHER_UID), schedule())
    return made
