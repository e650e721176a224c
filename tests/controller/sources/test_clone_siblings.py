"""A clone and the other volumes of its pod come to one zone, or the user is told why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.model.claim import Claim, DataSource
from provisioner.model.errors import StorageError
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import CLONE_ACROSS_ZONES
from provisioner.model.storage_class import StorageClass
from tests.builders import UID, VOLUME, ZONE, a_claim, a_class, a_volume
from tests.controller.source_world import OTHER_ZONE, SourceWorld, a_copy
from tests.controller.sources.test_cross_zone import PENDING
from tests.pods import a_placed_volume, a_pod
from tests.sources import OF_CLAIM, a_source, its_volume, replaced

LOGS_UID = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000003"
FAR_UID = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000004"
FAR_VOLUME = "vol-0eeeeeeeeeeeeeee1"
SECOND_VOLUME = "vol-0fffffffffffffff2"
WAITS = a_class(waits=True)
ACROSS = replaced(WAITS, metadata=ObjectMeta(name="fast", annotations={CLONE_ACROSS_ZONES: "true"}))


def of_one_pod(
    logs: Claim, storage_class: StorageClass = WAITS, *, node: str = "node-2"
) -> SourceWorld:
    """A pod whose claim ``data`` is a clone of a volume in ``ZONE``; ``logs`` is its other one."""
    world = SourceWorld(a_claim(source=OF_CLAIM, node=node), storage_class)
    world.caches.claims._store.apply(logs)
    world.caches.pods._store.apply(a_pod("web", "data", "logs"))
    return world


def with_far_source(world: SourceWorld) -> None:
    """A second claim to clone, whose volume is in the other zone."""
    source = a_source(uid=FAR_UID, volume_name=f"pvc-{FAR_UID}")
    meta = replaced(source.metadata, name="far")
    world.caches.claims._store.apply(replaced(source, metadata=meta))
    volume = its_volume(handle=FAR_VOLUME, claim_uid=FAR_UID, claim_name="far")
    meta = replaced(volume.metadata, name=f"pvc-{FAR_UID}")
    world.caches.persistent_volumes._store.apply(replaced(volume, metadata=meta))
    world.ec2.known[FAR_VOLUME] = a_volume(FAR_VOLUME, zone=OTHER_ZONE)


def bound_elsewhere(world: SourceWorld) -> None:
    """The API server shows where the other volume is."""
    get = world.kube.get

    async def shown(resource: Any, name: str, namespace: str = "") -> Any:
        if name == "static":
            return a_placed_volume("static", zone=OTHER_ZONE)
        return await get(resource, name, namespace)

    world.kube.get = shown  # type: ignore[method-assign]


@pytest.mark.parametrize("uids", [(UID, LOGS_UID), (LOGS_UID, UID)])
async def test_an_empty_claim_follows_the_clone_of_its_pod(uids: tuple[str, str]):
    world = of_one_pod(a_claim("logs", uid=LOGS_UID, node="node-2"))
    world.ec2.answers = [a_copy(), a_copy(volume_id=SECOND_VOLUME, source_volume_id=VOLUME)]

    await asyncio.gather(*map(world.provisioner.reconcile, uids))

    asked = {(each.zone, each.source_volume_id) for each in world.ec2.requests}
    assert asked == {(ZONE, None), (ZONE, VOLUME)}


async def test_an_empty_claim_that_binds_at_once_follows_it_too():
    zones = []
    for name in ("logs-0", "logs-1"):  # without the clone, one of them falls to the other zone
        world = SourceWorld(a_claim(source=OF_CLAIM), a_class())
        world.caches.claims._store.apply(a_claim(name, uid=LOGS_UID))
        world.caches.pods._store.apply(a_pod("web", "data", name))
        world.ec2.answers = [a_copy()]
        await world.provisioner.reconcile(LOGS_UID)
        zones += [each.zone for each in world.ec2.requests]

    assert zones == [ZONE, ZONE]


async def test_a_clone_that_may_go_across_does_not_hold_an_empty_claim():
    world = of_one_pod(a_claim("logs", uid=LOGS_UID, node="node-2"), ACROSS)
    world.ec2.answers = [a_copy(zone=OTHER_ZONE)]

    await world.provisioner.reconcile(LOGS_UID)

    assert [each.zone for each in world.ec2.requests] == [OTHER_ZONE]


async def test_two_clones_of_one_pod_with_sources_in_two_zones_do_not_wait_for_each_other():
    of_far = DataSource(kind="PersistentVolumeClaim", name="far")
    world = of_one_pod(a_claim("logs", uid=LOGS_UID, source=of_far, node="node-1"), node="node-1")
    with_far_source(world)
    world.ec2.answers = [a_copy(source_volume_id=VOLUME)]

    done = await asyncio.gather(
        *map(world.provisioner.reconcile, (UID, LOGS_UID)), return_exceptions=True
    )

    assert len(world.ec2.requests) == 1
    (refused,) = [each for each in done if isinstance(each, StorageError)]
    assert "another volume for pod shop/web is being created elsewhere" in refused.message


async def test_a_clone_is_not_made_where_another_volume_keeps_its_pod_away():
    logs = a_claim("logs", uid=LOGS_UID, node="node-1", volume_name="static")
    world = of_one_pod(logs, node="node-1")
    bound_elsewhere(world)

    with pytest.raises(StorageError, match="static of pod shop/web is elsewhere"):
        await world.provisioner.reconcile(UID)

    assert world.ec2.requests == []


async def test_a_clone_that_may_go_across_goes_where_the_other_volume_of_its_pod_is():
    logs = a_claim("logs", uid=LOGS_UID, node="node-1", volume_name="static")
    world = of_one_pod(logs, ACROSS, node="node-1")
    bound_elsewhere(world)
    world.snapshots.answers = [PENDING]

    await world.provisioner.reconcile(UID)

    assert [each.volume_id for each in world.snapshots.asked] == [VOLUME]
    assert any(f"brings the clone to {OTHER_ZONE}" in told for told in world.events.told)
    await world.provisioner.close()


async def test_where_the_node_was_chosen_for_another_pod_of_the_clone_it_is_made():
    logs = a_claim("logs", uid=LOGS_UID, node="node-1", volume_name="static")
    world = of_one_pod(logs, node="node-1")
    bound_elsewhere(world)
    world.caches.pods._store.apply(a_pod("job", "data"))
    world.ec2.answers = [a_copy(source_volume_id=VOLUME)]

    await world.provisioner.reconcile(UID)

    assert [each.zone for each in world.ec2.requests] == [ZONE]
