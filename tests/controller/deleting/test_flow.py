"""The deleter with services that answer at once: what it asks, and what it then does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from provisioner.controller.deleting.flow import Deleter
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.volumes import Volumes
from provisioner.metrics import Metrics
from provisioner.model.attachment import Attachment
from provisioner.model.decision import SETTLED, Next
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.persistent_volume import PROVISIONER_FINALIZER, PersistentVolume
from tests.builders import (
    ATTACHER_FINALIZER,
    DRIVER,
    VOLUME,
    a_persistent_volume,
    an_attachment,
    an_ec2_error,
)
from tests.controller.services import CurrentCaches, Ec2, Events, Kube
from tests.ec2.virtual_time import Clock, in_virtual_time


def a_deleter(caches: CurrentCaches, ec2: Ec2, edge: Kube, events: Events | None = None) -> Deleter:
    volumes = cast("Volumes", ec2)
    services = SimpleNamespace(
        settings=Settings(driver=DRIVER),
        client=edge,
        caches=caches,
        volumes=volumes,
        unclaimed=UnclaimedTags(volumes, caches, cluster_id=""),
        events=events,
        metrics=Metrics(),
    )
    return Deleter(cast("Services", services))


def caches_with(*persistent_volumes: PersistentVolume) -> CurrentCaches:
    caches = CurrentCaches()
    for each in persistent_volumes:
        caches.persistent_volumes._store.apply(each)
    return caches


async def after_a_look(
    *news: PersistentVolume | Attachment | None,
) -> tuple[list[str], Next]:
    """What a deletion comes to if the API server turns out to have these; None: not the object."""
    caches, ec2 = caches_with(RELEASED), Ec2()
    answers = [a_persistent_volume(finalizers=())]
    kube = Kube(objects={RELEASED.name: RELEASED}, answers=answers)

    def happens() -> None:
        for each in news:
            if each is None:
                del kube.objects[RELEASED.name]
                caches.persistent_volumes._store.remove(RELEASED.name, "9999")
            elif isinstance(each, Attachment):
                caches.attachments._store.apply(each)
            else:
                meta = replace(each.metadata, resource_version="9999")
                kube.objects[each.name] = replace(each, metadata=meta)
                caches.persistent_volumes._store.apply(kube.objects[each.name])

    caches.news = happens
    async with asyncio.timeout(30):
        return ec2.deleted, await a_deleter(caches, ec2, kube, Events()).reconcile(RELEASED.name)


HELD = (PROVISIONER_FINALIZER, ATTACHER_FINALIZER)
RELEASED = a_persistent_volume(phase="Released")


async def test_a_released_volume_that_nothing_holds_is_deleted():
    assert await after_a_look() == ([VOLUME], SETTLED)


@pytest.mark.parametrize(
    "news",
    [
        pytest.param(an_attachment(persistent_volume=RELEASED.name), id="race 9: it is attached"),
        pytest.param(a_persistent_volume(phase="Released", policy="Retain"), id="race 19: Retain"),
        pytest.param(a_persistent_volume(phase="Released", uid="another"), id="it was made anew"),
        pytest.param(None, id="it is gone"),
        pytest.param(a_persistent_volume("rescue", uid="pv-2"), id="another one names its volume"),
    ],
)
async def test_a_deletion_that_the_last_look_contradicts_is_not_sent(news):
    try:
        deleted, _ = await after_a_look(news)
    except StorageError as refusal:
        assert "rescue" in refusal.message  # noqa: PT017 -- the others end without one
        deleted = []

    assert deleted == []


@pytest.mark.parametrize(
    "restored",
    [a_persistent_volume(), a_persistent_volume(phase="Released", policy="Retain")],
    ids=["bound", "Retain"],
)
async def test_an_object_that_a_restored_etcd_has_otherwise_than_the_cache_keeps_its_volume(
    restored,
):
    ec2, kube = Ec2(), Kube(objects={RELEASED.name: restored}, answers=[restored])

    await a_deleter(caches_with(RELEASED), ec2, kube, Events()).reconcile(RELEASED.name)

    assert ec2.deleted == []


async def test_both_finalizers_go_by_what_the_delete_answered_not_by_the_cache():  # race 16, race 17
    deleting = a_persistent_volume(phase="Released", finalizers=[*HELD, "other"], deleting=True)
    kube = Kube(
        objects={RELEASED.name: RELEASED},
        answers=[deleting, a_persistent_volume(finalizers=["other"], deleting=True)],
    )

    await a_deleter(caches_with(RELEASED), Ec2(), kube).reconcile(RELEASED.name)

    assert [(verb, kind) for verb, kind, _ in kube.sent] == [
        ("delete", "persistentvolumes"),
        ("patch", "persistentvolumes"),
    ]
    assert kube.sent[0][2]["uid"] == RELEASED.uid
    assert kube.sent[1][2]["metadata"] == {
        "uid": RELEASED.uid,
        "$deleteFromPrimitiveList/finalizers": list(HELD),
    }


async def test_an_object_that_is_gone_when_its_volume_is_deleted_is_done():  # race 17, race 18
    kube = Kube(
        objects={RELEASED.name: RELEASED}, answers=[KubeError(Reason.OBJECT_NOT_FOUND, "gone")]
    )

    assert await a_deleter(caches_with(RELEASED), Ec2(), kube).reconcile(RELEASED.name) == SETTLED


async def test_a_volume_that_an_object_of_another_driver_names_is_kept_until_that_one_goes():
    imported = a_persistent_volume("imported", driver="my.ebs")
    ec2, events = Ec2(), Events()
    kube = Kube(objects={RELEASED.name: RELEASED}, answers=[a_persistent_volume(finalizers=())])
    deleter = a_deleter(caches_with(RELEASED), ec2, kube, events)
    deleter.subscribe()
    deleter._caches.persistent_volumes._store.apply(imported)
    deleter.queue._entries.clear()

    with pytest.raises(StorageError):
        await deleter.reconcile(RELEASED.name)
    assert ["imported" in told for told in events.told] == [True]
    assert ec2.deleted == []

    deleter._caches.persistent_volumes._store.remove("imported", "")
    assert set(deleter.queue._entries) == {RELEASED.name}
    await deleter.reconcile(RELEASED.name)
    assert ec2.deleted == [VOLUME]


async def test_a_deletion_that_is_left_to_the_next_leader_is_told_to_nobody():
    ec2, events = Ec2(failure=an_ec2_error(Reason.NOT_LEADING)), Events()
    kube = Kube(objects={RELEASED.name: RELEASED})

    with pytest.raises(StorageError):
        await a_deleter(caches_with(RELEASED), ec2, kube, events).reconcile(RELEASED.name)

    assert events.told == []


def test_a_volume_attached_by_hand_is_deleted_within_30_s_of_its_detachment():
    async def story(_: Clock) -> list[str]:
        ec2, events = Ec2(failure=an_ec2_error(Reason.VOLUME_IN_USE)), Events()
        kube = Kube(objects={RELEASED.name: RELEASED}, answers=[a_persistent_volume(finalizers=())])
        deleter = a_deleter(caches_with(RELEASED), ec2, kube, events)
        work = asyncio.create_task(deleter.queue.run())
        deleter.queue.add(RELEASED.name)
        await asyncio.sleep(1200)
        assert events.told
        ec2.failure = None
        await asyncio.sleep(30)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return ec2.deleted

    assert in_virtual_time(story) == [VOLUME]
