"""Which volumes are orphans of a cluster, and which of a plan may be deleted.

An orphan is a volume that was made for a claim of one cluster, is attached to nothing, and is named
by no PersistentVolume of the cluster that is asked. What is planned is looked at again before it is
deleted: it must be the same volume, unchanged. Each doubt keeps a volume.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from provisioner.model import tags
from provisioner.model.claim import claim_uid_of
from provisioner.model.ids import is_volume_id
from provisioner.model.names import (
    CLAIM_NAME,
    CLAIM_NAMESPACE,
    CLUSTER_NAME,
    CLUSTER_PREFIX,
    LEGACY_CLUSTER,
    MADE_BY_DRIVER,
    VOLUME_NAME,
)
from provisioner.model.sentences import listed
from provisioner.model.volume import Volume, VolumeState

# Tags whose value is a cluster's id: aws-ebs-csi-driver's, and that of the in-tree driver.
CLUSTER_TAGS = (CLUSTER_NAME, LEGACY_CLUSTER)
KIND = "OrphanPlan"
VERSION = 2
_GONE = (VolumeState.DELETING, VolumeState.DELETED)

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Planned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One volume of a plan, as it was seen when the plan was made."""

    volume_id: str
    zone: str
    volume_type: str
    size_gib: int
    created_at: Moment
    tags: dict[str, str]
    why: str


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--plan`` writes and ``--apply`` reads.

    Attributes:
        cluster_id: the dead cluster.
        asked_cluster_uid: of the namespace kube-system of the cluster whose PersistentVolumes spare
            volumes: beside another one, a volume that it uses by now would look like an orphan.
    """

    kind: str
    version: int
    cluster_id: str
    asked_cluster_uid: str
    account: str
    region: str
    made_at: Moment
    min_age_s: float
    volumes: tuple[Planned, ...]


class _Heading(msgspec.Struct, frozen=True):
    """What tells the version of a plan, whatever else it has."""

    kind: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a volume is compared with; all lists live and complete.

    Attributes:
        cluster_id: the cluster whose orphans are looked for.
        named: PersistentVolumes of the cluster that is asked, by the volume that each names.
        claim_uids: of all its claims.
        own_ids: ids that its controllers run with, each with the proof.
        instances: running instances that are tagged as ``cluster_id``'s.
        now: the time.
        min_age: younger volumes may be on their way to a PersistentVolume.
        unread: its controllers' Deployments whose id could not be read.
    """

    cluster_id: str
    named: Mapping[str, str]
    claim_uids: Collection[str]
    own_ids: Mapping[str, str]
    instances: Collection[str]
    now: datetime
    min_age: timedelta = timedelta(hours=1)
    unread: Collection[str] = ()


def claim_of(volume_tags: Mapping[str, str]) -> str:
    """``namespace/name`` of the claim that a volume was made for, by its tags; "" if none tells."""
    parts = (volume_tags.get(CLAIM_NAMESPACE, ""), volume_tags.get(CLAIM_NAME, ""))
    return "/".join(parts) if all(parts) else ""


def ids_in(found: Mapping[str, str]) -> set[str]:
    """The ids of all clusters that own a volume, by its tags."""
    keys = {key for key, value in found.items() if value == "owned"}
    ids = {key.removeprefix(CLUSTER_PREFIX) for key in keys if key.startswith(CLUSTER_PREFIX)}
    return (ids | {found.get(each, "") for each in CLUSTER_TAGS}) - {""}


def why_kept(volume: Volume, around: Surroundings) -> str:
    """Why a volume is no orphan, as the end of a sentence; "" for an orphan."""
    return _of_another(volume.tags, around.cluster_id) or _in_use(volume, around)


def _of_another(found: Mapping[str, str], cluster_id: str) -> str:
    if found.get(tags.cluster_key(cluster_id)) != "owned":
        return f"it is not tagged as owned by cluster {cluster_id}"
    others = {each for each in found if each.startswith(CLUSTER_PREFIX)} - {
        tags.cluster_key(cluster_id)
    }
    if others:
        return f"it also has the tag {listed(others, 'and')}"
    if found.get(CLUSTER_NAME, cluster_id) != cluster_id:
        return f"its tag {CLUSTER_NAME} says {found[CLUSTER_NAME]}"
    if not any(found.get(key) for key in (VOLUME_NAME, CLAIM_NAME, MADE_BY_DRIVER)):
        return "no tag says that it was made for a claim"
    return ""


def _in_use(volume: Volume, around: Surroundings) -> str:
    if volume.volume_id in around.named:
        return f"PersistentVolume {around.named[volume.volume_id]} of this cluster names it"
    if claim_uid_of(volume.tags.get(VOLUME_NAME, "")) in around.claim_uids:
        return "the claim that it was made for exists in this cluster"
    if volume.attachments:
        where = listed({each.instance_id for each in volume.attachments}, "and")
        return f"it is attached to {where}"
    if volume.state is not VolumeState.AVAILABLE:
        return f"its state is {volume.state}"
    if volume.created_at is None or around.now - volume.created_at < around.min_age:
        return f"it is younger than {around.min_age}"
    return ""


def signs_of_life(volumes: Iterable[Volume], around: Surroundings) -> list[str]:
    """What speaks against that the cluster is dead, and another one than the one that is asked."""
    found = []
    cluster_id = around.cluster_id
    if cluster_id in around.own_ids:
        found.append(f"{cluster_id} is this cluster: {around.own_ids[cluster_id]}")
    if around.unread:
        found.append(
            f"{cluster_id} may be this cluster: the id that Deployment "
            f"{listed(around.unread, 'and')} runs with cannot be read (is its ConfigMap there, and "
            "may you get it?)"
        )
    if around.instances:
        count, which = len(around.instances), listed(around.instances, "and")
        found.append(f"{count} running instances have its tag: {which}")
    attached = [each.volume_id for each in volumes if each.attachments]
    if attached:
        found.append(f"volumes of it are attached: {listed(attached, 'and')}")
    names = [around.named[v.volume_id] for v in volumes if v.volume_id in around.named]
    if names:
        found.append(
            f"PersistentVolumes of this cluster name volumes of it: {listed(names, 'and')}"
        )
    return found


def sign_of_another(volumes: Iterable[Volume], around: Surroundings, nodes: Collection[str]) -> str:
    """What shows that an id is that of another, living cluster, as a clause; "" if nothing does.

    For an id that is known by tags only: a volume that a cluster has taken over has the tags of the
    one that made it. A node with the id's tag shows that it is this cluster's: other instances of
    it may be on their way in or out, or be no nodes.

    Args:
        volumes: all that are tagged as the id's.
        around: of the id.
        nodes: the instances of the Nodes of the cluster that is asked.
    """
    if any(each in nodes for each in around.instances):
        return ""
    foreign = sorted(each for each in around.instances if each not in nodes)
    if foreign:
        return f"instance {foreign[0]} has its tag and is no node here"
    for volume in volumes:
        for each in volume.attachments:
            if volume.volume_id not in around.named and each.instance_id not in nodes:
                where = f"{each.instance_id}, which is no node here"
                return f"{volume.volume_id} of it is attached to {where}"
    return ""


def plan(
    volumes: Iterable[Volume],
    around: Surroundings,
    *,
    region: str,
    account: str = "",
    cluster_uid: str = "",
) -> Plan:
    """The plan that deletes all orphans among these volumes.

    Args:
        volumes: of the cluster id.
        around: what they are compared with.
        region: of EC2.
        account: "" for a list that nobody applies.
        cluster_uid: of the cluster that is asked; "" as well.
    """
    return Plan(
        kind=KIND,
        version=VERSION,
        cluster_id=around.cluster_id,
        asked_cluster_uid=cluster_uid,
        account=account,
        region=region,
        made_at=around.now,
        min_age_s=around.min_age.total_seconds(),
        volumes=tuple(
            _planned(each, around)
            for each in sorted(volumes, key=lambda each: each.volume_id)
            if not why_kept(each, around)
        ),
    )


def _planned(orphan: Volume, around: Surroundings) -> Planned:
    why = (
        f"it is of cluster {around.cluster_id}, it is attached to nothing, and no PersistentVolume "
        "and no claim is known for it"
    )
    return Planned(
        volume_id=orphan.volume_id,
        zone=orphan.zone,
        volume_type=orphan.volume_type,
        size_gib=orphan.size_gib,
        created_at=orphan.created_at or around.now,
        tags=dict(orphan.tags),
        why=f"{why}{_made_for(orphan)}",
    )


def _made_for(volume: Volume) -> str:
    claim = claim_of(volume.tags)
    return f"; it was made for claim {claim}" if claim else ""


def text_of(planned: Plan) -> bytes:
    """The file that says this, readable."""
    return msgspec.json.format(msgspec.json.encode(planned), indent=2) + b"\n"


def read_plan(text: bytes) -> Plan:
    """The plan that a file says.

    Raises:
        ValueError: one sentence: the file is no plan, or one of another version.
    """
    try:
        heading = msgspec.json.decode(text, type=_Heading)
        if (heading.kind, heading.version) != (KIND, VERSION):
            raise ValueError(f"it is no plan of version {VERSION}: make it again with --plan")
        found = msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no plan of kubectl ebs orphans: {error}") from error
    ids = [each.volume_id for each in found.volumes]
    wrong = next((each for each in ids if not is_volume_id(each)), None)
    if wrong is not None:
        raise ValueError(f"it names {wrong[:40]!r}, which is no volume id")
    if len(set(ids)) < len(ids):
        raise ValueError("it names a volume twice")
    tags.check_cluster_id(found.cluster_id)
    if not 0 < found.min_age_s < float("inf"):
        raise ValueError("its min_age_s is no number of seconds above zero")
    if not (found.cluster_id and found.asked_cluster_uid and found.account and found.region):
        raise ValueError("it names no cluster, no account or no region")
    return found


@dataclass(frozen=True, slots=True)
class Gone:
    """EC2 has no such volume any more."""


@dataclass(frozen=True, slots=True)
class Kept:
    """It must not be deleted: ``why``, as the end of a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class Delete:
    """It is what the plan names, unchanged, and still an orphan."""


Verdict = Gone | Kept | Delete


def verdict(planned: Planned, volume: Volume | None, around: Surroundings) -> Verdict:
    """What becomes of one volume of a plan, by a look right before the deletion.

    Args:
        planned: as the plan has it.
        volume: as EC2 shows it now; None only if EC2 answered that there is none.
        around: as of now.
    """
    if volume is None or volume.state in _GONE:
        return Gone()
    if volume.created_at != planned.created_at:
        return Kept(f"it was created at {volume.created_at}, not at {planned.created_at}")
    changed = sorted(
        key
        for key in {*volume.tags, *planned.tags}
        if volume.tags.get(key) != planned.tags.get(key)
    )
    if changed:
        return Kept(f"its tags have changed since the plan: {listed(changed, 'and')}")
    if (volume.size_gib, volume.volume_type) != (planned.size_gib, planned.volume_type):
        return Kept("it was modified since the plan")
    why = why_kept(volume, around)
    return Kept(why) if why else Delete()


def wrong_place(planned: Plan, account: str, region: str, cluster_uid: str) -> str:
    """Why a plan is not for the account, the Region and the cluster that are asked; "" if it is.

    In another account or Region, none of its volumes exists: they would all seem to be gone. In
    another cluster, no PersistentVolume spares those that somebody uses by now.
    """
    if planned.region != region:
        return (
            f"the plan is for region {planned.region}, but {region or 'none'} is asked: give "
            f"--region {planned.region}"
        )
    if planned.account != account:
        return f"the plan is for account {planned.account}, but these credentials are of {account}"
    if planned.asked_cluster_uid != cluster_uid:
        return (
            "the plan was made beside another cluster, whose PersistentVolumes spare volumes: give "
            "the same --kubeconfig and --context as with --plan, or make a plan beside this one"
        )
    return ""


def summary(volumes: Sequence[Planned]) -> str:
    """How many there are, and how large."""
    gib = sum(each.size_gib for each in volumes)
    return f"{len(volumes)} volume{'' if len(volumes) == 1 else 's'}, {gib} GiB"
