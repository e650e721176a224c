"""The deleter with edges that answer at once: what it asks, and what it then does."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.kube.events import EventRecorder
from provisioner.metrics import Metrics
from provisioner.model.attachment import Attachment
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.persistent_volume import PROVISIONER_FINALIZER, PersistentVolume
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.delete import Deleter
from provisioner.reconcile.live import LiveLists, Snapshot
from provisioner.reconcile.marks import Marks
from tests.builders import (
    ATTACHER_FINALIZER,
    DRIVER,
    VOLUME,
    a_persistent_volume,
    an_attachment,
    an_ec2_error,
)
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.reconcile.edges import Ec2, Events, Kube


class Lists:
    """``latest``: what a list of the last second showed; ``now``: what one fetched now shows."""

    def __init__(self, latest: Snapshot, now: Snapshot) -> None:
        self.latest = latest
        self.now = now

    async def snapshot(self, *, since: str | None = None) -> Snapshot:
        return self.now if since is None else self.latest


def shows(persistent_volume: PersistentVolume, *attachments: Attachment) -> Snapshot:
    name = persistent_volume.name
    return Snapshot(1, {name: persistent_volume}, {VOLUME: frozenset({name})}, {name: attachments})


def a_deleter(
    cached: PersistentVolume, lists: Lists, ec2: Ec2, edge: Kube, events: Events | None = None
) -> Deleter:
    kube, metrics = cast("KubeClient", edge), Metrics()
    caches = Caches(kube, metrics, DRIVER)
    caches.persistent_volumes._store.apply(cached)
    volumes, live = cast("Volumes", ec2), cast("LiveLists", lists)
    return Deleter(
        driver=DRIVER,
        client=kube,
        caches=caches,
        volumes=volumes,
        marks=Marks(volumes, live, cluster_id=""),
        live=live,
        events=cast("EventRecorder", events),
        metrics=metrics,
    )


async def after_a_look(
    latest: Snapshot, now: Snapshot, reread: PersistentVolume | None = None
) -> tuple[list[str], float | None]:
    answers = [a_persistent_volume(finalizers=())]
    ec2, kube = Ec2(), Kube(objects={RELEASED.name: reread or RELEASED}, answers=answers)
    deleter = a_deleter(RELEASED, Lists(latest, now), ec2, kube)
    async with asyncio.timeout(5):
        return ec2.deleted, await deleter.reconcile(RELEASED.name)


HELD = (PROVISIONER_FINALIZER, ATTACHER_FINALIZER)
RELEASED = a_persistent_volume(phase="Released")


async def test_a_released_volume_that_nothing_holds_is_deleted():
    assert await after_a_look(shows(RELEASED), shows(RELEASED)) == ([VOLUME], None)


async def test_the_end_of_an_attachment_is_not_missed_for_a_list_from_before_it():
    before = shows(RELEASED, an_attachment())

    assert await after_a_look(before, shows(RELEASED)) == ([VOLUME], None)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(shows(RELEASED, an_attachment()), id="race 9: it is attached"),
        pytest.param(
            shows(a_persistent_volume(phase="Released", policy="Retain")), id="race 19: Retain"
        ),
        pytest.param(
            shows(a_persistent_volume(phase="Released", uid="another")), id="it was made anew"
        ),
    ],
)
async def test_a_deletion_that_the_live_list_contradicts_is_not_sent(now):
    deleted, _ = await after_a_look(now, now)

    assert deleted == []


@pytest.mark.parametrize(
    "reread",
    [
        pytest.param(a_persistent_volume(phase="Released", policy="Retain"), id="race 19: Retain"),
        pytest.param(a_persistent_volume(phase="Released", uid="another"), id="it was made anew"),
    ],
)
async def test_the_object_is_read_again_after_the_lists_and_right_before_the_call(reread):
    seen = shows(RELEASED)

    deleted, _ = await after_a_look(seen, seen, reread)

    assert deleted == []


async def test_both_finalizers_go_by_what_the_delete_answered_not_by_the_cache():  # race 16, race 17
    deleting = a_persistent_volume(phase="Released", finalizers=[*HELD, "other"], deleting=True)
    kube = Kube(
        objects={RELEASED.name: RELEASED},
        answers=[deleting, a_persistent_volume(finalizers=["other"], deleting=True)],
    )
    seen = shows(RELEASED)

    await a_deleter(RELEASED, Lists(seen, seen), Ec2(), kube).reconcile(RELEASED.name)

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
    seen = shows(RELEASED)

    assert (
        await a_deleter(RELEASED, Lists(seen, seen), Ec2(), kube).reconcile(RELEASED.name) is None
    )


async def test_a_volume_that_an_object_of_another_driver_names_is_kept_until_that_one_goes():
    imported = a_persistent_volume("imported", driver="my.ebs")
    ec2, events = Ec2(), Events()
    kube = Kube(objects={RELEASED.name: RELEASED}, answers=[a_persistent_volume(finalizers=())])
    deleter = a_deleter(RELEASED, Lists(shows(RELEASED), shows(RELEASED)), ec2, kube, events)
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
    kube, seen = Kube(objects={RELEASED.name: RELEASED}), shows(RELEASED)

    with pytest.raises(StorageError):
        await a_deleter(RELEASED, Lists(seen, seen), ec2, kube, events).reconcile(RELEASED.name)

    assert events.told == []


def test_a_volume_attached_by_hand_is_deleted_within_30_s_of_its_detachment():
    async def story(_: Clock) -> list[str]:
        ec2, events = Ec2(failure=an_ec2_error(Reason.VOLUME_IN_USE)), Events()
        kube = Kube(objects={RELEASED.name: RELEASED}, answers=[a_persistent_volume(finalizers=())])
        seen = shows(RELEASED)
        deleter = a_deleter(RELEASED, Lists(seen, seen), ec2, kube, events)
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
