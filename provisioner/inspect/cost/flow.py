"""Read what is billed: volumes, snapshots, fast restores, and whose they are."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.ec2.batches import pages
from provisioner.ec2.snapshots import Snapshots
from provisioner.inspect.command_line import Readers
from provisioner.inspect.cost import cost_rules
from provisioner.inspect.cost.cost_rules import Item, Owner
from provisioner.inspect.df.usage import usage_by_claim
from provisioner.inspect.df.usage_rules import Usage
from provisioner.inspect.orphans import orphan_plan_rules
from provisioner.inspect.orphans.look import Own, cluster_side, look_at_own
from provisioner.inspect.reading.gap_rules import AWS, Gap
from provisioner.kube.resources import LABELLED_CLAIMS, PERSISTENT_VOLUMES, SNAPSHOT_CONTENTS
from provisioner.model import tags
from provisioner.model.claim import LabelledClaim
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import StorageError
from provisioner.model.names import CLAIM_NAME, CLAIM_NAMESPACE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume
from provisioner.model.volume_snapshot import VolumeSnapshotContent
from provisioner.prices.price_rules import RegionPrices

_BILLED_RESTORES = frozenset({"enabling", "optimizing", "enabled"})


NO_CLUSTER_ID = (
    "orphans and snapshots that no object names are not counted: no cluster id is known (neither "
    "by the option of a controller nor by a volume's tag)"
)


@dataclass(frozen=True, slots=True)
class _Objects:
    """What Kubernetes has; volumes by their ids, claims by their keys, contents by snapshot id."""

    volumes: Mapping[str, PersistentVolume]
    claims: Mapping[str, LabelledClaim]
    contents: Mapping[str, VolumeSnapshotContent]
    used: Mapping[str, Usage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Tagged:
    """The ids of this cluster, the volumes that any tag gives to one, orphans among those."""

    ids: Sequence[str] = ()
    volumes: Sequence[Volume] = ()
    orphans: Sequence[Volume] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Billed:
    """All that is billed for a cluster, and what was left out, a sentence each."""

    items: list[Item]
    remarks: Sequence[str] = ()


async def billed_items(
    readers: Readers, driver: str, rates: RegionPrices | None, *, with_used: bool
) -> Billed:
    """All that is billed for this cluster; what cannot be read is a gap.

    Args:
        readers: of the cluster and the cloud.
        driver: whose volumes are counted, besides in-tree ones.
        rates: None: amounts are not known.
        with_used: whether the kubelets are asked how full the volumes are.
    """
    objects = await _objects(readers, driver, with_used=with_used)
    # One after the other: both are large answers, and memory is limited.
    tagged = await _tagged(readers)
    volumes = await _volumes(readers, objects.volumes, tagged.volumes)
    restores, snapshots = await asyncio.gather(
        readers.cloud.ask("DescribeFastSnapshotRestores", _restores(readers), {}),
        _snapshots(readers, objects.contents, tagged.ids),
    )
    items = [_item_of(each, objects, rates) for each in volumes]
    if readers.cloud.misses("DescribeVolumes"):
        unread = objects.volumes.keys() - {each.volume_id for each in volumes}
        items += [_unread_item(each, objects) for each in sorted(unread)]
    items += [_orphan_item(each, rates) for each in tagged.orphans]
    owners = {each.volume_id: _owner_of(each.volume_id, objects) for each in volumes}

    def owner(snapshot: EbsSnapshot) -> Owner:
        content = objects.contents.get(snapshot.snapshot_id)
        namespace = content.spec.volume_snapshot_ref.namespace if content is not None else ""
        return owners.get(snapshot.volume_id) or Owner(namespace=namespace)

    items += cost_rules.snapshot_items(snapshots, owner, rates)
    for each in snapshots:
        if zones := restores.get(each.snapshot_id):
            items.append(cost_rules.fast_restore_item(each, owner(each), zones, rates))
    return Billed(items, tagged.remarks)


async def _objects(readers: Readers, driver: str, *, with_used: bool) -> _Objects:
    cluster = readers.cluster
    found, claims, contents = await asyncio.gather(
        cluster.every(PERSISTENT_VOLUMES),
        cluster.every(LABELLED_CLAIMS),
        cluster.every(SNAPSHOT_CONTENTS),
    )
    volumes = {volume_id: each for each in found if (volume_id := each.volume_id(driver))}
    wanted = {each.name for each in volumes.values()}
    return _Objects(
        volumes=volumes,
        claims={each.key: each for each in claims},
        contents={
            each.status.snapshot_handle: each
            for each in contents
            if each.spec.driver == driver and each.status and each.status.snapshot_handle
        },
        used=await usage_by_claim(readers, wanted) if with_used else {},
    )


async def _tagged(readers: Readers) -> _Tagged:
    """The volumes that are tagged as this cluster's; what cannot be read is a gap."""
    if readers.cloud.calls is None:
        return _Tagged()
    try:
        side = await cluster_side(readers)
        own = await look_at_own(readers, side)
    except StorageError as error:
        readers.cloud.gaps.append(Gap.of(AWS, "orphans", error))
        return _Tagged()
    volumes = [volume for each in own.seen for volume in each.volumes]
    orphans = [
        volume
        for each in own.seen
        for volume in each.volumes
        if not orphan_plan_rules.why_kept(volume, each.around)
    ]
    ids = [each.around.cluster_id for each in own.seen]
    return _Tagged(ids, volumes, orphans, _remarks(own))


def _remarks(own: Own) -> list[str]:
    """What is not counted, and why."""
    if not own.seen and not own.others:
        return [NO_CLUSTER_ID]
    return [
        f"orphans of cluster {each} and its snapshots that no object names are not counted: its "
        f"tag is on volumes here, but it seems to be another, living cluster ({why}); if it is "
        "this one, start the controller with --cluster-id"
        for each, why in own.others.items()
    ]


async def _volumes(
    readers: Readers, wanted: Collection[str], seen: Iterable[Volume]
) -> list[Volume]:
    """Volumes by their ids; EC2 is asked only for what was not seen just now."""
    known = {each.volume_id: each for each in seen if each.volume_id in wanted}
    others = [each for each in wanted if each not in known]
    return [*known.values(), *(await readers.cloud.volumes(others)).values()]


async def _snapshots(
    readers: Readers, handles: Iterable[str], cluster_ids: Sequence[str]
) -> list[EbsSnapshot]:
    """Those that a VolumeSnapshotContent names, and those that are tagged as this cluster's."""
    calls = readers.cloud.calls
    if calls is None:
        return []
    keys = [tags.cluster_key(each) for each in cluster_ids]
    tagged = (Snapshots(calls).find_any(each, ["owned"]) for each in keys)
    of_clusters = await asyncio.gather(
        *(readers.cloud.ask("DescribeSnapshots", each, []) for each in tagged)
    )
    found = {each.snapshot_id: each for some in of_clusters for each in some}
    return [*{**found, **await readers.cloud.snapshots(handles)}.values()]


async def _restores(readers: Readers) -> dict[str, int]:
    """In how many zones a snapshot has fast restore, by its id."""
    calls = readers.cloud.calls
    if calls is None:
        return {}
    found: dict[str, int] = {}
    async for page in pages(lambda each: calls.call("DescribeFastSnapshotRestores", each), {}):
        for each in page.get("FastSnapshotRestores", ()):
            if each.get("State") in _BILLED_RESTORES:
                found[each["SnapshotId"]] = found.get(each["SnapshotId"], 0) + 1
    return found


def _item_of(volume: Volume, objects: _Objects, rates: RegionPrices | None) -> Item:
    owner = _owner_of(volume.volume_id, objects)
    status = _status(volume, objects)
    usage = objects.used.get(f"{owner.namespace}/{owner.claim}")
    used = usage.used_bytes if usage is not None else None
    return cost_rules.volume_item(volume, owner, status, rates, used)


def _owner_of(volume_id: str, objects: _Objects) -> Owner:
    ref = objects.volumes[volume_id].spec.claim_ref
    if ref is None:
        return Owner()
    claim = objects.claims.get(f"{ref.namespace}/{ref.name}")
    if claim is None or ref.uid not in {claim.uid, ""}:
        return Owner(ref.namespace, ref.name)
    return Owner(ref.namespace, ref.name, claim.class_name, claim.metadata.labels or {})


def _unread_item(volume_id: str, objects: _Objects) -> Item:
    owner, capacity = _owner_of(volume_id, objects), objects.volumes[volume_id].capacity
    return cost_rules.unread_item(volume_id, owner, _unused(volume_id, objects), capacity)


def _status(volume: Volume, objects: _Objects) -> str:
    attached = cost_rules.IN_USE if volume.attachments else cost_rules.UNATTACHED
    return _unused(volume.volume_id, objects) or attached


def _unused(volume_id: str, objects: _Objects) -> str:
    """Why a volume is of no use to anybody, by its PersistentVolume; "" if that does not say so."""
    persistent_volume = objects.volumes[volume_id]
    if persistent_volume.phase == "Released":
        return cost_rules.RELEASED
    return cost_rules.UNCLAIMED if persistent_volume.spec.claim_ref is None else ""


def _orphan_item(volume: Volume, rates: RegionPrices | None) -> Item:
    owner = Owner(volume.tags.get(CLAIM_NAMESPACE, ""), volume.tags.get(CLAIM_NAME, ""))
    return cost_rules.volume_item(volume, owner, cost_rules.ORPHAN, rates)
