"""Decide whether a claim can be moved as its VolumeMove asks, and freeze what is made for it.

Nothing is touched before this is written to the VolumeMove, and nothing that happens to the class
later changes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from provisioner.classes import iops_rules
from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.moving import form_rules, phase_rules
from provisioner.controller.moving.copying import plan_rules as copy_plan_rules
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.moving.going_back import rules as back_rules
from provisioner.controller.moving.pods import (
    consumer_rules,
    gate_rules,
    interference_rules,
    restart_rules,
)
from provisioner.controller.moving.shape_rules import (
    differs,
    plain_class,
    shape_of,
    target_of,
    unlike,
)
from provisioner.controller.moving.shape_rules import no as _no
from provisioner.controller.moving.staying import rules as stay_rules
from provisioner.controller.moving.staying.rules import Change
from provisioner.controller.moving.together import companion_rules, place_rules
from provisioner.controller.moving.warming import rules as warm_rules
from provisioner.controller.provisioning import plan_rules
from provisioner.controller.provisioning.client_token_rules import client_token
from provisioner.controller.provisioning.persistent_volume_rules import zone_affinity
from provisioner.model.claim import CLAIM_KIND, Claim, foreign_finalizer
from provisioner.model.data_source import CLAIM_FINALIZER
from provisioner.model.decision import Refuse
from provisioner.model.document import Document
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import (
    ATTACHED_BEFORE_MOVE,
    HELD_FOR_MOVE,
    LEFT_BY_MOVE,
    MODIFICATIONS,
    POLICY_BEFORE_MOVE,
)
from provisioner.model.node_affinity import REGION_LABEL
from provisioner.model.persistent_volume import PROVISIONED_BY, PersistentVolume
from provisioner.model.sentences import listed
from provisioner.model.tag_template import TagTemplate
from provisioner.model.volume import CreateRequest, Volume
from provisioner.model.volume_move import (
    MoveKept,
    MovePlan,
    MoveSource,
    MoveTarget,
    Shape,
    VolumeMove,
)
from provisioner.model.volume_type import fault
from provisioner.model.zone import BETA_ZONE_LABEL, ZONE_LABEL, allowed_zones

Json = dict[str, Any]
# While a VolumeSnapshot of it is not ready. Source: external-snapshotter 8 pkg/utils/util.go.
SNAPSHOT_PROTECTION = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
_IDENTITY = "storage.kubernetes.io/csiProvisionerIdentity"
_TOPOLOGY = frozenset({ZONE_LABEL, BETA_ZONE_LABEL, REGION_LABEL})
# Annotations that are not those of the next PersistentVolume.
_OF_ONE_OBJECT = (
    *(ATTACHED_BEFORE_MOVE, HELD_FOR_MOVE, LEFT_BY_MOVE, POLICY_BEFORE_MOVE),
    MODIFICATIONS,
)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is done.

    ``request``: without its snapshot, None if nothing is copied; ``body``: the new
    PersistentVolume; ``kept``: the volume that the claim gets again.
    """

    plan: MovePlan
    source: MoveSource
    request: CreateRequest | None
    body: Json
    kept: MoveKept | None = None


@dataclass(frozen=True, slots=True)
class AsAsked(Refuse):
    """There is nothing to do: whoever moves many claims can pass this one over."""


def target_class_name(move: VolumeMove, claim: Claim | None) -> str:
    """The class that the claim will have."""
    return move.spec.to.storage_class_name or (claim.class_name if claim is not None else "")


def examine(
    facts: Facts, *, driver: str, cluster_id: str, extra_tags: Sequence[TagTemplate]
) -> Planned | Refuse:
    """Make the plan, or say in one sentence why there is none."""
    planned = _examined(facts, driver, cluster_id, extra_tags)
    if isinstance(planned, Refuse):
        return planned
    weak = gate_rules.not_held(
        facts.move,
        has_hold=facts.has_hold,
        changes_zone=planned.plan.source.zone != planned.plan.target.zone,
    )
    return _no(weak) if weak is not None else planned


def _examined(
    facts: Facts, driver: str, cluster_id: str, extra_tags: Sequence[TagTemplate]
) -> Planned | Refuse:
    claim, found, volume = facts.claim, facts.persistent_volume, facts.volume
    refused = _no_claim(facts) or _is_there(facts)
    refused = refused or _no_volume(facts, driver) or _no_way(facts)
    if refused or not claim or not found or not facts.document or not volume:
        return refused or _no(f"claim {facts.move.claim_key} has no volume")
    source = _source(claim, found, volume, driver)
    if facts.kept is not None:
        return _back(facts, facts.kept, source, found, volume)
    read_class = _class(facts, driver)
    if isinstance(read_class, Refuse):
        return read_class
    plan = _planned(facts, facts.document, volume, read_class, driver)
    if isinstance(plan, Refuse):
        return plan
    if plan.keeps_volume:
        return _staying(facts, plan, source, read_class, document=facts.document, volume=volume)
    try:
        written = plan_rules.tags_of(stand_in(facts.move), read_class, cluster_id, extra_tags)
    except ValueError as error:
        return _no(f"class {facts.class_name!r} or --extra-tags: {error}")
    old = form_rules.in_csi_form(facts.document, driver)
    body = _body(facts.move, old, read_class, plan.target)
    if plan.copies_files:
        body = copy_plan_rules.of_new_file_system(body, facts.move.spec.to.fs_type)
    return Planned(plan, source, _request(facts.move, plan.target, written), body)


def _planned(
    facts: Facts, old: Document, volume: Volume, read_class: ReadClass, driver: str
) -> MovePlan | Refuse:
    """The plan of a move to another volume, or of one that stays."""
    claim, target = facts.claim, target_of(facts, volume, read_class)
    if isinstance(target, Refuse):
        return target
    before = shape_of(volume, claim.class_name if claim is not None else "")
    copies = copy_plan_rules.is_asked(facts.move, volume, old)
    if copies:
        now = copy_plan_rules.file_system_of(old)
        before = structs.replace(before, fs_type=now)
        target = structs.replace(target, fs_type=facts.move.spec.to.fs_type or now)
    change = stay_rules.change_of(facts, old)
    if (change.is_any and change.is_alone(facts.move)) or _fits(facts, before, target):
        before = structs.replace(before, driver=change.now)
        target = structs.replace(target, driver=change.then)
        refused = _no_stay(facts, volume, change, before, target)
        notes = stay_rules.notes(facts, change, read_class)
        return refused or _plan(facts, before, target, driver, *notes, keeps_volume=True)
    if change.is_of_driver:
        return _no(stay_rules.no_copy(change, volume, unlike(before, target)))
    refused = _impossible(facts, before, target)
    if refused is None and copies:
        refused = _no_copy(facts, old, before, target)
    if refused is not None:
        return refused
    checks = facts.move.spec.check and not copies
    if checks and (said := copy_plan_rules.not_checked(facts.move, old, facts.pod_refused)):
        return _no(said)
    pod_has = [before.size_gib, target.size_gib] if copies else [target.size_gib] if checks else []
    if said := interference_rules.no_room_beside(facts.quotas, pod_has):
        return _no(said)
    warms = not copies and warm_rules.is_worth_it(facts.move, volume)
    return _plan(facts, before, target, driver, copies_files=copies, checks=checks, warms=warms)


def _fits(facts: Facts, before: Shape, target: Shape) -> bool:
    """Whether the volume that is there is as the class asks, so that only objects are to change."""
    return bool(facts.move.spec.to.storage_class_name) and unlike(before, target) is None


def _no_stay(
    facts: Facts, volume: Volume, change: Change, before: Shape, target: Shape
) -> Refuse | None:
    """Why the volume cannot get another PersistentVolume."""
    if not change.is_any and before.storage_class_name == target.storage_class_name:
        return _nothing_to_do(volume.volume_id)
    if facts.move.spec.to.storage_class_name:
        refused = _outside(facts, target.zone)
        if refused is not None:
            return refused
    wrong = stay_rules.not_ready(change, volume)
    return _no(wrong) if wrong is not None else None


def _nothing_to_do(volume_id: str) -> AsAsked:
    message = f"volume {volume_id} is already as the move asks: nothing is to be done"
    return AsAsked(Reason.NOT_SUPPORTED, message, settled=True)


def _outside(facts: Facts, zone: str) -> Refuse | None:
    terms = facts.storage_class.allowed_topologies if facts.storage_class is not None else None
    allowed = allowed_zones(terms or ())
    if allowed is None or zone in allowed:
        return None
    return _no(
        f"StorageClass {facts.class_name!r} allows zone {listed(allowed)} only, not {zone} "
        "(allowedTopologies)"
    )


def _no_copy(facts: Facts, old: Document, before: Shape, target: Shape) -> Refuse | None:
    said = copy_plan_rules.refused(facts.move, old, before, target, facts.pod_refused)
    return _no(said) if said is not None else None


def _source(claim: Claim, found: PersistentVolume, volume: Volume, driver: str) -> MoveSource:
    return MoveSource(
        claim_uid=claim.uid,
        persistent_volume=found.name,
        volume_id=volume.volume_id,
        reclaim_policy=found.reclaim_policy,
        driver=driver,
    )


def _staying(
    facts: Facts,
    plan: MovePlan,
    source: MoveSource,
    read_class: ReadClass,
    *,
    document: Document,
    volume: Volume,
) -> Planned:
    """What is made for a volume that stays: another PersistentVolume that names it."""
    old = form_rules.in_csi_form(document, source.driver)
    body = with_volume(_body(facts.move, old, read_class, plan.target), volume)
    body = form_rules.of_same_volume(stay_rules.of_driver(body, plan.target.driver), document)
    return Planned(plan, source, None, body)


def _back(
    facts: Facts,
    kept: back_rules.Kept,
    source: MoveSource,
    newer: PersistentVolume,
    volume: Volume,
) -> Planned | Refuse:
    """The plan of a move that gives the claim the old volume of another one again."""
    move, driver, existing = facts.move, source.driver, kept.volume
    wrong = back_rules.refused(move, newer, kept, driver)
    if wrong is not None or existing is None or kept.document is None:
        return _no(wrong or "there is nothing to go back to")
    behind = companion_rules.left_behind(move, facts.companions, existing.zone)
    if behind is not None and existing.zone != volume.zone:
        return _no(behind)
    if existing.zone not in facts.zones:
        return _no(f"no node with the driver is in zone {existing.zone}")
    record = back_rules.recorded(kept, newer, driver)
    claim_class = facts.claim.class_name if facts.claim is not None else ""
    before, target = shape_of(volume, claim_class), shape_of(existing, kept.class_name)
    old = form_rules.in_csi_form(kept.document, driver)
    body = _body(move, old, plain_class(kept.class_name, driver), target)
    body = form_rules.of_same_volume(with_volume(body, existing), kept.document)
    body["spec"]["persistentVolumeReclaimPolicy"] = record.reclaim_policy or "Retain"
    lost = back_rules.notes(move, record, newer, volume.volume_id)
    return Planned(_plan(facts, before, target, driver, *lost), source, None, body, record)


def _plan(
    facts: Facts,
    before: Shape,
    target: Shape,
    driver: str,
    *first: str,
    keeps_volume: bool = False,
    copies_files: bool = False,
    checks: bool = False,
    warms: bool = False,
) -> MovePlan:
    """What the user reads; ``first``: sentences before all others."""
    return MovePlan(
        source=before,
        target=target,
        keeps_volume=keeps_volume,
        copies_files=copies_files,
        checks=checks,
        warms=warms,
        pods=_stopping(facts),
        stops=_stops(facts),
        notes=[
            *first,
            *_notes(facts, before, target, driver),
            *(copy_plan_rules.notes(facts.move.metadata.namespace) if copies_files else []),
            *copy_plan_rules.check_notes(facts.move, checks=checks, copies_files=copies_files),
            *([warm_rules.NOTE] if warms else []),
        ],
    )


def stand_in(move: VolumeMove) -> Claim:
    """The claim for which a volume is made: the name of the real one, and the move's own UID."""
    meta = ObjectMeta(name=move.spec.claim_name, namespace=move.metadata.namespace, uid=move.uid)
    return Claim(metadata=meta)


def _no_claim(facts: Facts) -> Refuse | None:
    claim, key = facts.claim, facts.move.claim_key
    if claim is None:
        return _no(f"claim {key} does not exist; correct claimName in another VolumeMove")
    if claim.deleting:
        return _no(f"claim {key} is being deleted")
    if not claim.is_bound:
        return _no(f"claim {key} is not bound to a volume yet; wait until it is")
    if claim.is_for_many_nodes:
        return _no(
            f"claim {key} has the access mode ReadWriteMany (Multi-Attach): whether all nodes have "
            "let go of it cannot be known, so it is not moved"
        )
    if CLAIM_FINALIZER in claim.finalizers:
        return _no(f"claim {key} is being cloned; wait until the clone is bound")
    if SNAPSHOT_PROTECTION in claim.finalizers:
        return _no(
            f"a snapshot of claim {key} is being taken; wait until the VolumeSnapshot is ready"
        )
    owner = next((each.name for each in facts.pods if key in each.ephemeral_claim_keys), None)
    if owner is not None:
        return _no(
            f"claim {key} is an ephemeral volume of pod {owner}: Kubernetes deletes it with the "
            "pod, which would have to end, so it is not moved"
        )
    foreign = foreign_finalizer(claim)
    if foreign:
        return _no(
            f"claim {key} has the finalizer {foreign}: its owner would take the move for the "
            "claim's deletion; wait until it is removed, or remove it"
        )
    if claim.attributes_class_name and facts.move.spec.to.storage_class_name:
        return _no(
            f"claim {key} has the VolumeAttributesClass {claim.attributes_class_name}, which "
            "counts more than a StorageClass: move it without storageClassName"
        )
    second = phase_rules.second(facts.move, facts.others)
    if second is not None:
        return _no(second.message)
    return None


def _is_there(facts: Facts) -> AsAsked | None:
    """Whether only a zone is asked for, and it is the volume's: then nothing else matters."""
    volume = facts.volume
    if volume is None or facts.move.spec.to != MoveTarget(zone=volume.zone):
        return None
    return _nothing_to_do(volume.volume_id)


def _no_volume(facts: Facts, driver: str) -> Refuse | None:
    claim, found, volume = facts.claim, facts.persistent_volume, facts.volume
    if claim is None or found is None or facts.document is None:
        name = claim.spec.volume_name if claim else ""
        return _no(f"PersistentVolume {name} of the claim does not exist")
    holder, wrong = found.spec.claim_ref, stay_rules.refused(facts, driver)
    if wrong is not None:
        return _no(wrong)
    if holder is None or holder.uid != claim.uid:
        return _no(f"PersistentVolume {found.name} is bound to another claim")
    if volume is None:
        return _no(f"EC2 does not know volume {found.named_volume} of the claim")
    if facts.namesakes:
        return _no(stay_rules.named_twice(facts, min(facts.namesakes), volume.volume_id))
    if volume.multi_attach:
        return _no(f"volume {volume.volume_id} has Multi-Attach enabled, so it is not moved")
    if volume.outpost_arn:
        return _no(f"volume {volume.volume_id} is on an Outpost, so it is not moved")
    return None


def _no_way(facts: Facts) -> Refuse | None:
    """Whether pods would not end, or the claim could not be created again."""
    said, claim, move = None, facts.claim, facts.move
    if move.scales_down:
        said = consumer_rules.refused(facts.consumers)
    elif move.restarts:
        said = restart_rules.refused(facts.consumers)
    if said is None and claim is not None:
        # Those that go back have each a class of their own: they are counted before the swap.
        others = () if move.goes_back else facts.moved_with
        changes = [_change(move, claim, facts.class_name)]
        changes += [_change(move, each, target_class_name(move, each)) for each in others]
        said = interference_rules.no_room(facts.quotas, *changes)
    return _no(said) if said is not None else None


def _change(move: VolumeMove, claim: Claim, class_name: str) -> interference_rules.Change:
    old = interference_rules.asked(claim, claim.class_name, "")
    return old, interference_rules.asked(claim, class_name, move.spec.to.size)


def _stopping(facts: Facts) -> list[str]:
    if facts.move.scales_down:
        return consumer_rules.stopping(facts.consumers)
    return [each.name for each in facts.consumers]


def _stops(facts: Facts) -> list[str]:
    if facts.move.restarts:
        return restart_rules.stops(facts.consumers)
    return consumer_rules.stops(facts.consumers) if facts.move.scales_down else []


def _class(facts: Facts, driver: str) -> ReadClass | Refuse:
    """The class of the claim to be; one that is gone does not matter if the claim keeps it."""
    name, found, read = facts.class_name, facts.storage_class, facts.read_class
    if not facts.move.spec.to.storage_class_name:
        return read if isinstance(read, ReadClass) else plain_class(name, driver)
    if found is None:
        return _no(f"StorageClass {name!r} does not exist")
    if not stay_rules.may_have(found.provisioner, driver):
        return _no(f"StorageClass {name!r} belongs to the provisioner {found.provisioner}")
    if not isinstance(read, ReadClass):
        return _no(f"StorageClass {name!r} cannot be used: {read}")
    return read


def _impossible(facts: Facts, before: Shape, target: Shape) -> Refuse | None:
    wrong = fault(target.volume_type, target.size_gib, target.iops, target.throughput_mibps)
    if wrong is not None:
        return _no(f"the new volume cannot be created: {wrong}")
    if target.zone not in facts.zones:
        here = f"; there are some in {listed(facts.zones)}" if facts.zones else ""
        return _no(f"no node with the driver is in zone {target.zone}{here}")
    outside = _outside(facts, target.zone)
    if outside is not None:
        return outside
    if target.zone != before.zone:
        behind = companion_rules.left_behind(facts.move, facts.companions, target.zone)
        if behind is not None:
            return _no(behind)
    if not differs(facts, before, target):
        return _nothing_to_do(facts.volume.volume_id if facts.volume else "")
    return None


def _notes(facts: Facts, before: Shape, target: Shape, driver: str) -> list[str]:
    notes = ["the claim gets another UID; its events and its status begin anew"]
    notes += companion_rules.notes(facts.move)
    if target.zone != before.zone:
        notes += place_rules.notes(facts.pods, facts.nodes, target.zone, driver)
    notes += gate_rules.notes(
        facts.move, has_hold=facts.has_hold, changes_zone=target.zone != before.zone
    )
    if not facts.move.stops_pods:
        notes += consumer_rules.notes(facts.consumers)
    if facts.claim is not None:
        scaled = () if facts.move.restarts else facts.consumers
        notes += interference_rules.notes(scaled, facts.claim, facts.autoscalers)
    read = facts.read_class
    made_with = facts.document.spec.get("csi", {}).get("fsType") if facts.document else None
    asked = read.parameters.file_system if isinstance(read, ReadClass) else None
    if isinstance(read, ReadClass) and facts.move.spec.to.storage_class_name:
        notes += _other_iops(read, target, facts.iops_ceiling)
    wanted = facts.move.spec.to.fs_type
    if made_with and asked and asked != made_with and not wanted:
        notes.append(f"the file system stays {made_with}, although the class says {asked}")
    return notes


def _other_iops(read_class: ReadClass, target: Shape, ceiling: int | None) -> list[str]:
    """That the class asks for other IOPS than the volume gets, as a new claim's user is told."""
    fitted = plan_rules.fitted_iops(read_class.parameters, target.size_gib, ceiling)
    if fitted is None:
        return []
    said = (
        iops_rules.lowered_message(fitted, target.volume_type, target.size_gib),
        iops_rules.raised_message(fitted, target.volume_type),
    )
    return [each for each in said if each is not None]


def _request(
    move: VolumeMove, target: Shape, written: tuple[tuple[str, str], ...]
) -> CreateRequest:
    return CreateRequest(
        client_token=client_token(move.persistent_volume_name),
        zone=target.zone,
        size_gib=target.size_gib,
        volume_type=target.volume_type,
        iops=target.iops,
        throughput_mibps=target.throughput_mibps,
        encrypted=target.encrypted,
        kms_key_id=target.kms_key_id,
        tags=written,
    )


def _body(move: VolumeMove, old: Document, read_class: ReadClass, target: Shape) -> Json:
    """The new PersistentVolume: the old one with another volume, reserved for the claim by name.

    Without a UID in ``claimRef`` the binder lets no other claim have it, and gives it to whichever
    claim of that name comes next. Source: Kubernetes 1.36 pv_controller ``syncVolume``.
    """
    kept = ("accessModes", "volumeMode", "volumeAttributesClassName")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": move.persistent_volume_name,
            "labels": {k: v for k, v in old.labels.items() if k not in _TOPOLOGY},
            "annotations": _kept_annotations(old),
        },
        "spec": {
            **{key: old.spec[key] for key in kept if old.spec.get(key)},
            **_of_class(move, old, read_class),
            "storageClassName": target.storage_class_name,
            "claimRef": {
                "apiVersion": "v1",
                "kind": CLAIM_KIND,
                "namespace": move.metadata.namespace,
                "name": move.spec.claim_name,
            },
        },
    }


def _of_class(move: VolumeMove, old: Document, read_class: ReadClass) -> Json:
    """What follows from the class: of the old one as it is, not as its class says by now.

    The file system is on the volume already, so its type stays.
    """
    csi, spec = dict(old.spec.get("csi") or {}), old.spec
    attributes = {k: v for k, v in (csi.get("volumeAttributes") or {}).items() if k != _IDENTITY}
    mount_options, policy = spec.get("mountOptions"), spec.get("persistentVolumeReclaimPolicy")
    if move.spec.to.storage_class_name:
        partition = {k: v for k, v in attributes.items() if k == "partition"}
        attributes = dict(read_class.parameters.attributes()) | partition
        mount_options = read_class.storage_class.mount_options
        policy = read_class.storage_class.reclaim_policy
    options = {"mountOptions": mount_options} if mount_options else {}
    return {
        "csi": csi | {"volumeAttributes": attributes},
        "persistentVolumeReclaimPolicy": policy or "Delete",
        **options,
    }


def _kept_annotations(old: Document) -> dict[str, str]:
    """Those of the old one but the binder's and ours about its own volume."""
    kept = {PROVISIONED_BY, *(k for k in old.annotations if "kubernetes.io/" not in k)}
    return {
        key: value
        for key, value in old.annotations.items()
        if (key in kept or key.startswith("volume.kubernetes.io/provisioner-deletion-secret"))
        and key not in _OF_ONE_OBJECT
    }


def with_volume(body: Json, volume: Volume) -> Json:
    """The PersistentVolume of a volume that was created."""
    spec, meta = body["spec"], body["metadata"]
    return body | {
        "metadata": meta | {"labels": meta.get("labels", {}) | {ZONE_LABEL: volume.zone}},
        "spec": spec
        | {
            "capacity": {"storage": f"{volume.size_gib}Gi"},
            "csi": spec["csi"] | {"volumeHandle": volume.volume_id},
            "nodeAffinity": zone_affinity(volume),
        },
    }
