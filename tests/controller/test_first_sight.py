"""What needs nothing costs a new leader no pass: of a large cluster, that is nearly all."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from provisioner.controller.attaching.flow import Attacher
from provisioner.controller.deleting.flow import Deleter
from provisioner.controller.modifying.flow import Modifier
from provisioner.controller.modifying.state import ClaimState
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.kube.queue import KeyedQueue
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim, ClaimStatus
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import PINNED_ZONE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import VolumeAttributesClass
from tests.builders import DRIVER, UID, a_claim, a_persistent_volume, an_attachment
from tests.controller.services import CurrentCaches

GOLD = VolumeAttributesClass(metadata=ObjectMeta(name="gold"), driver_name=DRIVER)
PRE_RESIZE = "volume.alpha.kubernetes.io/pre-resize-capacity"


class NotAsked:
    """Services of which none is asked anything that counts."""

    def __init__(self, **known: Any) -> None:
        vars(self).update(known)

    def __getattr__(self, _: str) -> Any:
        return NotAsked()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return NotAsked()


def flow(kind: Any, caches: CurrentCaches) -> Any:
    services = NotAsked(settings=Settings(driver=DRIVER), caches=caches, metrics=Metrics())
    made = kind(cast("Services", services))
    made.subscribe()
    return made


def keys(queue: KeyedQueue) -> list[str]:
    return list(queue._ready)


def a_bound_claim(*, request: str = "1Gi", **more: Any) -> Claim:
    status = ClaimStatus(phase="Bound", capacity={"storage": "1Gi"}, **more)
    claim = a_claim(size=request, volume_name=f"pvc-{UID}")
    return msgspec.structs.replace(claim, status=status)


@pytest.mark.parametrize(
    ("found", "is_examined"),
    [
        (a_persistent_volume(), False),
        (a_persistent_volume(phase="Available", claim_uid=None), False),
        (a_persistent_volume(finalizers=()), True),
        (a_persistent_volume(phase="Released"), True),
        # What it needs depends on attachments, and one may go while the caches are introduced.
        (a_persistent_volume(deleting=True), True),
    ],
    ids=["bound", "available", "without our finalizer", "released", "deleting"],
)
async def test_a_persistent_volume(*, found: PersistentVolume, is_examined: bool) -> None:
    caches = CurrentCaches()
    caches.persistent_volumes._store.apply(found)

    deleter = flow(Deleter, caches)

    assert keys(deleter.queue) == ([found.name] if is_examined else [])


async def test_a_persistent_volume_that_changes_is_examined() -> None:
    caches = CurrentCaches()
    caches.persistent_volumes._store.apply(a_persistent_volume())
    deleter = flow(Deleter, caches)

    changed = a_persistent_volume()
    meta = msgspec.structs.replace(changed.metadata, resource_version="99")
    caches.persistent_volumes._store.apply(msgspec.structs.replace(changed, metadata=meta))

    assert keys(deleter.queue) == [changed.name]


@pytest.mark.parametrize(
    ("more", "is_examined"),
    [({"attached": True}, False), ({"attached": True, "deleting": True}, True), ({}, True)],
    ids=["attached", "attached, to be detached", "to be attached"],
)
async def test_an_attachment(*, more: dict[str, bool], is_examined: bool) -> None:
    caches = CurrentCaches()
    caches.persistent_volumes._store.apply(a_persistent_volume())
    caches.attachments._store.apply(an_attachment(**more))  # type: ignore[arg-type]

    attacher = flow(Attacher, caches)

    assert keys(attacher.queue) == (["csi-1"] if is_examined else [])


async def test_an_attachment_of_which_something_is_remembered_is_examined() -> None:
    caches = CurrentCaches()
    attacher = flow(Attacher, caches)
    attacher._state.begin(an_attachment())

    caches.attachments._store.apply(an_attachment(attached=True))

    assert keys(attacher.queue) == ["csi-1"]


@pytest.mark.parametrize(
    ("claim", "found", "is_examined"),
    [
        (a_bound_claim(), a_persistent_volume(), False),
        (a_bound_claim(request="2Gi"), a_persistent_volume(), True),
        (
            a_bound_claim(allocated_resource_statuses={"storage": "NodeResizeInfeasible"}),
            a_persistent_volume(),
            True,
        ),
        (a_bound_claim(), a_persistent_volume(annotations={PRE_RESIZE: "1Gi"}), True),
        (a_bound_claim(), None, True),
    ],
    ids=["has all", "is to grow", "node refused", "to be tidied", "volume not seen yet"],
)
async def test_a_claim(*, claim: Claim, found: PersistentVolume | None, is_examined: bool) -> None:
    caches = CurrentCaches()
    caches.claims._store.apply(claim)
    if found is not None:
        caches.persistent_volumes._store.apply(found)

    modifier = flow(Modifier, caches)

    assert keys(modifier.queue) == ([UID] if is_examined else [])


def with_gold() -> tuple[CurrentCaches, Modifier, Claim]:
    """A bound claim that has what this class says."""
    caches = CurrentCaches()
    claim = a_bound_claim(current_volume_attributes_class_name="gold")
    spec = msgspec.structs.replace(claim.spec, volume_attributes_class_name="gold")
    claim = msgspec.structs.replace(claim, spec=spec)
    caches.claims._store.apply(claim)
    caches.persistent_volumes._store.apply(a_persistent_volume())
    return caches, flow(Modifier, caches), claim


def looking_at_gold() -> tuple[CurrentCaches, Modifier]:
    """The same, and it is being looked at."""
    caches, modifier, claim = with_gold()
    modifier._states[UID] = ClaimState.of(claim)
    return caches, modifier


async def test_a_claim_that_nobody_looks_at_is_not_examined_when_its_class_is_there() -> None:
    caches, modifier, _ = with_gold()

    caches.attributes_classes._store.apply(GOLD)

    assert keys(modifier.queue) == []


async def test_a_claim_is_not_examined_when_its_class_gets_a_label() -> None:
    caches, modifier = looking_at_gold()
    caches.attributes_classes._store.apply(GOLD)
    modifier.queue._ready.clear()
    modifier.queue._entries.clear()

    labelled = msgspec.structs.replace(GOLD.metadata, resource_version="9", labels={"a": "b"})
    caches.attributes_classes._store.apply(msgspec.structs.replace(GOLD, metadata=labelled))

    assert keys(modifier.queue) == []


async def test_a_claim_that_is_being_looked_at_is_examined_when_its_class_is_there() -> None:
    caches, modifier = looking_at_gold()

    caches.attributes_classes._store.apply(GOLD)

    assert keys(modifier.queue) == [UID]


async def test_an_own_write_to_a_claim_is_kept_as_a_list_would_be() -> None:
    caches = CurrentCaches()
    notes = {PINNED_ZONE: f"us-east-1a/{UID}", "pv.kubernetes.io/bind-completed": "yes"}

    caches.claims.observe(a_claim(annotations=notes, node="node-a", volume_name="pv"))

    (kept,) = caches.claims.values()
    assert set(kept.annotations) == {"pv.kubernetes.io/bind-completed"}
    assert kept.pinned_zone == "us-east-1a"
