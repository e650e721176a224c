"""Volumes: what is stuck, what Kubernetes and EC2 see differently, and what nobody owns."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from provisioner.controller.deleting import orphan_rules
from provisioner.controller.deleting.orphan_rules import World
from provisioner.inspect.doctor.check_rules import (
    Finding,
    Rule,
    Verdict,
    asked_elsewhere,
    counted,
    judged,
    ok,
    skipped,
    some,
)
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.meta import UnlabelledObject
from provisioner.model.node_affinity import names_zone
from provisioner.model.persistent_volume import (
    PersistentVolume,
    PersistentVolumeSpec,
    PlacedVolume,
)
from provisioner.model.volume import AttachmentState, Volume, VolumeState

_STUCK = timedelta(minutes=10)
_FAILING = timedelta(minutes=1)  # an error that the next attempt may be rid of
_ORPHAN = timedelta(hours=1)
# These wait for a user on purpose: a claim for its pod, a volume for its claim.
_THERE = frozenset({AttachmentState.ATTACHING, AttachmentState.ATTACHED, AttachmentState.BUSY})
_PATIENT = frozenset({"kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"})


def _stuck_deletions(seen: Evidence) -> Finding:
    kinds: tuple[tuple[str, Iterable[UnlabelledObject]], ...] = (
        ("PersistentVolumeClaim", _not_of_others(seen)),
        (
            "PersistentVolume",
            [each for each in seen.cluster.volumes if each.volume_id(seen.driver)],
        ),
        (
            "VolumeAttachment",
            [a for a in seen.cluster.attachments if a.spec.attacher == seen.driver],
        ),
        ("VolumeSnapshot", [each for each in seen.cluster.snapshots if seen.may_be_ours(each)]),
    )
    problems = [
        f"{kind} {each.key} is being deleted since {since:%Y-%m-%dT%H:%MZ}, held by "
        f"{', '.join(each.finalizers)}"
        for kind, objects in kinds
        for each in objects
        if (since := deleted_at(each)) is not None
        and seen.now - since > _STUCK
        and not set(each.finalizers) & _PATIENT
    ]
    remedy = (
        "kubectl ebs explain shows who has to act; remove a finalizer by hand only if its program "
        "is gone for good, because it leaves what it protects behind"
    )
    return judged(problems, "nothing is being deleted for more than 10 minutes", remedy)


def _claims_waiting(seen: Evidence) -> Finding:
    """A claim that waits for a pod is left out: only the pod could say whether that is too long."""
    classes = {each.name: each for each in seen.cluster.classes if each.is_of(seen.driver)}
    problems = [
        f"claim {each.key} waits for its volume since {made:%Y-%m-%dT%H:%MZ}"
        for each in seen.cluster.claims
        if (found := classes.get(each.class_name or "")) is not None
        and not each.spec.volume_name
        and not each.deleting
        and (each.selected_node or not found.waits_for_consumer)
        and (made := each.metadata.creation_timestamp) is not None
        and seen.now - made > _STUCK
    ]
    remedy = "kubectl ebs explain pvc NAMESPACE/NAME names the cause"
    return judged(problems, "no claim waits for its volume for more than 10 minutes", remedy)


def _not_of_others(seen: Evidence) -> list[Claim]:
    """Claims, without those that have a volume of another driver."""
    others = {each.name for each in seen.cluster.volumes if not each.volume_id(seen.driver)}
    return [each for each in seen.cluster.claims if each.spec.volume_name not in others]


def _stuck_attachments(seen: Evidence) -> Finding:
    ours = [each for each in seen.cluster.attachments if each.spec.attacher == seen.driver]
    remedy = "kubectl ebs explain node NAME, or: kubectl describe volumeattachment NAME"
    if problems := list(_late_attachments(seen, ours)):
        return Finding(Verdict.FAILED, some(problems), remedy)
    if doubts := [*_attachments_of_no_node(seen, ours), *_failing_attachments(seen, ours)]:
        return Finding(Verdict.WARNING, some(doubts), remedy)
    waiting = [each for each in ours if not each.attached and not each.deleting]
    good = f"{counted(len(ours), 'VolumeAttachment')} checked"
    if waiting:
        good += f"; not attached yet, for less than 10 minutes: {some([w.name for w in waiting])}"
    return ok(good)


def _late_attachments(seen: Evidence, ours: Iterable[Attachment]) -> Iterator[str]:
    nodes = {each.name for each in seen.cluster.nodes}
    for each in ours:
        created = each.metadata.creation_timestamp
        if each.attached or each.deleting or each.spec.node_name not in nodes or created is None:
            continue
        if seen.now - created >= _STUCK:
            why = _error_of(each) or "no error is reported"
            yield f"{_shown(each)} waits since {created:%Y-%m-%dT%H:%MZ}: {why}"


def _attachments_of_no_node(seen: Evidence, ours: Iterable[Attachment]) -> Iterator[str]:
    """Of nodes that are gone. Since when is not known, so this may be over in some minutes."""
    nodes = {each.name for each in seen.cluster.nodes}
    for each in ours:
        created = each.metadata.creation_timestamp
        is_old = created is None or seen.now - created >= _STUCK
        if each.spec.node_name not in nodes and not each.deleting and is_old:
            yield (
                f"{_shown(each)}: this Node does not exist; if it was removed just now, "
                "Kubernetes detaches the volume 6 minutes later"
            )


def _failing_attachments(seen: Evidence, ours: Iterable[Attachment]) -> Iterator[str]:
    for each in ours:
        created, error = each.metadata.creation_timestamp, _error_of(each)
        if error and not each.attached and created is not None and seen.now - created >= _FAILING:
            yield f"{_shown(each)} fails since {created:%Y-%m-%dT%H:%MZ}: {error}"


def _error_of(attachment: Attachment) -> str:
    status = attachment.status
    error = (status.detach_error or status.attach_error) if status else None
    return error.message if error else ""


def _shown(attachment: Attachment) -> str:
    return f"VolumeAttachment {attachment.name} (Node {attachment.spec.node_name})"


def missing(seen: Evidence) -> dict[str, PlacedVolume]:
    """PersistentVolumes whose volume EC2 does not have although nobody deletes it, by its id.

    In a deletion the volume goes first, and its PersistentVolume after that.
    """
    found = {each.volume_id(seen.driver) or "": each for each in seen.cluster.volumes}
    return {
        volume_id: each
        for volume_id, each in found.items()
        if volume_id
        and volume_id not in seen.cloud.volumes
        and not each.deleting
        and not _goes(each)
    }


def _goes(found: PlacedVolume) -> bool:
    """Whether the controller deletes it: its deletionTimestamp is set once the volume is gone."""
    policy = found.spec.persistent_volume_reclaim_policy
    return policy == "Delete" and found.phase in {"Released", "Failed"}


def _volumes_exist(seen: Evidence) -> Finding:
    named = {each.volume_id(seen.driver) or "": each for each in seen.cluster.volumes}
    named.pop("", None)
    if not named:
        return skipped(f"no PersistentVolume is of {seen.driver}")
    if not seen.is_confirmed_cloud:
        return asked_elsewhere(seen)
    problems = [
        f"PersistentVolume {each.name} names {volume_id}, which EC2 does not have"
        for volume_id, each in missing(seen).items()
    ]
    problems += [
        f"volume {volume_id} of PersistentVolume {named[volume_id].name} is in the state error"
        for volume_id, volume in seen.cloud.volumes.items()
        if volume.state is VolumeState.ERROR and volume_id in named
    ]
    remedy = (
        "if somebody has deleted it (CloudTrail, DeleteVolume), restore a snapshot under a new "
        "claim; keep the PersistentVolume until its data is back"
    )
    return judged(
        problems, f"{counted(len(named.keys() & seen.cloud.volumes), 'volume')} found", remedy
    )


def _volume_zones(seen: Evidence) -> Finding:
    problems = [
        f"PersistentVolume {each.name} is bound to {' or '.join(sorted(zones))}, but EC2 has "
        f"{volume.volume_id} in {volume.zone}"
        for each, volume in _known(seen)
        if (zones := each.zones) and all(map(names_zone, zones)) and volume.zone not in zones
    ]
    remedy = (
        "pods are scheduled where the volume cannot be attached, and node affinity is immutable: "
        "set the reclaim policy to Retain, and only then create claim and PersistentVolume again; "
        "kubectl ebs explain pv NAME has the steps"
    )
    return judged(problems, "the affinity of all volumes names their zone", remedy)


def _known(seen: Evidence) -> Iterator[tuple[PlacedVolume, Volume]]:
    for each in seen.cluster.volumes:
        volume = seen.cloud.volumes.get(each.volume_id(seen.driver) or "")
        if volume is not None:
            yield each, volume


def strays(seen: Evidence) -> dict[str, tuple[PlacedVolume, set[str]]]:
    """Volumes that are attached to instances for which no VolumeAttachment asks, by id.

    Says nothing of a volume while one of its VolumeAttachments names a node whose instance is not
    known, and leaves out what is being detached.
    """
    wanted = _wanted_instances(seen)
    found = {}
    for owner, volume in _known(seen):
        here = wanted.get(volume.volume_id, set())
        there = {each.instance_id for each in volume.attachments if each.state in _THERE}
        if there - here and "" not in here:
            found[volume.volume_id] = (owner, there - here)
    return found


def _wanted_instances(seen: Evidence) -> dict[str, set[str]]:
    """Where VolumeAttachments ask for a volume; "" for a node whose instance is not known."""
    instances = {node.name: node.instance_id for node in seen.cluster.nodes}
    for csi_node in seen.cluster.csi_nodes:
        driver = csi_node.driver(seen.driver)
        if driver is not None and driver.node_id:
            instances[csi_node.name] = driver.node_id
    handles = {each.name: each.volume_id(seen.driver) or "" for each in seen.cluster.volumes}
    wanted: dict[str, set[str]] = {}
    for each in (*seen.cluster.attachments, *seen.cluster.later_attachments):
        source = each.spec.source
        inline = PersistentVolume(spec=source.inline_volume_spec or PersistentVolumeSpec())
        name = source.persistent_volume_name
        handle = handles.get(name, "") if name else inline.named_volume or ""
        if each.spec.attacher == seen.driver and handle:
            wanted.setdefault(handle, set()).add(instances.get(each.spec.node_name, ""))
    return wanted


def _attached_elsewhere(seen: Evidence) -> Finding:
    problems = [
        f"{volume_id} of PersistentVolume {owner.name} is attached to "
        f"{', '.join(sorted(where))}, which no VolumeAttachment says"
        for volume_id, (owner, where) in strays(seen).items()
    ]
    remedy = (
        "if nothing there uses it: aws ec2 detach-volume --volume-id ID; until then it can be "
        "attached nowhere else"
    )
    return judged(
        problems,
        "volumes are attached only where Kubernetes wants them",
        remedy,
        worst=Verdict.WARNING,
    )


def _orphans(seen: Evidence) -> Finding:
    if not seen.cluster.cluster_id:
        return skipped("without --cluster-id of the controller, its volumes cannot be recognised")
    world = World(
        named_volume_ids={each.named_volume or "" for each in seen.cluster.volumes},
        persistent_volume_names={each.name for each in seen.cluster.volumes},
        claim_uids={each.uid for each in seen.cluster.claims},
        in_flight_names=(),
        in_flight_ids=(),
        epoch=None,
    )
    found = [
        each
        for each in seen.cloud.tagged
        if isinstance(
            orphan_rules.decide(
                each, world, cluster_id=seen.cluster.cluster_id, now=seen.now, min_age=_ORPHAN
            ),
            orphan_rules.Report,
        )
    ]
    if not found:
        return ok(f"{counted(len(seen.cloud.tagged), 'volume')} of this cluster, each has an owner")
    gib = sum(each.size_gib for each in found)
    ids = ", ".join(sorted(each.volume_id for each in found)[:5])
    return Finding(
        Verdict.WARNING,
        f"{counted(len(found), 'volume')} ({gib} GiB) of this cluster that no object names: {ids}"
        f"{', …' if len(found) > 5 else ''}",  # noqa: PLR2004 -- as many as are named
        "kubectl ebs orphans lists them; make a snapshot of what may be needed, and delete the "
        "rest by aws ec2 delete-volume (docs/orphans.md)",
    )


RULES = (
    Rule(
        "stuck-deletions",
        "nothing is stuck in its deletion",
        (
            *("persistentvolumeclaims", "persistentvolumes", "volumeattachments"),
            *("volumesnapshots", "volumesnapshotclasses"),
        ),
        _stuck_deletions,
    ),
    Rule(
        "claims-waiting",
        "claims get their volumes",
        ("persistentvolumeclaims", "storageclasses"),
        _claims_waiting,
    ),
    Rule(
        "stuck-attachments",
        "attachments are carried out",
        ("volumeattachments", "nodes"),
        _stuck_attachments,
    ),
    Rule(
        "volumes-exist",
        "EC2 has the volumes of all PersistentVolumes",
        ("persistentvolumes", "DescribeVolumes"),
        _volumes_exist,
    ),
    Rule(
        "volume-zones",
        "PersistentVolumes name the zone of their volume",
        ("persistentvolumes", "DescribeVolumes"),
        _volume_zones,
    ),
    Rule(
        "attached-elsewhere",
        "volumes are attached where Kubernetes wants them",
        ("persistentvolumes", "volumeattachments", "nodes", "DescribeVolumes"),
        _attached_elsewhere,
    ),
    Rule(
        "orphans",
        "every volume of this cluster has an owner",
        (
            *("persistentvolumes", "persistentvolumeclaims", "deployments", "configmaps"),
            "DescribeVolumes",
        ),
        _orphans,
    ),
)
