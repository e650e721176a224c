"""Velero and snapscheduler beside us: each writes here what it writes, in its order.

docs/neighbours.md names the versions, and the files in which this was read.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping

import pytest

from provisioner.model.names import PINNED_ZONE
from provisioner.sandbox import nodes
from tests.cluster import copies
from tests.cluster.cluster import ATTACHMENTS, PVS, SELECTED_NODE, Json, handle_of
from tests.cluster.copies import API_VERSION, CONTENTS, SNAPSHOT_CLASSES, in_zones, snapshots_of
from tests.cluster.place import Place
from tests.cluster.snapshot_hands import a_class, a_source, ec2_snapshot, take, told_by_us
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

BACKUP, RESTORE = "velero.io/backup-name", "velero.io/restore-name"


async def content_of(
    place: Place, snapshot_id: str, name: str, owner: Mapping[str, str], **changes: Json
) -> Json:
    """A content of a snapshot that exists, as Velero makes it."""
    spec: Json = {
        "driver": nodes.DRIVER,
        "deletionPolicy": "Delete",
        "source": {"snapshotHandle": snapshot_id},
        "volumeSnapshotRef": dict(owner),
    }
    body = {
        "apiVersion": API_VERSION,
        "kind": "VolumeSnapshotContent",
        "metadata": {"name": name, **changes.get("metadata", {})},
        "spec": spec | changes.get("spec", {}),
    }
    made: Json = await place.api.create(CONTENTS, body)
    return made


async def snapshot_of(place: Place, name: str, source: Json, **more: Json) -> Json:
    """A VolumeSnapshot."""
    body = {
        "apiVersion": API_VERSION,
        "kind": "VolumeSnapshot",
        "metadata": {"name": name, **more.get("metadata", {})},
        "spec": {"source": source, **more.get("spec", {})},
    }
    made: Json = await place.api.create(snapshots_of(place), body)
    return made


# -- Velero


@together.test
async def test_a_claim_that_velero_restores_gets_no_volume_but_the_one_it_is_handed(place: Place):
    """The data mover: it fills the volume of a claim of its own, and rebinds it."""
    class_name = await place.storage_class(waits=True)
    selector = {"matchLabels": {"velero.io/dynamic-pv-restore": f"{place.name}.data.x7k2q"}}
    target = await place.claim(class_name, selector=selector)
    pod = await place.pod(target)

    async def node_is_chosen() -> str:
        claim = await place.api.get(f"{place.claims}/data")
        return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))

    node = await place.cluster.until("the scheduler has chosen a node", node_is_chosen)
    await place.told("selector")

    restore = await place.api.create(
        place.claims,
        {
            "metadata": {"name": "restore", "annotations": {SELECTED_NODE: node}},
            "spec": {k: v for k, v in target["spec"].items() if k != "selector"},
        },
    )
    filler = await place.pod(restore, nodeSelector={"kubernetes.io/hostname": node})
    pv = await place.bound("restore")
    assert await place.node_of(filler) == node
    path = f"{PVS}/{pv['metadata']['name']}"
    await attached(place, pv)
    assert await node_is_chosen() == node  # our refusal has not taken it away

    await place.api.patch(path, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    await place.api.delete(f"{place.pods}/restore", gracePeriodSeconds="0")
    await place.is_gone(f"{place.pods}/restore")
    await place.remove(f"{place.claims}/restore")
    await place.api.patch(f"{place.claims}/data", {"spec": {"volumeName": pv["metadata"]["name"]}})
    claim_ref = {"kind": "PersistentVolumeClaim", "namespace": place.name, "name": "data"}
    others = dict.fromkeys(("uid", "resourceVersion", "apiVersion"))
    bound_by = {"annotations": {"pv.kubernetes.io/bound-by-controller": None}}
    metadata = {"labels": selector["matchLabels"], **bound_by}
    await place.api.patch(path, {"metadata": metadata, "spec": {"claimRef": claim_ref | others}})

    handed = await place.bound()
    await place.api.patch(path, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    assert handle_of(handed) == handle_of(pv)
    assert await place.node_of(pod) == node
    await attached(place, handed)
    assert await place.volumes() == [handle_of(pv)]
    # The end of the story deletes the claim, and finds no volume left in EC2.


async def attached(place: Place, pv: Json) -> None:
    async def seen() -> bool:
        return any(
            each["spec"]["source"].get("persistentVolumeName") == pv["metadata"]["name"]
            and (each.get("status") or {}).get("attached")
            for each in (await place.api.get(ATTACHMENTS))["items"]
        )

    await place.cluster.until(f"{pv['metadata']['name']} is attached", seen)


@together.test
async def test_velero_takes_a_snapshot_over_into_a_content_of_its_own(place: Place):
    """The data mover: the user's VolumeSnapshot goes, and its snapshot stays for Velero's."""
    await a_source(place)
    async with a_class(place):
        await take(place)
        content = await copies.ready(place)
        path = f"{CONTENTS}/{content['metadata']['name']}"
        snapshot_id = content["status"]["snapshotHandle"]

        of_velero = f"{place.name}-upload"
        of_class = {"volumeSnapshotClassName": place.name}
        source = {"volumeSnapshotContentName": of_velero}
        about = (await snapshot_of(place, "upload", source, spec=of_class))["metadata"]
        owner = {k: about[k] for k in ("name", "namespace", "uid", "resourceVersion")}
        annotations = {"annotations": content["metadata"].get("annotations", {})}
        await content_of(place, snapshot_id, of_velero, owner, metadata=annotations, spec=of_class)
        await place.api.patch(path, {"spec": {"deletionPolicy": "Retain"}})
        await place.remove(f"{snapshots_of(place)}/monday")
        await place.remove(path)

        await copies.ready(place, "upload")
        class_name = f"{place.name}-class"
        await place.claim(class_name, "upload", **copies.of_snapshot("upload"))
        volume = await copies.volume_of(place, "upload")
        assert volume["SnapshotId"] == snapshot_id
        assert await place.cluster.calls(snapshot_id, "DeleteSnapshot") == []

        await place.remove(f"{place.claims}/upload")
        await place.remove(f"{snapshots_of(place)}/upload")
        await place.is_gone(f"{CONTENTS}/{of_velero}")
        assert await ec2_snapshot(place, snapshot_id) is None


@contextlib.asynccontextmanager
async def a_backup(place: Place) -> AsyncIterator[Json]:
    """What is left of a backup of claim "data": its content, as Velero has stored it."""
    await a_source(place)
    async with a_class(place):
        await take(place)
        stored = await copies.ready(place)
        path = f"{CONTENTS}/{stored['metadata']['name']}"
        # A finished backup removes both objects, the content first.
        labels = {"labels": {BACKUP: place.name}}
        await place.api.patch(path, {"metadata": labels, "spec": {"deletionPolicy": "Retain"}})
        await place.api.delete(path)
        await place.remove(f"{snapshots_of(place)}/monday")
        await place.is_gone(path)
        stored["metadata"].setdefault("labels", {}).update(labels["labels"])
        yield stored


async def restored(place: Place, backup: Json) -> None:
    """What Velero makes of it: content, snapshot and claim "restored", in another zone."""
    snapshot_id = backup["status"]["snapshotHandle"]
    name = f"{place.name}-restored"
    labels = {"labels": {BACKUP: place.name, RESTORE: "tuesday"}}
    spec = {"deletionPolicy": "Retain", "volumeSnapshotClassName": place.name}
    owner = {"namespace": place.name, "name": name}
    await content_of(place, snapshot_id, name, owner, metadata=labels, spec=spec)
    await snapshot_of(place, name, {"volumeSnapshotContentName": name}, metadata=labels)
    elsewhere = await place.storage_class("b", allowedTopologies=in_zones("us-east-1b"))
    # Velero leaves our annotations on the claim: they are those of the claim that was backed up.
    of_old = {PINNED_ZONE: f"us-east-1a/{uuid.uuid4()}"}
    claim = {
        "storageClassName": elsewhere,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **copies.of_snapshot(name),
    }
    metadata = {"name": "restored", "annotations": of_old, **labels}
    await place.api.create(place.claims, {"metadata": metadata, "spec": claim})
    volume = await copies.volume_of(place, "restored")
    assert volume["SnapshotId"] == snapshot_id
    assert volume["AvailabilityZone"] == "us-east-1b"


async def end(place: Place, backup: Json) -> None:
    """``velero backup delete``: a content that is bound to nothing is made, and deleted."""
    about, nobody = backup["metadata"], backup["metadata"]["uid"]
    kept = {key: about[key] for key in ("labels", "annotations", "finalizers") if key in about}
    owner = {"namespace": f"ns-{nobody}", "name": f"name-{nobody}"}
    name = f"vsc-{uuid.uuid4()}"
    await content_of(place, backup["status"]["snapshotHandle"], name, owner, metadata=kept)
    # Velero waits 2 s here for whoever is to see it; we must not need that.
    await place.api.delete(f"{CONTENTS}/{name}")
    await place.is_gone(f"{CONTENTS}/{name}")


@together.test
async def test_a_backup_is_restored_into_another_zone_and_its_end_deletes_its_snapshot(
    place: Place,
):
    async with a_backup(place) as backup:
        snapshot_id = backup["status"]["snapshotHandle"]
        await restored(place, backup)
        name = f"{place.name}-restored"
        await place.remove(f"{place.claims}/restored")
        # Whoever deletes what was restored deletes nothing of the backup.
        await place.remove(f"{snapshots_of(place)}/{name}")
        assert await ec2_snapshot(place, snapshot_id) is not None
        assert await place.cluster.get(f"{CONTENTS}/{name}") is not None

        await end(place, backup)

        assert await ec2_snapshot(place, snapshot_id) is None
        await place.remove(f"{CONTENTS}/{name}")


# -- snapscheduler


@together.test
async def test_a_scheduled_snapshot_without_a_class_takes_the_default_class(place: Place):
    await a_source(place)
    default = {"snapshot.storage.kubernetes.io/is-default-class": "true"}
    made = {
        "apiVersion": API_VERSION,
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": place.name, "annotations": default},
        "driver": nodes.DRIVER,
        "deletionPolicy": "Delete",
    }
    await place.api.create(SNAPSHOT_CLASSES, made)
    labels = {
        "snapscheduler.backube/schedule": "hourly",
        "snapscheduler.backube/when": "2611231000",
    }
    name = "data-hourly-202611231000"
    source = {"persistentVolumeClaimName": "data"}
    try:
        await snapshot_of(place, name, source, metadata={"labels": labels})
        snapshot_id = await copies.id_of(place, name)
        assert await told_by_us(place, name) == []

        await place.api.delete(f"{snapshots_of(place)}/{name}", propagationPolicy="Background")
        await place.is_gone(f"{snapshots_of(place)}/{name}")

        async def gone() -> bool:
            return await ec2_snapshot(place, snapshot_id) is None

        await place.cluster.until("the snapshot is gone in EC2", gone)
    finally:
        await place.api.delete(f"{SNAPSHOT_CLASSES}/{place.name}")
