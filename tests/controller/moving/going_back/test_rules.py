"""Whether, and how, a claim gets the old volume of a move again."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving import freshness_rules, phase_rules, plan_rules
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.moving.going_back import rules
from provisioner.controller.moving.going_back.rules import Kept
from provisioner.controller.moving.phase_rules import Await, Hold, Introduce, Remove, Retain, Undo
from provisioner.controller.moving.plan_rules import Planned
from provisioner.controller.moving.planning import Planning
from provisioner.controller.moving.together.companion_rules import Companion
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.decision import Refuse
from provisioner.model.document import Document
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume, VolumeState
from provisioner.model.volume_move import VolumeMove
from tests.builders import DELETED_AT, DRIVER, UID, VOLUME, ZONE, a_claim, a_volume

OLD_UID, OLD_PV, OLD_VOLUME, NEW_PV = "old-uid", "pv-0", "vol-0old", "pvc-uid-there"
ATTACHER = finalizer_of_attacher(DRIVER)
SOURCE = {
    "claimUID": OLD_UID,
    "persistentVolume": OLD_PV,
    "volumeID": OLD_VOLUME,
    "reclaimPolicy": "Delete",
    "driver": DRIVER,
}
ON_A_NODE = (InstanceAttachment("i-1", "/dev/xvdba", AttachmentState.ATTACHED),)


def a_move(to: Any = None, status: Any = None) -> VolumeMove:
    """The one that goes back."""
    meta = {"name": "back", "namespace": "shop", "uid": "uid-back"}
    spec = {"claimName": "data", "to": to or {"source": "there"}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, VolumeMove)


def before(phase: str = "Done", claim: str = "data", *, keeps: bool = False) -> VolumeMove:
    """The one that is done."""
    meta = {"name": "there", "namespace": "shop", "uid": "uid-there"}
    status = {"phase": phase, "source": SOURCE, "plan": {"keepsVolume": keeps}}
    body = {"metadata": meta, "spec": {"claimName": claim}, "status": status}
    return msgspec.convert(body, VolumeMove)


def newer(*finalizers: str, name: str = NEW_PV) -> PersistentVolume:
    """What the claim has."""
    meta = {"name": name, "finalizers": [*finalizers], "creationTimestamp": "2026-11-24T10:00:00Z"}
    spec = {
        "csi": {"driver": DRIVER, "volumeHandle": VOLUME},
        "claimRef": {"name": "data", "uid": UID},
        "persistentVolumeReclaimPolicy": "Delete",
    }
    body = {"metadata": meta, "spec": spec, "status": {"phase": "Bound"}}
    return msgspec.convert(body, PersistentVolume)


def the_document(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": OLD_PV, "annotations": {HELD_FOR_MOVE: "shop/back", "note": "stays"}},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": OLD_VOLUME, "fsType": "xfs"},
            "claimRef": {"name": "data", "uid": OLD_UID},
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "4Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "slow",
        }
        | spec,
    }


def kept_pv(held_for: str = "", phase: str = "Released", **spec: Any) -> PersistentVolume:
    body = the_document(**spec)
    meta = {"name": OLD_PV, "annotations": {HELD_FOR_MOVE: held_for} if held_for else {}}
    body |= {"metadata": meta, "status": {"phase": phase}}
    return msgspec.convert(body, PersistentVolume)


def old_volume(**changes: Any) -> Volume:
    free = replace(a_volume(), volume_id=OLD_VOLUME, size_gib=4, state=VolumeState.AVAILABLE)
    return replace(free, attachments=()) if not changes else replace(free, **changes)


def kept(move: VolumeMove | None = None, **changes: Any) -> Kept:
    document = msgspec.convert(the_document(), Document)
    found = Kept(move or before(), kept_pv(), document, old_volume())
    return replace(found, **changes)


def facts(move: VolumeMove | None = None, **changes: Any) -> Facts:
    claim: Any = a_claim(volume_name=NEW_PV, annotations={BIND_COMPLETED: "yes"})
    found = Facts(
        move=move or a_move(),
        claim=claim,
        persistent_volume=newer(),
        document=msgspec.convert({"spec": {"csi": {}}}, Document),
        volume=replace(a_volume(), zone="us-east-1b", size_gib=10),
        class_name="slow",
        storage_class=None,
        read_class=None,
        zones={ZONE, "us-east-1b"},
        others=[before()],
        consumers=[],
        kept=kept(),
    )
    return replace(found, **changes)


def examined(given: Facts) -> Planned | Refuse:
    return plan_rules.examine(given, driver=DRIVER, cluster_id="c", extra_tags=())


def planned(given: Facts | None = None) -> Planned:
    found = examined(given or facts())
    assert isinstance(found, Planned), found
    return found


def test_the_plan_gives_the_claim_another_object_of_the_kept_volume_and_copies_nothing():
    made = planned()

    assert made.request is None
    assert made.source.persistent_volume == NEW_PV
    spec, meta = made.body["spec"], made.body["metadata"]
    assert meta["name"] == "pvc-uid-back"
    assert meta["annotations"] == {"note": "stays"}
    assert spec["csi"]["volumeHandle"] == OLD_VOLUME
    assert spec["csi"]["fsType"] == "xfs"
    assert spec["persistentVolumeReclaimPolicy"] == "Delete"  # as before the first move
    assert spec["storageClassName"] == "slow"
    assert spec["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "shop",
        "name": "data",
    }
    assert made.plan.target.zone == ZONE
    assert not made.plan.warms
    assert made.kept is not None
    assert (made.kept.persistent_volume, made.kept.claim_uid) == (OLD_PV, OLD_UID)


def test_the_plan_says_since_when_what_was_written_is_lost():
    made = planned(facts(persistent_volume=newer(ATTACHER)))

    assert made.plan.notes[0] == (
        f"what was written to volume {VOLUME} since 2026-11-24T10:00:00+00:00 is not in volume "
        f"{OLD_VOLUME}: the claim loses it, and PersistentVolume {NEW_PV} keeps volume {VOLUME} "
        "for 168h"
    )
    assert made.kept is not None
    assert not made.kept.is_all


def test_nothing_is_lost_of_a_volume_that_no_node_has_had():
    made = planned()

    assert "nothing is lost" in made.plan.notes[0]
    assert made.kept is not None
    assert made.kept.is_all


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"move": None}, "VolumeMove there does not exist"),
        ({"move": before(claim="other")}, "has moved claim shop/other"),
        ({"move": before("Creating")}, "abort it instead"),
        ({"move": before("Swapping")}, "is not done"),
        ({"move": before("Aborted")}, "is not done"),
        ({"move": before(keeps=True)}, "has kept the volume"),
        ({"persistent_volume": None}, "PersistentVolume pv-0 is gone"),
        ({"volume": None}, "EC2's volume is gone"),
        ({"persistent_volume": kept_pv(phase="Bound")}, "does not keep the old volume"),
        (
            {"persistent_volume": kept_pv(persistentVolumeReclaimPolicy="Delete")},
            "its policy Delete",
        ),
        ({"persistent_volume": kept_pv(claimRef={"uid": "of another"})}, "does not keep"),
        ({"namesakes": {"pv-9"}}, "PersistentVolume pv-9 names volume"),
        ({"volume": old_volume(attachments=ON_A_NODE)}, "is attached to i-1: end that first"),
    ],
)
def test_what_is_not_kept_any_more_is_not_gone_back_to(changes: Any, says: str):
    refused = examined(facts(kept=replace(kept(), **changes)))

    assert isinstance(refused, Refuse)
    assert says in refused.message


def test_a_later_move_is_gone_back_from_first():
    refused = examined(facts(persistent_volume=newer(name="pvc-later")))

    assert isinstance(refused, Refuse)
    assert "go back by the VolumeMove that has" in refused.message


def test_it_goes_back_to_the_volume_as_it_is_and_where_a_node_is():
    both = examined(facts(a_move({"source": "there", "zone": "us-east-1b"})))
    nowhere = examined(facts(zones={"us-east-1b"}))

    assert isinstance(both, Refuse)
    assert "leave the other fields of to out" in both.message
    assert isinstance(nowhere, Refuse)
    assert f"no node with the driver is in zone {ZONE}" in nowhere.message


def in_held(*, is_all: bool = False) -> VolumeMove:
    record = {
        "persistentVolume": OLD_PV,
        "volumeID": OLD_VOLUME,
        "claimUID": OLD_UID,
        "reclaimPolicy": "Delete",
        "isAll": is_all,
    }
    source = {"claimUID": UID, "persistentVolume": NEW_PV, "volumeID": VOLUME}
    shape = {"sizeGiB": 4, "storageClassName": "slow"}
    status = {"phase": "Held", "kept": record, "source": source, "plan": {"target": shape}}
    return a_move(status=status)


def held_step(found: Any, volume: Any = None, **given: Any) -> Any:
    now = given.pop("newer", newer())
    return rules.next_step(in_held(**given), found, volume or old_volume(), now, DRIVER)


def test_the_kept_volume_is_held_before_pods_stop():
    assert held_step(kept_pv()) == Hold()
    assert held_step(kept_pv("shop/back")) is None


@pytest.mark.parametrize(
    "found",
    [
        None,
        kept_pv("shop/back", persistentVolumeReclaimPolicy="Delete"),  # keepSource was faster
        kept_pv("shop/back", phase="Bound"),
        kept_pv("shop/other"),
        msgspec.structs.replace(
            kept_pv("shop/back"),
            metadata=msgspec.structs.replace(
                kept_pv("shop/back").metadata, deletion_timestamp=DELETED_AT
            ),
        ),
    ],
)
def test_a_volume_that_is_not_kept_any_more_undoes_the_move(found: Any):
    assert isinstance(held_step(found), Undo)


def test_a_volume_that_somebody_looks_into_is_waited_for():
    busy = old_volume(attachments=ON_A_NODE, state=VolumeState.IN_USE)

    assert isinstance(held_step(kept_pv("shop/back"), busy), Await)


def test_what_was_written_since_a_plan_that_loses_nothing_undoes_the_move():
    lost = held_step(kept_pv("shop/back"), newer=newer(ATTACHER), is_all=True)

    assert isinstance(lost, Undo)
    assert "would be lost" in lost.message
    assert held_step(kept_pv("shop/back"), newer=newer(ATTACHER), is_all=False) is None


def test_what_an_attacher_had_marked_before_the_hold_counts_as_written_to():
    held = freshness_rules.held(newer(ATTACHER), in_held(), DRIVER)
    body = {"metadata": held, "spec": msgspec.to_builtins(newer().spec)}
    noted = msgspec.convert(body, PersistentVolume)

    assert noted.finalizers == []
    assert isinstance(held_step(kept_pv("shop/back"), newer=noted, is_all=True), Undo)


def the_claim() -> Document:
    body = {
        "metadata": {"name": "data", "namespace": "shop", "uid": UID, "resourceVersion": "7"},
        "spec": {
            "volumeName": NEW_PV,
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
    return msgspec.convert(body, Document)


def in_swap() -> VolumeMove:
    move, claim = in_held(), phase_rules.record(the_claim())
    status = msgspec.structs.replace(move.told, phase="Swapping", claim=claim, volume=OLD_VOLUME)
    return msgspec.structs.replace(move, status=status)


def test_the_object_of_the_kept_volume_comes_after_the_newer_one_has_retain():
    retained = newer()
    retained = msgspec.structs.replace(
        retained,
        spec=msgspec.structs.replace(retained.spec, persistent_volume_reclaim_policy="Retain"),
    )
    object_of_kept = msgspec.structs.replace(
        kept_pv(), metadata=msgspec.structs.replace(kept_pv().metadata, name="pvc-uid-back")
    )
    step, claim = phase_rules.next_swap_step, the_claim()

    assert step(in_swap(), newer(), claim, ()) == Retain()
    assert step(in_swap(), retained, claim, ()) == Introduce()
    assert step(in_swap(), retained, claim, (), object_of_kept) == Remove(UID, "7")


def test_the_claim_asks_for_the_class_and_the_size_of_the_volume_that_it_gets_again():
    spec = phase_rules.recreated(in_swap(), in_swap().told.claim)["spec"]

    assert spec["volumeName"] == "pvc-uid-back"
    assert spec["storageClassName"] == "slow"
    assert spec["resources"]["requests"]["storage"] == "4Gi"  # else it would be grown
    assert json.loads(in_swap().told.claim)["spec"]["storageClassName"] == "fast"


def test_a_claim_that_goes_back_to_a_volume_without_a_class_has_none_again():
    move = in_swap()
    assert move.told.plan is not None
    target = msgspec.structs.replace(move.told.plan.target, storage_class_name="")
    plan = msgspec.structs.replace(move.told.plan, target=target)
    move = msgspec.structs.replace(move, status=msgspec.structs.replace(move.told, plan=plan))

    spec = phase_rules.recreated(move, move.told.claim)["spec"]

    assert spec["storageClassName"] == ""


def test_the_plan_to_go_back_counts_no_class_that_the_other_claims_are_to_leave():
    """They go back as well, each to its own: all are counted right before the swap."""
    fast = "fast.storageclass.storage.k8s.io/requests.storage"
    status = {"hard": {fast: "0"}, "used": {fast: "4Gi"}}
    quota = msgspec.convert({"metadata": {"name": "all"}, "status": status}, ResourceQuota)

    assert planned(facts(moved_with=[a_claim("logs")], quotas=[quota])).plan.target.zone == ZONE


def test_the_newer_volume_is_what_is_kept_afterwards():
    move = in_swap()
    source = msgspec.structs.replace(move.source, reclaim_policy="Delete")

    assert phase_rules.kept(move, source, "then", is_there=True) == (
        f"PersistentVolume {NEW_PV} keeps the newer volume {VOLUME} until then"
    )


def test_a_pod_whose_other_claim_would_stay_behind_is_named_with_what_helps():
    """It would find no node: seen on 2026-11-28."""
    logs = Companion("logs", zones=frozenset({"us-east-1b"}), pods=["web-0"])
    found = examined(facts(companions=[logs]))

    assert isinstance(found, Refuse)
    assert found.message.startswith("pod web-0 uses claim logs as well, in zone us-east-1b, and")
    together = structs.replace(a_move(), spec=structs.replace(a_move().spec, moved_with=["logs"]))
    assert planned(facts(together, companions=[logs])).plan.target.zone == ZONE


async def test_for_the_plan_the_other_claims_are_read_by_the_zone_of_the_kept_volume():
    asked: list[str] = []
    planning = object.__new__(Planning)
    there = facts()

    async def none(*_: Any, **__: Any) -> Any:
        return None

    async def listed(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(items=[])

    async def of_pods(_: VolumeMove, __: Any, zone: str) -> Any:
        asked.append(zone)
        return []

    caches = SimpleNamespace(
        persistent_volumes=SimpleNamespace(keyed=lambda *_: []),
        moves=SimpleNamespace(keyed=lambda *_: []),
        nodes={},
        claims={},
        registered=SimpleNamespace(places=[]),
        storage_class=none,
    )
    client = SimpleNamespace(list=listed, get=none)
    fakes: dict[str, Any] = {
        "_services": SimpleNamespace(client=client),
        "_caches": caches,
        "_driver": DRIVER,
        "_record": SimpleNamespace(
            claim=none,
            persistent_volume=none,
            volume_document=none,
            volume_like=none,
            pods=none,
            quotas=none,
        ),
        "_consumers": SimpleNamespace(look=none),
        "_restarts": SimpleNamespace(has_hold=none),
        "_copier": SimpleNamespace(why_not=none),
        "_companions": SimpleNamespace(of_pods=of_pods),
        "_going_back": SimpleNamespace(look=lambda _: found(there.kept)),
    }
    for name, fake in fakes.items():
        setattr(planning, name, fake)
    await planning._facts(there.move)

    assert asked == [ZONE]


async def found(what: Any) -> Any:
    return what
