"""Decide the next step of a move that was planned, from what the API server and EC2 have now.

Until ``SWAPPING`` the claim has its old volume, whatever becomes of the move. In it, the claim's
whole manifest is in the move's status before the claim is deleted, and both volumes are kept.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from provisioner.controller.moving.form_rules import policy_before
from provisioner.model.attachment import NODE_ID, Attachment
from provisioner.model.claim import (
    BETA_STORAGE_CLASS,
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    CLAIM_KIND,
    MIGRATED_TO,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    Claim,
    foreign_finalizer,
)
from provisioner.model.document import Document
from provisioner.model.names import (
    CROSS_ZONE_VOLUME,
    LEFT_BY_MOVE,
    PINNED_SOURCE,
    PINNED_ZONE,
    VOLUME_ID,
)
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.sentences import listed
from provisioner.model.volume import GIB, Volume, VolumeState
from provisioner.model.volume_move import ENDS, MoveSource, Phase, VolumeMove

Json = dict[str, Any]
# A claim as a cache has it, or with all of its spec; only the latter can be recorded.
SeenClaim = Claim | Document
# What others have written about the binding that ends, and about where the old volume was made.
_OF_THE_OLD = frozenset(
    {
        BIND_COMPLETED,
        "pv.kubernetes.io/bound-by-controller",
        SELECTED_NODE,
        STORAGE_PROVISIONER,
        BETA_STORAGE_PROVISIONER,
        MIGRATED_TO,
        PINNED_ZONE,
        PINNED_SOURCE,
        CROSS_ZONE_VOLUME,
        LEFT_BY_MOVE,
    }
)

_FREE = '[{"op": "remove", "path": "/spec/claimRef/uid"}]'


@dataclass(frozen=True, slots=True)
class Use:
    """A pod that uses the claim, and that a node has, or will have, to let go of it.

    One that has ended counts: Kubernetes keeps a claim as long as a pod that had a node names it.
    Source: Kubernetes 1.36 pkg/controller/volume/pvcprotection podUsesPVC.
    """

    name: str
    has_ended: bool = False


COUNTS = "counts as a user of the claim until somebody deletes it (kubectl delete pod)"


@dataclass(frozen=True, slots=True)
class Hold:
    """Have the old volume attached nowhere from now on."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Let the old volume be attached again: a pod came in between, and pods are waited for."""

    message: str


@dataclass(frozen=True, slots=True)
class Await:
    """Nothing can be done now; the message says for what it waits."""

    message: str


@dataclass(frozen=True, slots=True)
class GoOn:
    """Write the next phase."""


@dataclass(frozen=True, slots=True)
class Undo:
    """The move cannot go on; the claim keeps its volume."""

    message: str


HeldStep = Hold | LetGo | Await | GoOn | Undo


@dataclass(frozen=True, slots=True)
class InUse:
    """Who may write to the old volume.

    ``nodes``: those to which it may be attached: AttachVolume is sent only for an attachment that
    records the volume, and not any more once that is held. ``namesakes``: other PersistentVolumes
    that name it; ``touched``: another controller may have attached it since it was held, or before.
    """

    held: bool
    uses: Sequence[Use]
    nodes: Sequence[str]
    volume: Volume | None
    namesakes: Collection[str] = ()
    touched: bool = False


def may_be_attached(attachment: Attachment) -> bool:
    """Whether AttachVolume may have been sent for it, by us or by another attacher.

    Both write instance and finalizer to it before. Source: external-attacher 4.12 csi_handler.go.
    """
    recorded = {VOLUME_ID, NODE_ID} & attachment.annotations.keys()
    return attachment.attached or bool(recorded or attachment.finalizers)


def volume_name(claim: SeenClaim) -> str:
    """Which PersistentVolume a claim names, "" if none."""
    if isinstance(claim, Claim):
        return claim.spec.volume_name
    return claim.spec.get("volumeName") or ""


def broken(source: MoveSource, claim: SeenClaim | None) -> Undo | None:
    """Whether the claim is not any more what was planned for: then its volume is left alone."""
    if claim is None or claim.uid != source.claim_uid or claim.deleting:
        return Undo("the claim was deleted or replaced by somebody else, so the move is undone")
    if volume_name(claim) != source.persistent_volume:
        return Undo("the claim is bound to another PersistentVolume by now")
    return None


def second(move: VolumeMove, others: Iterable[VolumeMove]) -> Undo | None:
    """Whether another move of the claim goes before this one, which is new or planned.

    Asked twice, as two may be planned at the same time, neither of which saw the other: of those
    that have done nothing yet the older one goes first.
    """
    for other in others:
        told = other.told
        if other.uid == move.uid or other.spec.dry_run or told.phase in ENDS:
            continue
        has_begun = told.phase not in (Phase.NEW, move.told.phase)
        is_as_far = told.phase == move.told.phase
        if has_begun or (is_as_far and _age_key(other) < _age_key(move)):
            return Undo(
                f"VolumeMove {other.name} of the same claim is not finished; wait for its end, or "
                "abort it"
            )
    return None


def _age_key(move: VolumeMove) -> tuple[str, str]:
    created_at = move.metadata.creation_timestamp
    return (created_at.isoformat() if created_at else "", move.name)


def next_held_step(move: VolumeMove, seen: InUse) -> HeldStep:
    """How the volume comes to be detached, and to stay so.

    It is held only once nobody uses it, so that a pod that moves to another node meanwhile can
    start.
    """
    source = move.source
    if seen.volume is None:
        return Undo(f"EC2 does not know volume {source.volume_id} any more")
    others = seen.volume.state is not VolumeState.AVAILABLE or bool(seen.volume.attachments)
    if seen.namesakes:
        named = (
            f"PersistentVolume {min(seen.namesakes)} names volume {source.volume_id} as well: "
            "delete it, or abort the move"
        )
        return LetGo(named) if seen.held else Await(named)
    if not seen.uses and not seen.nodes and not others:
        return GoOn() if seen.held and not seen.touched else Hold()
    message = _in_use(source, seen)
    return LetGo(message) if seen.held and (seen.uses or seen.nodes) else Await(message)


def next_copied_step(move: VolumeMove, seen: InUse) -> Await | GoOn | Undo:
    """Whether nobody can have written to the old volume since its files were copied."""
    step = next_held_step(move, seen)
    match step:
        case LetGo() | Hold():
            return Undo("the claim was used after its files were copied: the copy is thrown away")
        case Await() if seen.uses or seen.nodes:
            return Undo("the claim was used after its files were copied: the copy is thrown away")
        case _:
            return step


def waiting_for(uses: Sequence[Use]) -> str:
    """For which pods a move waits, as a sentence."""
    going = [each.name for each in uses if not each.has_ended]
    ended = [each.name for each in uses if each.has_ended]
    said = [f"waiting for pods {listed(going, 'and')} to end"] if going else []
    said += [f"pod {each} has ended, and {COUNTS}" for each in ended]
    return "; ".join(said)


def _in_use(source: MoveSource, seen: InUse) -> str:
    if seen.uses:
        return waiting_for(seen.uses)
    if seen.nodes:
        return f"waiting until volume {source.volume_id} is detached from {listed(seen.nodes)}"
    state = seen.volume.state if seen.volume is not None else "unknown"
    return f"waiting until volume {source.volume_id} is available in EC2; it is {state}"


@dataclass(frozen=True, slots=True)
class Retain:
    """Set the old PersistentVolume to Retain."""


@dataclass(frozen=True, slots=True)
class Record:
    """Write the claim as it is now to the move's status."""


@dataclass(frozen=True, slots=True)
class Introduce:
    """Create the new PersistentVolume: of the volume that stays, or again, if it was deleted."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete exactly the claim that was recorded."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Recreate:
    """Create the claim again."""


@dataclass(frozen=True, slots=True)
class RemoveEmpty:
    """Delete a claim without a volume that somebody has created in between."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Swapped:
    """The claim is bound to the new volume."""


ClaimStep = Record | Remove | Recreate | RemoveEmpty
SwapStep = Retain | Introduce | ClaimStep | Await | Swapped


def next_swap_step(
    move: VolumeMove,
    old: PersistentVolume | None,
    claim: SeenClaim | None,
    uses: Sequence[Use],
    new: PersistentVolume | None = None,
    *,
    made: Volume | None = None,
) -> SwapStep:
    """How the claim comes to its new volume; each step can be repeated.

    ``old``: the old PersistentVolume; ``claim``: whatever has the claim's name; ``new``: the new
    PersistentVolume, which is asked for if nothing is copied or ``waits_to_be_bound``; ``made``:
    the new volume in EC2, which is asked for if the new PersistentVolume of a copy is missing.
    """
    source = move.source
    if old is not None and old.reclaim_policy != "Retain" and is_kept(move, old):
        return Retain()
    is_old = claim is not None and claim.uid == source.claim_uid
    if is_old and claim is not None and _is_news(move, claim):
        return Record()
    if not move.copies:
        step = _introduced(move.existing_volume_id, new, is_needed=is_old or claim is None)
        if step is not None:
            return step
    if is_old and claim is not None:
        return _removed(claim, uses)
    if claim is None:
        return Recreate()
    return _of_another(move, claim, new, made)


def is_enough(move: VolumeMove, claim: SeenClaim) -> bool:
    """Whether the next step of the swap may go by a claim that is only known.

    The old one is deleted in the very version that was recorded; one that has, or waits for, the
    new PersistentVolume is not touched. Everything else is read first.
    """
    if isinstance(claim, Document):
        return True
    if claim.uid == move.source.claim_uid:
        return claim.deleting or not _is_news(move, claim)
    return volume_name(claim) == move.persistent_volume_name and not claim.deleting


def _is_news(move: VolumeMove, claim: SeenClaim) -> bool:
    return not claim.deleting and recorded_version(move) != claim.metadata.resource_version


def is_kept(move: VolumeMove, old: PersistentVolume) -> bool:
    """One that somebody deletes goes with its volume, unless that is the one which stays."""
    return move.keeps_volume or not old.deleting


def _introduced(
    volume_id: str, new: PersistentVolume | None, *, is_needed: bool
) -> Introduce | Await | None:
    """The new PersistentVolume comes after the old one has Retain: never do two delete a volume.

    ``is_needed``: no claim that could be bound to it is there yet.
    """
    if new is None:
        return Introduce()
    if new.named_volume != volume_id:
        return Await(
            f"PersistentVolume {new.name} exists already, and names another volume: delete it"
        )
    if new.deleting and is_needed:
        return Await(f"waiting until PersistentVolume {new.name}, which was deleted, is gone")
    return None


def _removed(claim: SeenClaim, uses: Sequence[Use]) -> Remove | Await:
    """Kubernetes keeps a deleted claim while a node has a pod that uses it."""
    if not claim.deleting:
        return Remove(claim.uid, claim.metadata.resource_version)
    keeper = foreign_finalizer(claim)
    if keeper and not uses:
        return Await(
            f"waiting until the old claim is gone: it has the finalizer {keeper}, which its owner, "
            "or you, have to remove"
        )
    return Await(waiting_for(uses) if uses else "waiting until the old claim is gone")


def _of_another(
    move: VolumeMove, claim: SeenClaim, new: PersistentVolume | None, made: Volume | None
) -> SwapStep:
    named = volume_name(claim)
    if named == move.persistent_volume_name:
        if claim.deleting:
            return Await("the claim was deleted again, before it was bound")
        is_bound = BIND_COMPLETED in claim.annotations
        return Swapped() if is_bound else _binding(move, claim, new, made)
    if claim.deleting:
        return Await(f"waiting until claim {claim.key}, which somebody else has created, is gone")
    if not named:
        return RemoveEmpty(claim.uid, claim.metadata.resource_version)
    return Await(
        f"somebody else has created claim {claim.key}, which is bound to PersistentVolume {named}: "
        f"delete it, and the move gives its name the data; they are in PersistentVolume "
        f"{move.persistent_volume_name}"
    )


def waits_to_be_bound(move: VolumeMove, claim: SeenClaim | None) -> bool:
    """Whether the claim names the new PersistentVolume, and has not got it yet."""
    named = claim is not None and volume_name(claim) == move.persistent_volume_name
    return named and claim is not None and BIND_COMPLETED not in claim.annotations


def _binding(
    move: VolumeMove, claim: SeenClaim, new: PersistentVolume | None, made: Volume | None
) -> Introduce | Await:
    """What the binder waits for; without the new PersistentVolume it would wait for ever."""
    name, told = move.persistent_volume_name, move.told
    if new is not None and new.deleting:
        return Await(f"waiting until PersistentVolume {name}, which was deleted, is gone")
    holder = new.spec.claim_ref if new is not None else None
    if holder is not None and holder.uid not in ("", claim.uid):
        # Our account may not do this: who changes claimRef can give away any volume.
        return Await(
            f"PersistentVolume {name} is bound to a claim that was deleted (UID {holder.uid}), so "
            f"it is not given to claim {claim.key}: kubectl patch pv {name} --type=json -p "
            f"'{_FREE}'"
        )
    if new is not None:
        return Await("the claim is being bound")
    if made is not None and made.state not in (VolumeState.DELETING, VolumeState.DELETED):
        return Introduce()
    return Await(
        f"PersistentVolume {name} was deleted, and its volume {told.volume} in EC2 as well: "
        f"{instead_of_copy(move)}"
    )


def instead_of_copy(move: VolumeMove) -> str:
    """What a human can do whose claim is to have a volume that somebody has deleted in EC2."""
    told, source, name = move.told, move.source, move.persistent_volume_name
    if move.copies_files:
        return (
            f"create a claim of another name with the old volume {source.volume_id}, which "
            f"PersistentVolume {source.persistent_volume} keeps"
        )
    zone = told.plan.target.zone if told.plan else ""
    return (
        f"create a volume in zone {zone} from snapshot {told.snapshot}, and PersistentVolume "
        f"{name} of it, as status.persistentVolume says; PersistentVolume "
        f"{source.persistent_volume} keeps the old volume {source.volume_id}"
    )


def keeps_pods_away(move: VolumeMove, claim: SeenClaim | None) -> bool:
    """Whether pods are in the way of the swap: they have another claim than the one to come."""
    return claim is not None and volume_name(claim) != move.persistent_volume_name


def waits_for_pods(move: VolumeMove, claim: SeenClaim | None) -> bool:
    """Whether a claim is to go, and does not while pods use it; or is not sent away before."""
    if claim is None or not keeps_pods_away(move, claim):
        return False
    return claim.deleting or move.changes_driver


def record(claim: Document) -> str:
    """All of a claim that is written again, as JSON."""
    meta = claim.metadata
    kept = {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "labels": dict(claim.labels),
            "annotations": dict(claim.annotations),
            "ownerReferences": meta.owner_references or [],
        },
        "spec": claim.spec,
    }
    return json.dumps(kept, sort_keys=True)


def recorded_version(move: VolumeMove) -> str:
    """The resourceVersion of the claim that was recorded, "" if none was."""
    text = move.told.claim
    return str(json.loads(text)["metadata"]["resourceVersion"]) if text else ""


def recreated(move: VolumeMove, recorded: str) -> Json:
    """The claim to POST: what was ``record``-ed, with the new volume, its class and its size."""
    claim = json.loads(recorded)
    meta, spec = claim["metadata"], dict(claim["spec"])
    annotations = {k: v for k, v in meta["annotations"].items() if k not in _OF_THE_OLD}
    class_name = move.spec.to.storage_class_name
    if move.goes_back and move.told.plan is not None:
        class_name = move.told.plan.target.storage_class_name
    if class_name or move.goes_back:  # to "" as well: a claim without a class would get the default
        annotations.pop(BETA_STORAGE_CLASS, None)
        spec["storageClassName"] = class_name
    spec["volumeName"] = move.persistent_volume_name
    spec["resources"] = _resources(spec.get("resources") or {}, move)
    return {
        "apiVersion": "v1",
        "kind": CLAIM_KIND,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": meta["labels"],
            "annotations": annotations,
            "ownerReferences": meta["ownerReferences"],
        },
        "spec": spec,
    }


def _resources(asked: Json, move: VolumeMove) -> Json:
    requests = dict(asked.get("requests") or {})
    size, plan = move.spec.to.size, move.told.plan
    if move.goes_back and plan is not None:
        size_gib = plan.target.size_gib  # else the volume, as it was before, would be grown
        if parse_bytes(str(requests.get("storage", "0"))) > size_gib * GIB:
            requests["storage"] = f"{size_gib}Gi"
    is_larger = size and parse_bytes(size) > parse_bytes(str(requests.get("storage", "0")))
    # Bound by name or not, a claim gets no volume that is smaller than it asks for.
    if is_larger or (size and move.copies_files):
        size_gib = plan.target.size_gib if plan is not None else -(-parse_bytes(size) // GIB)
        requests["storage"] = f"{size_gib}Gi"
    return asked | {"requests": requests}


def has_made_nothing(move: VolumeMove) -> bool:
    """Whether there is certainly nothing in EC2 to be undone.

    Each phase is written to the very version of the move that was read, so one that was aborted in
    Held never was in Snapshotting.
    """
    told = move.told
    return not move.copies or (told.undone_from == Phase.HELD and not told.warm)


def may_have_made_volume(move: VolumeMove) -> bool:
    """Whether a volume may have been asked for; see ``has_made_nothing``."""
    return move.told.undone_from not in (Phase.WARMING, Phase.HELD)


def kept(move: VolumeMove, source: MoveSource, until: str, *, is_there: bool) -> str:
    """What is left of the move for ``keepSource``, as a sentence; ``is_there``: the old object."""
    if not is_there:
        stays = "the volume stays" if move.keeps_volume else "nothing keeps the old volume"
        return f"PersistentVolume {source.persistent_volume} was deleted meanwhile: {stays}"
    driver = move.told.plan.target.driver if move.told.plan is not None else ""
    if move.keeps_volume and driver not in ("", source.driver):
        return (
            f"PersistentVolume {source.persistent_volume} is kept until {until}, and keeps nothing:"
            f" if the claim is deleted, driver {driver} deletes volume {source.volume_id} by the "
            "policy of the new PersistentVolume"
        )
    if move.keeps_volume:
        return (
            f"PersistentVolume {source.persistent_volume} is kept until {until}; it names the same "
            f"volume {source.volume_id}, which nobody deletes before"
        )
    which = "newer" if move.goes_back else "old"
    keeps = f"PersistentVolume {source.persistent_volume} keeps the {which} volume"
    if source.reclaim_policy in ("", "Retain"):
        return f"{keeps} {source.volume_id} until you delete both: its reclaim policy is Retain"
    return f"{keeps} {source.volume_id} until {until}"


def at_swap(source: MoveSource, old: PersistentVolume) -> MoveSource:
    """The source with the policy that it has now, before the move sets Retain.

    The move may have waited for days; whoever has set Retain since wants the volume kept.
    """
    return structs.replace(source, reclaim_policy=policy_before(old))


def is_to_be_released(source: MoveSource, old: PersistentVolume) -> bool:
    """Whether the binder has not seen yet that the claim of the old PersistentVolume is gone."""
    holder = old.spec.claim_ref
    return old.phase == "Bound" and holder is not None and holder.uid == source.claim_uid


def may_let_source_go(source: MoveSource, old: PersistentVolume | None) -> bool:
    """Whether the old PersistentVolume gets its policy back: nobody has taken it since."""
    if old is None or source.reclaim_policy in ("", "Retain"):
        return False
    holder = old.spec.claim_ref
    return (
        old.phase == "Released"
        and old.reclaim_policy == "Retain"
        and holder is not None
        and holder.uid == source.claim_uid
    )


def let_go(source: MoveSource, old: PersistentVolume | None) -> str:
    """What became of the old volume of a copy after ``keepSource``, as a sentence."""
    if old is None:
        return f"PersistentVolume {source.persistent_volume} is not there any more"
    if may_let_source_go(source, old):
        return "the old volume was let go"
    return (
        f"PersistentVolume {old.name} was left as it is: its policy was Retain before the move, or "
        "it was taken since"
    )


def is_unused(new: PersistentVolume) -> bool:
    """Whether no claim was ever bound to the new PersistentVolume."""
    holder = new.spec.claim_ref
    return new.phase in ("", "Pending", "Available") and (holder is None or not holder.uid)
