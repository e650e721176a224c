"""A zone without room: where the volume is made instead, and that there is never a second one."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.controller.provisioning.client_token_rules import client_token
from provisioner.model.claim import SELECTED_NODE
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import WHEN_WOKEN
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.names import PINNED_ZONE, VOLUME_NAME
from tests.builders import UID, a_claim, a_class, a_node, a_term, a_volume, an_ec2_error
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
from tests.pods import a_placed_volume, a_pod, tainted

FULL, NOT_OFFERED = Reason.ZONE_OUT_OF_CAPACITY, Reason.TYPE_NOT_IN_ZONE


async def refused_twice(world):
    """The scheduler chooses a node of the full zone, whatever was tried before."""
    assert await world.provisioner.reconcile(UID) == WHEN_WOKEN
    assert SELECTED_NODE not in world.claim().annotations
    world.choose("node-a")
    return await world.provisioner.reconcile(UID)


@pytest.mark.parametrize("reason", [FULL, NOT_OFFERED])
async def test_after_twoclaims_the_volume_is_made_where_a_node_can_take_the_pod(reason):
    world = world_of(pod=a_pod(), a=reason)
    world.caches.nodes._store._objects["node-b"] = tainted(a_node("node-b", zone=B), "gpu")

    await refused_twice(world)

    assert world.zones_asked == [A, A, C]
    assert world.pins == [A, A, C]  # a successor asks for the same
    assert world.kube.sent == [("create", "persistentvolumes", None)]
    assert any("us-east-1c" in told and "shop/web" in told for told in world.events.told)
    assert world.claim().selected_node == "node-a"  # the pod's own business


def test_zones_that_refuse_too_are_passed_by_and_then_it_waits_and_begins_anew():
    async def story(_: Clock) -> None:
        world = world_of(pod=a_pod(), a=FULL, b=NOT_OFFERED, c=FULL)

        with pytest.raises(StorageError) as waits:
            await refused_twice(world)

        assert sorted(world.zones_asked) == [A, A, B, C]
        assert waits.value.retry_after_s == 60.0
        assert "us-east-1b (VolumeTypeNotInZone)" in waits.value.message
        assert PINNED_ZONE not in world.claim().annotations
        del world.full[A]
        await asyncio.sleep(20.0)
        with pytest.raises(StorageError) as waits:
            await world.provisioner.reconcile(UID)  # woken, by whatever it was
        assert waits.value.retry_after_s == 40.0
        assert len(world.zones_asked) == 4
        await asyncio.sleep(40.0)
        await world.provisioner.reconcile(UID)
        assert world.zones_asked[-1] == A

    in_virtual_time(story)


async def test_a_zone_that_the_class_excludes_is_none():
    world = world_of(pod=a_pod(), a=FULL)
    only = a_class(waits=True, allowed=[a_term(zone=[A, C])])
    world.caches.classes._store._objects["fast"] = only

    await refused_twice(world)

    assert world.zones_asked == [A, A, C]


async def test_a_pod_that_can_run_nowhere_else_waits_with_an_event():
    logs = with_volume(other_claim(), "pv-of-logs")
    world = world_of(CHOSEN, logs, pod=a_pod("web", "data", "logs"), a=FULL)
    world.kube.objects["pv-of-logs"] = a_placed_volume(zone=A)

    with pytest.raises(StorageError):
        await refused_twice(world)

    assert world.zones_asked == [A, A]
    assert "persistentvolumes pv-of-logs" in world.kube.read
    assert any("pv-of-logs of pod shop/web is elsewhere" in told for told in world.events.told)


async def test_without_a_pod_that_waits_the_scheduler_is_asked_again():
    world = world_of(a=FULL)

    assert await refused_twice(world) == WHEN_WOKEN

    assert world.zones_asked == [A, A]
    assert not world.claim().selected_node


async def test_what_others_were_refused_saves_the_round_through_the_scheduler():
    world = world_of(CHOSEN, other_claim(node="node-a"), a=FULL)
    world.caches.pods._store.apply(a_pod("web", "data"))
    world.caches.pods._store.apply(a_pod("job", "logs"))
    await world.provisioner.reconcile(UID)

    await world.provisioner.reconcile(OTHER_UID)

    assert [zone for zone in world.zones_asked if zone != A] != []
    assert world.zones_asked[:2] == [A, A]


def test_both_claims_of_a_pod_go_to_one_zone():
    async def story(_: Clock) -> FullZones:
        pod = a_pod("web", "data", "logs")
        world: FullZones = world_of(CHOSEN, other_claim(node="node-a"), pod=pod, a=FULL)

        async def until_made(uid: str) -> None:
            """The scheduler goes on choosing the full zone until there is a volume elsewhere."""
            while zones_of(world)[uid] in {"", A}:
                try:
                    wait_s = seconds(await world.provisioner.reconcile(uid))
                except StorageError as error:
                    wait_s = error.retry_after_s
                await asyncio.sleep(wait_s or 0.1)
                if not world.claim(uid).selected_node:
                    world.choose("node-a", uid)

        await asyncio.gather(until_made(UID), until_made(OTHER_UID))
        return world

    world: FullZones = in_virtual_time(story)

    zones = zones_of(world)
    assert zones[UID] == zones[OTHER_UID] != A
    assert len([zone for zone in world.zones_asked if zone != A]) == 2


def zones_of(world: FullZones) -> dict[str, str]:
    """Where each claim's volume was asked for last."""
    tokens = {client_token(f"pvc-{uid}"): uid for uid in (UID, OTHER_UID)}
    return {UID: "", OTHER_UID: ""} | {tokens[r.client_token]: r.zone for r in world.ec2.requests}


async def test_a_lost_reply_from_the_full_zone_forbids_any_other():
    world = world_of(pod=a_pod())
    answers = [an_ec2_error(FULL), an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)]
    answers += [an_ec2_error(FULL)]
    plain = world.ec2.create

    async def make(request, *, gate):
        if answers:
            gate()
            world.ec2.requests.append(request)
            raise answers.pop(0)
        return await plain(request, gate=gate)

    world.ec2.create = make  # type: ignore[method-assign]
    await world.provisioner.reconcile(UID)
    world.choose("node-a")
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    await world.provisioner.reconcile(UID)  # refused, but after a silence

    assert world.zones_asked == [A, A, A]
    assert UID in world.provisioner.creations.attempts
    assert world.provisioner.creations.attempts[UID].looking_since_s is not None
    name = {VOLUME_NAME: CHOSEN.persistent_volume_name}
    world.ec2.shown = [a_volume(zone=A, tags=name)]
    await world.provisioner.reconcile(UID)
    assert world.zones_asked == [A, A, A]
    assert world.kube.sent == [("create", "persistentvolumes", None)]


def test_what_the_process_before_us_may_have_made_is_looked_for_before_another_zone_is_asked():
    pinned = annotated(CHOSEN, "8", **{PINNED_ZONE: CHOSEN.pin(A)})

    async def story(clock: Clock) -> tuple[list[str], float]:
        world = world_of(pinned, pod=a_pod(), a=FULL)
        world.provisioner.takeover.begin([pinned], from_stranger=False)
        began_s = clock()
        while set(world.zones_asked) <= {A}:
            try:
                wait_s = seconds(await world.provisioner.reconcile(UID))
            except StorageError as error:
                wait_s = error.retry_after_s
            await asyncio.sleep(wait_s or 1.0)
            if not world.claim().selected_node:
                world.choose("node-a")
            assert clock() - began_s < 10 * CONSISTENCY_S
        return world.zones_asked, clock() - began_s

    zones, took_s = in_virtual_time(story)

    assert zones[:2] == [A, A]
    assert took_s >= CONSISTENCY_S


async def test_what_the_process_before_us_has_made_is_taken_though_its_zone_is_full_now():
    pinned = annotated(CHOSEN, "8", **{PINNED_ZONE: CHOSEN.pin(A)})
    world = world_of(pinned, pod=a_pod(), a=FULL)
    world.provisioner.takeover.begin([pinned], from_stranger=False)
    name = {VOLUME_NAME: CHOSEN.persistent_volume_name}
    world.ec2.shown = [a_volume(zone=A, tags=name)]

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == [A]
    assert world.kube.sent == [("create", "persistentvolumes", None)]


async def test_nothing_is_remembered_of_a_claim_that_has_its_volume():
    world = world_of(pod=a_pod(), a=FULL)
    world.provisioner.subscribe()
    await refused_twice(world)

    world.caches.claims._store.apply(with_volume(world.claim(), "pv"))

    choice = world.provisioner._zones
    places = choice.refused_places
    assert (choice._chosen, choice._without_zone, choice._moved) == ({}, {}, {})
    assert choice._waits_for == {}
    assert (places.claims, places._paused_until_s) == ({}, {})


async def test_that_it_is_made_elsewhere_is_told_once_that_is_written_down():
    world = world_of(pod=a_pod(), a=FULL)
    await world.provisioner.reconcile(UID)
    world.choose("node-a")
    plain, pinned = world.kube.patch, []

    async def patch(resource, name, body, **given):
        pin = body["metadata"]["annotations"].get(PINNED_ZONE) or ""
        if pin and not pin.startswith(A):
            pinned.append(pin)
            raise KubeError(Reason.PERMISSION_DENIED, "a webhook says no")
        return await plain(resource, name, body, **given)

    world.kube.patch = patch  # type: ignore[method-assign]

    with pytest.raises(KubeError):
        await world.provisioner.reconcile(UID)

    assert len(pinned) == 1
    assert not [each for each in world.events.told if "is made in" in each]


async def test_a_choice_of_the_scheduler_in_a_good_zone_is_followed():
    world = world_of(pod=a_pod(), a=FULL)
    await world.provisioner.reconcile(UID)
    world.choose("node-b")

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == [A, B]


async def test_a_claim_that_binds_at_once_goes_on_with_the_next_zone():
    world = world_of(a_claim(), waits=False, a=FULL, b=FULL)

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == [A, B, C]
    assert world.pins == world.zones_asked


async def test_a_claim_that_binds_at_once_waits_when_all_zones_refuse():
    world = world_of(a_claim(), waits=False, a=FULL, b=FULL, c=NOT_OFFERED)

    with pytest.raises(StorageError) as waits:
        await world.provisioner.reconcile(UID)

    assert sorted(world.zones_asked) == [A, B, C]
    assert waits.value.retry_after_s == 60.0
    assert PINNED_ZONE not in world.claim().annotations


async def test_a_refused_zone_is_shown_until_a_volume_is_made_there():
    world = world_of(pod=a_pod(), a=FULL)
    shown = ("us-east-1a", "gp3", FULL.value)
    await world.provisioner.reconcile(UID)
    refuses = world.metrics.zone_refuses
    assert refuses.labels(*shown)._value.get() == 1
    world.full.clear()
    world.choose("node-a")

    await world.provisioner.reconcile(UID)

    assert world.zones_asked == [A, A]
    assert shown not in refuses._metrics
