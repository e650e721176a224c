"""What volumes are made from is held for as long as that takes, and not longer."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from provisioner.model.claim import Claim, DataSource
from provisioner.model.data_source import CLAIM_FINALIZER
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.volume_snapshot import SOURCE_FINALIZER
from tests.builders import (
    UID,
    VOLUME,
    a_claim,
    an_ec2_error,
)
from tests.controller.source_world import SourceWorld, a_copy
from tests.sources import (
    CLONE,
    OTHER_UID,
    RESTORE,
    a_content,
    a_snapshot,
    a_source,
    its_volume,
    replaced,
)

TEMPORARY = "snap-0ccccccccccccccc3"
COPIED = a_copy(source_volume_id=VOLUME)
PENDING = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.PENDING, 1)
BOUND = a_claim(volume_name="x")
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
REPLY_LOST = KubeError(Reason.REPLY_LOST, "the reply was lost", outcome=Outcome.UNKNOWN)


def a_held_source(clone: Claim = BOUND) -> SourceWorld:
    """A source with the finalizer, which nobody needs any more."""
    world = SourceWorld(clone)
    held = replaced(
        a_source(), metadata=replaced(a_source().metadata, finalizers=[CLAIM_FINALIZER])
    )
    world.show(world.caches.claims, held)
    world.kube._version = 5000
    return world


def finalizers_of_the_source(world: SourceWorld) -> list[str]:
    source = world.caches.claim(OTHER_UID)
    assert source is not None
    return source.finalizers


async def test_a_finalizer_comes_off_once_nobody_needs_it():
    world = SourceWorld(CLONE)
    world.show(
        world.caches.claims,
        replaced(
            a_source(),
            metadata=replaced(a_source().metadata, finalizers=["kubernetes.io/x", CLAIM_FINALIZER]),
        ),
    )
    finalizers = world.provisioner.sources.finalizers

    await finalizers.reconcile(CLONE.source_key)
    assert world.kube.sent == []

    world.caches.claims._store.remove(CLONE.key, "9999")
    await finalizers.reconcile(CLONE.source_key)

    [(_, _, body)] = world.kube.sent
    assert body["finalizers"] == ["kubernetes.io/x"]
    assert body["resourceVersion"]


async def test_a_finalizer_stays_while_a_volume_is_made_for_a_claim_that_is_gone():  # race 27
    world = SourceWorld(CLONE)
    world.ec2.answers = [LOST, COPIED]
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    world.caches.claims._store.remove(CLONE.key, "9999")
    finalizers = world.provisioner.sources.finalizers
    before = len(world.kube.sent)

    await finalizers.reconcile(CLONE.source_key)
    assert len(world.kube.sent) == before

    await world.provisioner.reconcile(UID)
    assert CLONE.source_key in finalizers.queue._entries
    await finalizers.reconcile(CLONE.source_key)
    assert world.written()[-1] == "patch persistentvolumeclaims finalizers"


async def test_a_pass_over_a_source_looks_at_no_attempt_of_another(
    monkeypatch: pytest.MonkeyPatch,
):
    world = SourceWorld(CLONE)
    world.ec2.answers = [LOST]
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    attempts = world.provisioner.creations.attempts
    plan = attempts[UID].plan
    for number in range(100):
        other = DataSource(kind="PersistentVolumeClaim", name=f"other-{number}")
        restored = dataclasses.replace(plan, claim=a_claim(uid=f"uid-{number}", source=other))
        attempts[f"uid-{number}"] = dataclasses.replace(attempts[UID], plan=restored)
    asked: list[Claim] = []
    plain = Claim.source_key.fget  # type: ignore[attr-defined]

    def source_key(claim: Claim) -> str:
        asked.append(claim)
        return str(plain(claim))

    monkeypatch.setattr(Claim, "source_key", property(source_key))
    await world.provisioner.sources.finalizers.reconcile(CLONE.source_key)

    assert len(asked) == 1


async def test_a_conflict_over_finalizers_is_read_again_and_none_is_brought_back():  # race 16
    world = SourceWorld(CLONE)
    world.kube.failures = [(KubeError(Reason.CONFLICT, "changed"), False)]

    await world.provisioner.sources.finalizers.hold(CLONE)

    assert len(world.kube.sent) == 2
    source = world.caches.claim(OTHER_UID)
    assert source is not None
    assert source.finalizers == [CLAIM_FINALIZER]


async def test_a_clone_that_comes_while_a_finalizer_is_taken_off_puts_it_on_again():
    world = a_held_source()
    finalizers, patch = world.provisioner.sources.finalizers, world.kube.patch
    on_the_way, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **more: Any) -> Any:
        on_the_way.set()
        await goes_on.wait()
        return await patch(*args, **more)

    world.kube.patch = slow  # type: ignore[method-assign]
    letting_go = asyncio.create_task(finalizers.reconcile(CLONE.source_key))
    await on_the_way.wait()
    world.show(world.caches.claims, CLONE)
    holding = asyncio.create_task(finalizers.hold(CLONE))
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(letting_go, holding)

    assert finalizers_of_the_source(world) == [CLAIM_FINALIZER]


async def test_after_a_conflict_it_is_decided_anew_whether_a_finalizer_comes_off():
    world = a_held_source()
    patch, refused = world.kube.patch, KubeError(Reason.CONFLICT, "changed")

    async def conflicting(*args: Any, **more: Any) -> Any:
        world.show(world.caches.claims, CLONE)  # it has come meanwhile
        world.kube.failures = [(refused, False)]
        world.kube.patch = patch  # type: ignore[method-assign]
        return await patch(*args, **more)

    world.kube.patch = conflicting  # type: ignore[method-assign]
    await world.provisioner.sources.finalizers.reconcile(CLONE.source_key)

    assert len(world.kube.sent) == 1
    assert finalizers_of_the_source(world) == [CLAIM_FINALIZER]


async def test_after_a_lost_reply_the_cache_is_not_believed_that_a_source_is_held():
    world = a_held_source()
    held = world.caches.claim(OTHER_UID)
    assert held is not None
    world.kube.failures = [(REPLY_LOST, True)]
    finalizers = world.provisioner.sources.finalizers
    with pytest.raises(KubeError):
        await finalizers.reconcile(CLONE.source_key)
    now, live = world.caches.claim(OTHER_UID), world.kube.get
    assert now is not None

    async def get(resource: Any, name: str, namespace: str = "") -> Any:
        found = await live(resource, name, namespace)
        return now if found is held else found  # the watch is late

    world.kube.get = get  # type: ignore[method-assign]
    world.caches.claims._store.remove(held.key, "9999")
    world.caches.claims._store.apply(held)

    await finalizers.hold(CLONE)

    assert finalizers_of_the_source(world) == [CLAIM_FINALIZER]
    assert len(world.kube.sent) == 2


async def test_a_source_of_another_driver_is_left_to_it():
    world = a_held_source()
    world.show(world.caches.persistent_volumes, its_volume(driver="disk.example"))

    await world.provisioner.sources.finalizers.reconcile(CLONE.source_key)

    assert world.kube.sent == []


@pytest.mark.parametrize("kind", ["claim", "snapshot"])
async def test_whose_a_source_is_is_read_where_the_cache_does_not_tell(kind: str):
    world = a_held_source()
    caches, live = world.caches, world.kube.get
    late = its_volume(driver="disk.example") if kind == "claim" else a_content(driver="x.example")
    world.show(caches.snapshots, a_snapshot(finalizers=[SOURCE_FINALIZER]))
    caches.persistent_volumes._store.remove(late.name, "9999")
    caches.contents._store.remove(late.name, "9999")

    async def get(resource: Any, name: str, namespace: str = "") -> Any:
        return late if name == late.name else await live(resource, name, namespace)

    world.kube.get = get  # type: ignore[method-assign]
    key = CLONE.source_key if kind == "claim" else RESTORE.source_key
    await world.provisioner.sources.finalizers.reconcile(key)
    assert world.kube.sent == []

    world.kube.get = live  # type: ignore[method-assign]
    await world.provisioner.sources.finalizers.reconcile(key)
    assert len(world.kube.sent) == 1  # nobody else would take it off
