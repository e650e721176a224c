"""Snapshots: taking, deleting, listing, and volumes made of them."""

import asyncio

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import (
    CannotRunError,
    Confirmed,
    Finding,
    NotSeenError,
    Probe,
    RefusedError,
    Refuted,
    Usage,
    VolumeUse,
)
from provisioner.conformance.probes.asking import (
    accepted,
    all_held,
    cheap,
    filtered,
    held,
    made,
    new_volume,
    outcome,
    refused,
    refused_while_creating,
    tagged,
)
from provisioner.conformance.probes.sources import (
    ERRORS,
    INITIALIZING,
    MODEL,
    assumed,
    documented,
    observed,
    rests,
    row,
)

_TAKING = rests(
    "A snapshot would be reported ready before it is, or never.",
    "controller/snapshotting/taking.py",
    "controller/snapshotting/content_rules.py",
)
_RATE = rests(
    "Snapshots would be tried again at the wrong pace.",
    "ec2/error_codes.py",
    "controller/snapshotting/attempts.py",
)
_GONE = rests(
    "A content would stay after its snapshot is gone, or go before it.",
    "controller/snapshotting/flow.py",
    "ec2/snapshots.py",
)
_RESTORE = rests(
    "A claim that restores a snapshot would fail at every attempt.",
    "controller/claims/source_rules.py",
    "controller/sources/origin.py",
)
_INTERVAL_S = 16.0
_PAGES = 20


async def _taken(lab: Lab, volume_id: str) -> dict[str, object]:
    reply: dict[str, object] = await lab.call("create_snapshot", VolumeId=volume_id)
    return reply


async def _snapshot_state(lab: Lab, snapshot_id: str) -> str:
    found = await lab.call("describe_snapshots", SnapshotIds=[snapshot_id])
    return str(found["Snapshots"][0]["State"])


async def _is_pending_first(lab: Lab) -> Finding:
    reply = await _taken(lab, await lab.volume())
    snapshot_id, first = str(reply["SnapshotId"]), reply.get("State")

    async def completed() -> bool:
        return await _snapshot_state(lab, snapshot_id) == "completed"

    try:
        await lab.until(f"{snapshot_id} is completed", completed, 600)
    except NotSeenError as late:
        return Refuted(f"CreateSnapshot answered {first}; {late}.")
    return held(first == "pending", f"CreateSnapshot answered {first}; then it was completed.")


async def _too_soon(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await _taken(lab, volume_id)
    return await refused(
        lab, "SnapshotCreationPerVolumeRateExceeded", "create_snapshot", VolumeId=volume_id
    )


async def _fifteen_seconds(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await _taken(lab, volume_id)
    await lab.sleep(_INTERVAL_S)
    return await accepted(lab, "create_snapshot", VolumeId=volume_id)


async def _no_token(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    first = await _taken(lab, volume_id)
    await lab.sleep(_INTERVAL_S)
    second = await _taken(lab, volume_id)
    different = first["SnapshotId"] != second["SnapshotId"]
    return held(different, "The same CreateSnapshot, sent twice, took two snapshots.")


async def _pending_at_once(lab: Lab, volume_id: str, most: int) -> Finding:
    taken: list[str] = []
    for _ in range(most):
        taken.append(str((await _taken(lab, volume_id))["SnapshotId"]))
        await lab.sleep(_INTERVAL_S)
    answer = await outcome(lab, "create_snapshot", VolumeId=volume_id)
    states = [await _snapshot_state(lab, each) for each in taken]
    if states.count("pending") < most:
        raise CannotRunError(f"of {most} snapshots {states.count('completed')} were completed")
    if answer is None:
        return Refuted(f"With {most} snapshots pending, one more was accepted.")
    seen = f"With {most} snapshots pending: {answer}"
    return held(answer.code == "ConcurrentSnapshotLimitExceeded", seen)


async def _five_pending(lab: Lab) -> Finding:
    return await _pending_at_once(lab, await lab.volume(), 5)


async def _one_pending(lab: Lab) -> Finding:
    return await _pending_at_once(lab, await lab.volume(125, VolumeType="sc1"), 1)


async def _while_creating(lab: Lab) -> Finding:
    return await refused_while_creating(lab, "create_snapshot")


async def _missing_volume(lab: Lab) -> Finding:
    return await refused(
        lab, "InvalidVolume.NotFound", "create_snapshot", VolumeId=lab.missing_id("volume")
    )


async def _tagged(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    reply = await lab.call(
        "create_snapshot", VolumeId=volume_id, TagSpecifications=tagged("snapshot", a="1")
    )

    async def listed() -> bool:
        found = await lab.call(
            "describe_snapshots",
            OwnerIds=["self"],
            Filters=[lab.tag_filter, filtered("tag:a", "1")],
        )
        return reply["SnapshotId"] in {each["SnapshotId"] for each in found["Snapshots"]}

    try:
        await lab.until("the snapshot is found by its tag", listed, 30)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    return Confirmed("A snapshot is found by the tag that it was made with.")


async def _outlives(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    snapshot_id = await lab.snapshot(volume_id)
    await lab.call("delete_volume", VolumeId=volume_id)
    await lab.sleep(5)
    try:
        state = await _snapshot_state(lab, snapshot_id)
    except RefusedError as no:
        return Refuted(f"After its volume is deleted: {no}")
    return held(state == "completed", f"After its volume is deleted, a snapshot is {state}.")


async def _keeps_size(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    snapshot_id = await lab.snapshot(volume_id)
    await lab.call("modify_volume", VolumeId=volume_id, Size=2)

    async def grown() -> bool:
        return bool((await lab.describe(volume_id))["Size"] == 2)  # noqa: PLR2004

    await lab.until("the volume has grown", grown, 300)
    found = await lab.call("describe_snapshots", SnapshotIds=[snapshot_id])
    size = found["Snapshots"][0]["VolumeSize"]
    return held(size == 1, f"After its volume of 1 GiB has grown, a snapshot shows {size} GiB.")


async def _delete_twice(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    await lab.call("delete_snapshot", SnapshotId=snapshot_id)

    async def gone() -> bool:
        return await lab.code_of("describe_snapshots", SnapshotIds=[snapshot_id]) != ""

    try:
        await lab.until(f"{snapshot_id} is gone", gone, 60)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    return await refused(lab, "InvalidSnapshot.NotFound", "delete_snapshot", SnapshotId=snapshot_id)


async def _delete_pending(lab: Lab) -> Finding:
    snapshot_id = str((await _taken(lab, await lab.volume()))["SnapshotId"])
    if await _snapshot_state(lab, snapshot_id) != "pending":
        raise CannotRunError("the snapshot was completed at once")
    return await accepted(lab, "delete_snapshot", SnapshotId=snapshot_id)


async def _missing_named(lab: Lab) -> Finding:
    there, gone = await lab.snapshot(await lab.volume()), lab.missing_id("snapshot")
    answer = await outcome(lab, "describe_snapshots", SnapshotIds=[there, gone])
    if answer is None:
        return Refuted("DescribeSnapshots with a missing id was accepted.")
    named = gone in answer.message and there not in answer.message
    return held(answer.code == "InvalidSnapshot.NotFound" and named, f"A missing id: {answer}")


async def _malformed(lab: Lab) -> Finding:
    return await refused(
        lab, "InvalidSnapshotID.Malformed", "describe_snapshots", SnapshotIds=["snap-monday"]
    )


async def _of_others(lab: Lab) -> Finding:
    """Everybody's public snapshots are there without OwnerIds, and only ours with them."""
    snapshot_id = await lab.snapshot(await lab.volume())
    ours = await lab.call("describe_snapshots", SnapshotIds=[snapshot_id])
    me = ours["Snapshots"][0]["OwnerId"]
    mine = await lab.call("describe_snapshots", OwnerIds=["self"], MaxResults=1000)
    owners = {each["OwnerId"] for each in mine["Snapshots"]}
    others: set[str] = set()
    token: dict[str, str] = {}
    for _ in range(_PAGES):  # a page may hold few, or none
        everybody = await lab.call("describe_snapshots", MaxResults=1000, **token)
        others |= {each["OwnerId"] for each in everybody["Snapshots"]} - {me}
        if others or not (following := everybody.get("NextToken")):
            break
        token = {"NextToken": following}
    seen = f"OwnerIds self shows owners {len(owners)}, nothing shows {len(others)} others."
    return held(owners == {me} and bool(others), seen)


async def _too_small(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume(2))
    asked = new_volume(lab, SnapshotId=snapshot_id, Size=1)
    return await refused(lab, "InvalidParameterValue", "create_volume", **asked)


async def _default_size(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume(2))
    reply = await made(lab, SnapshotId=snapshot_id, Size=None)
    size = reply.get("Size")
    return held(size == 2, f"A volume of a snapshot of 2 GiB, made without a size, has {size}.")  # noqa: PLR2004


async def _restore_pending(lab: Lab) -> Finding:
    snapshot_id = str((await _taken(lab, await lab.volume()))["SnapshotId"])
    answer = await outcome(lab, "create_volume", **new_volume(lab, SnapshotId=snapshot_id))
    if await _snapshot_state(lab, snapshot_id) != "pending":
        raise CannotRunError("the snapshot was completed at once")
    if answer is None:
        return Refuted("A volume was made of a snapshot that is pending.")
    return held(answer.code == "IncorrectState", f"A volume of a pending snapshot: {answer}")


async def _restore_missing(lab: Lab) -> Finding:
    gone = lab.missing_id("snapshot")
    asked = new_volume(lab, SnapshotId=gone)
    return await refused(lab, "InvalidSnapshot.NotFound", "create_volume", text=gone, **asked)


async def _names_its_snapshot(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    reply = await made(lab, SnapshotId=snapshot_id)
    shown = reply.get("SnapshotId")
    return held(shown == snapshot_id, f"A volume of {snapshot_id} shows {shown}.")


async def _encrypted(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume(Encrypted=True))
    reply = await made(lab, SnapshotId=snapshot_id)
    shown = reply.get("Encrypted")
    return held(shown is True, f"A volume of an encrypted snapshot is encrypted: {shown}.")


async def _rate_bounds(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())

    async def tried(rate: int) -> Finding:
        asked = new_volume(lab, SnapshotId=snapshot_id, VolumeInitializationRate=rate)
        if rate in (100, 300):
            return await accepted(lab, "create_volume", **asked, DryRun=True)
        return await refused(lab, "InvalidParameterValue", "create_volume", **asked, DryRun=True)

    return all_held(*[await tried(rate) for rate in (100, 300, 99, 301)])


async def _initialization_shown(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    empty, restored = await asyncio.gather(lab.volume(), lab.volume(SnapshotId=snapshot_id))
    operation = "describe_volume_status"

    async def state(volume_id: str) -> str:
        found = (await lab.call(operation, VolumeIds=[volume_id]))["VolumeStatuses"]
        details = found[0]["VolumeStatus"].get("Details", []) if found else []
        states = {each["Name"]: each["Status"] for each in details}
        return str(states.get("initialization-state", ""))

    try:
        shown = await lab.until("an initialization is shown", lambda: state(restored), 600)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    of_empty = await state(empty)
    known = shown in ("initializing", "completed") and of_empty in ("", "not-applicable")
    return held(known, f"A restored volume is {shown}; of an empty one is told {of_empty or '-'}.")


_SNAPSHOT = ("CreateVolume", "CreateSnapshot", "DescribeSnapshots")
RULES = (
    row(
        "snapshot-answers-pending",
        "CreateSnapshot answers pending; then the snapshot is completed.",
        MODEL.at("SnapshotState"),
        _TAKING,
        cheap(_is_pending_first, *_SNAPSHOT, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "snapshot-interval",
        "A second snapshot of a volume within 15 s is refused with "
        "SnapshotCreationPerVolumeRateExceeded.",
        ERRORS.at("SnapshotCreationPerVolumeRateExceeded"),
        _RATE,
        cheap(_too_soon, *_SNAPSHOT, volumes=1, snapshots=2),
    ),
    row(
        "snapshot-interval-ends",
        "After 16 s a second snapshot of a volume is accepted.",
        ERRORS.at("SnapshotCreationPerVolumeRateExceeded"),
        _RATE,
        cheap(_fifteen_seconds, *_SNAPSHOT, volumes=1, snapshots=2, seconds=30),
    ),
    row(
        "snapshot-has-no-token",
        "The same CreateSnapshot sent twice takes two snapshots.",
        MODEL.at("CreateSnapshot has no ClientToken"),
        rests(
            "Nothing if false; a lost reply is looked for by tag.",
            "controller/snapshotting/taking.py",
            "ec2/lookups.py",
        ),
        cheap(_no_token, *_SNAPSHOT, volumes=1, snapshots=2, seconds=30),
    ),
    row(
        "snapshot-five-pending",
        "Five snapshots of a volume may be pending; one more is refused with "
        "ConcurrentSnapshotLimitExceeded.",
        documented("Amazon EBS endpoints and quotas; the code is assumed"),
        _RATE,
        cheap(_five_pending, *_SNAPSHOT, volumes=1, snapshots=6, seconds=120),
    ),
    row(
        "snapshot-one-pending",
        "One snapshot of an st1 or sc1 volume may be pending (ConcurrentSnapshotLimitExceeded).",
        documented("Amazon EBS endpoints and quotas; the code is assumed"),
        _RATE,
        Probe(
            _one_pending,
            _SNAPSHOT,
            Usage((VolumeUse(125, "sc1"),), snapshots_gib=250, seconds=60),
        ),
    ),
    row(
        "snapshot-quotas",
        "100 snapshots of an account may be pending (ConcurrentSnapshotLimitExceeded), and 100,000 "
        "be kept in a Region (SnapshotLimitExceeded).",
        documented("Amazon EBS endpoints and quotas, an undated copy; the code is assumed"),
        _RATE,
        "It would need more than 100 snapshots that take long.",
    ),
    row(
        "snapshot-while-creating",
        "CreateSnapshot of a volume that is creating is refused with IncorrectState.",
        assumed("it must be in-use or available"),
        _TAKING,
        cheap(_while_creating, *_SNAPSHOT, volumes=2, snapshots=1),
    ),
    row(
        "snapshot-of-missing",
        "CreateSnapshot of a volume that does not exist is refused with InvalidVolume.NotFound.",
        ERRORS.at("InvalidVolume.NotFound"),
        rests("A snapshot would be tried for ever.", "ec2/error_codes.py"),
        cheap(_missing_volume, "CreateSnapshot"),
    ),
    row(
        "snapshot-tags",
        "A snapshot is made together with its tags, which find it.",
        MODEL.at("CreateSnapshot TagSpecification"),
        rests("A lost reply would cost a second snapshot.", "ec2/lookups.py", "ec2/snapshots.py"),
        cheap(_tagged, *_SNAPSHOT, volumes=1, snapshots=1),
    ),
    row(
        "snapshot-outlives-its-volume",
        "A snapshot stays when its volume is deleted.",
        documented("EBS user guide, Amazon EBS snapshots"),
        rests("A backup would be lost with its claim.", "controller/deleting/flow.py"),
        cheap(_outlives, *_SNAPSHOT, "DeleteVolume", volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "snapshot-keeps-its-size",
        "A snapshot shows the size that its volume had.",
        MODEL.at("Snapshot VolumeSize"),
        _RESTORE,
        cheap(_keeps_size, *_SNAPSHOT, "ModifyVolume", volumes=2, snapshots=1, seconds=150),
    ),
    row(
        "snapshot-may-fail",
        "A snapshot may end in state error, and counts among the pending ones until it is deleted.",
        documented("AWS knowledge centre, ebs-snapshot-stuck"),
        _TAKING,
        "EC2 cannot be made to fail.",
    ),
    row(
        "snapshot-deleted-is-not-found",
        "A deleted snapshot is answered with InvalidSnapshot.NotFound.",
        ERRORS.at("InvalidSnapshot.NotFound"),
        _GONE,
        cheap(_delete_twice, *_SNAPSHOT, "DeleteSnapshot", volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "snapshot-deleted-while-pending",
        "A pending snapshot can be deleted.",
        MODEL.at("DeleteSnapshot"),
        _GONE,
        cheap(_delete_pending, *_SNAPSHOT, "DeleteSnapshot", volumes=1, snapshots=1),
    ),
    row(
        "snapshot-in-use",
        "A snapshot that an image uses is not deleted (InvalidSnapshot.InUse).",
        ERRORS.at("InvalidSnapshot.InUse"),
        _GONE,
        "It would need an image, which no tag of this run finds again.",
    ),
    row(
        "snapshot-missing-named",
        "One missing id fails the whole DescribeSnapshots with InvalidSnapshot.NotFound, whose "
        "text names that id and no other.",
        assumed("as for volumes"),
        rests("One snapshot that is gone would hide others.", "ec2/batches.py"),
        cheap(_missing_named, *_SNAPSHOT, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "snapshot-malformed-id",
        "What begins like a snapshot id and is none is refused with InvalidSnapshotID.Malformed.",
        ERRORS.at("InvalidSnapshotID.Malformed"),
        rests("A handle that is no snapshot would be tried for ever.", "ec2/error_codes.py"),
        cheap(_malformed, "DescribeSnapshots"),
    ),
    row(
        "snapshots-of-others",
        "DescribeSnapshots shows everybody's public snapshots, and only ours with OwnerIds self.",
        MODEL.at("DescribeSnapshots"),
        rests("Somebody else's snapshot could be taken for ours.", "ec2/snapshots.py"),
        cheap(_of_others, *_SNAPSHOT, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "restore-not-smaller",
        "A volume smaller than its snapshot is refused with InvalidParameterValue.",
        MODEL.at("CreateVolume Size: equal or larger; the code is assumed"),
        _RESTORE,
        cheap(_too_small, *_SNAPSHOT, volumes=3, snapshots=2, seconds=120),
    ),
    row(
        "restore-default-size",
        "A volume that is made of a snapshot, without a size, has the snapshot's.",
        MODEL.at("CreateVolume Size: default"),
        rests("Nothing: the product names the size.", "ec2/volumes.py"),
        cheap(_default_size, *_SNAPSHOT, volumes=4, snapshots=2, seconds=120),
    ),
    row(
        "restore-of-pending",
        "A volume of a snapshot that is pending is refused with IncorrectState.",
        observed("public issues quote 'Snapshot is in invalid state - pending'"),
        rests(
            "A claim would fail for good where it should wait.",
            "ec2/error_codes.py",
            "controller/claims/source_rules.py",
        ),
        cheap(_restore_pending, *_SNAPSHOT, volumes=2, snapshots=1),
    ),
    row(
        "restore-of-missing",
        "A volume of a snapshot that does not exist is refused with InvalidSnapshot.NotFound, "
        "whose text names it.",
        ERRORS.at("InvalidSnapshot.NotFound"),
        _RESTORE,
        cheap(_restore_missing, "CreateVolume", volumes=1),
    ),
    row(
        "restore-shows-its-snapshot",
        "A restored volume shows the snapshot that it was made of.",
        MODEL.at("Volume SnapshotId"),
        rests("A volume of another content could be taken for ours.", "ec2/wire.py"),
        cheap(_names_its_snapshot, *_SNAPSHOT, volumes=2, snapshots=1, seconds=120),
    ),
    row(
        "restore-stays-encrypted",
        "A volume of an encrypted snapshot is encrypted.",
        MODEL.at("CreateVolume Encrypted"),
        _RESTORE,
        cheap(_encrypted, *_SNAPSHOT, volumes=2, snapshots=1, seconds=120),
    ),
    row(
        "restore-rate-bounds",
        "VolumeInitializationRate is 100 to 300 MiB/s (InvalidParameterValue).",
        INITIALIZING.at("the code is assumed"),
        rests(
            "A class would be refused that EC2 takes, or the other way round.",
            "classes/storage_class_rules.py",
        ),
        cheap(_rate_bounds, *_SNAPSHOT, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "restore-rate-of-the-region",
        "All rates of a Region add up to 5,000 MiB/s at most; more is refused, with a code that "
        "nobody quotes (here VolumeInitializationRateLimitExceeded).",
        INITIALIZING.at("the code is ours"),
        rests("A claim would fail for good where it should wait.", "ec2/error_codes.py"),
        "It would need 17 large volumes that are initialized at a price.",
    ),
    row(
        "restore-shows-its-initialization",
        "DescribeVolumeStatus shows how far a restored volume is initialized, and nothing of one "
        "that was made empty.",
        documented("EBS user guide, Monitor the status of Amazon EBS volume initialization"),
        rests(
            "An attachment that waits for its data would wait for ever.",
            "controller/attaching/initialization_rules.py",
            "ec2/volumes.py",
        ),
        cheap(
            _initialization_shown,
            *_SNAPSHOT,
            "DescribeVolumeStatus",
            volumes=3,
            snapshots=1,
            seconds=300,
        ),
    ),
)
