"""CopyVolumes: a volume made of another one, in its zone."""

import asyncio
from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import CannotRunError, Finding, RefusedError, Refuted
from provisioner.conformance.probes.asking import (
    all_held,
    cheap,
    held,
    outcome,
    refused,
    refused_while_creating,
)
from provisioner.conformance.probes.sources import COPYING, ERRORS, MODEL, rests, row

_CLONE = rests(
    "A clone would fail at every attempt, or have the wrong zone or size.",
    "controller/placement/clone_rules.py",
    "controller/sources/origin.py",
    "ec2/volumes.py",
)
_PACE = rests(
    "Clones would be tried again at the wrong pace.",
    "ec2/error_codes.py",
    "controller/sources/origin.py",
)
_LIMIT = "CopyVolumesLimitExceeded"


async def _copy(lab: Lab, source: str, **changes: Any) -> dict[str, Any]:
    asked = {"SourceVolumeId": source, "VolumeType": "gp3", **changes}
    reply = await lab.call("copy_volumes", **asked)
    copy: dict[str, Any] = reply["Volumes"][0]
    return copy


async def _initialized(lab: Lab, volume_id: str) -> bool:
    found = (await lab.call("describe_volume_status", VolumeIds=[volume_id]))["VolumeStatuses"]
    details = found[0]["VolumeStatus"].get("Details", []) if found else []
    return {"Name": "initialization-state", "Status": "completed"} in details


async def _is_creating_first(lab: Lab) -> Finding:
    source = await lab.volume(2)
    copy = await _copy(lab, source)
    volume_id, first = str(copy["VolumeId"]), copy.get("State")
    await lab.volume_state(volume_id, "available")
    shown = await lab.describe(volume_id)
    found = (first, shown["AvailabilityZone"], shown["Size"])
    return held(found == ("creating", lab.zone, 2), f"A copy was {found[0]}, and has {found[1:]}.")


async def _default_type(lab: Lab) -> Finding:
    source = await lab.volume()
    reply = await lab.call("copy_volumes", SourceVolumeId=source)
    kind = reply["Volumes"][0].get("VolumeType")
    return held(kind == "gp2", f"A copy of gp3, made without a type, is {kind}.")


async def _tags(lab: Lab) -> Finding:
    source = await lab.volume(
        TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "only-of-source", "Value": "1"}]}
        ]
    )
    copy = await _copy(lab, source)
    await lab.volume_state(str(copy["VolumeId"]), "available")
    tags = {each["Key"] for each in (await lab.describe(str(copy["VolumeId"]))).get("Tags", [])}
    return held("only-of-source" not in tags, f"A copy has the tags {', '.join(sorted(tags))}.")


async def _shows_source(lab: Lab) -> Finding:
    source = await lab.volume()
    shown = (await _copy(lab, source)).get("SourceVolumeId")
    return held(shown == source, f"A copy of {source} shows {shown}.")


async def _smaller(lab: Lab) -> Finding:
    source = await lab.volume(2)
    return await refused(
        lab, "InvalidParameterValue", "copy_volumes", SourceVolumeId=source, Size=1
    )


async def _missing(lab: Lab) -> Finding:
    return await refused(
        lab,
        "InvalidVolume.NotFound",
        "copy_volumes",
        SourceVolumeId=lab.missing_id("volume"),
        VolumeType="gp3",
    )


async def _of_creating(lab: Lab) -> Finding:
    return await refused_while_creating(lab, "copy_volumes", "SourceVolumeId", VolumeType="gp3")


async def _of_modified(lab: Lab) -> Finding:
    source = await lab.volume()
    await lab.call("modify_volume", VolumeId=source, Size=2)
    answer = await outcome(lab, "copy_volumes", SourceVolumeId=source, VolumeType="gp3")
    found = await lab.call("describe_volumes_modifications", VolumeIds=[source])
    state = found["VolumesModifications"][0]["ModificationState"]
    if answer is None and state != "modifying":
        raise CannotRunError(f"the modification was {state} at once")
    if answer is None:
        return Refuted("A volume was copied while its modification was modifying.")
    seen = f"A copy while the modification is modifying: {answer}"
    return held(answer.code == "IncorrectModificationState", seen)


async def _of_copy(lab: Lab) -> Finding:
    copy = str((await _copy(lab, await lab.volume()))["VolumeId"])
    await lab.volume_state(copy, "available")
    answer = await outcome(lab, "copy_volumes", SourceVolumeId=copy, VolumeType="gp3")
    if answer is None and await _initialized(lab, copy):
        raise CannotRunError("the copy was initialized at once")
    if answer is None:
        return Refuted("A copy was copied before it was initialized.")
    return held(answer.code == "IncorrectState", f"A copy of a new copy: {answer}")


async def _second_of_one(lab: Lab) -> Finding:
    source = await lab.volume()
    first = str((await _copy(lab, source))["VolumeId"])
    answer = await outcome(lab, "copy_volumes", SourceVolumeId=source, VolumeType="gp3")
    if answer is None and await _initialized(lab, first):
        raise CannotRunError("the first copy was initialized at once")
    if answer is None:
        return Refuted("A second copy was accepted while the first is not initialized.")
    return held(answer.code == _LIMIT, f"A second copy of one volume: {answer}")


async def _six(lab: Lab) -> Finding:
    sources = await asyncio.gather(*[lab.volume() for _ in range(6)])
    copies: list[str] = []
    for source in sources:
        try:
            copies.append(str((await _copy(lab, source))["VolumeId"]))
        except RefusedError as no:
            is_so = no.code == _LIMIT and len(copies) == 5  # noqa: PLR2004
            return held(is_so, f"Copy {len(copies) + 1} of different volumes: {no}")
    done = [await _initialized(lab, each) for each in copies]
    if any(done):
        raise CannotRunError(f"{sum(done)} of 6 copies were initialized at once")
    return Refuted("Six copies were in progress in one Region.")


async def _encrypted(lab: Lab) -> Finding:
    copy = await _copy(lab, await lab.volume(Encrypted=True))
    shown = copy.get("Encrypted")
    return all_held(held(shown is True, f"A copy of an encrypted volume is encrypted: {shown}."))


_COPY = ("CreateVolume", "CopyVolumes", "DescribeVolumes")
_STATUS = (*_COPY, "DescribeVolumeStatus")
RULES = (
    row(
        "copy-answers-creating",
        "CopyVolumes answers creating; the copy has its source's zone, and its size by default.",
        COPYING,
        _CLONE,
        cheap(_is_creating_first, *_COPY, volumes=2, copies=2, seconds=15),
    ),
    row(
        "copy-default-type",
        "A copy that is made without a type is gp2.",
        MODEL.at("CopyVolumes VolumeType, default"),
        rests("Nothing: the product always names the type.", "ec2/volumes.py"),
        cheap(_default_type, *_COPY, volumes=1, copies=1),
    ),
    row(
        "copy-leaves-tags",
        "A copy does not have its source's tags.",
        COPYING,
        rests(
            "A clone would be taken for its source.",
            "ec2/lookups.py",
            "controller/deleting/orphan_rules.py",
        ),
        cheap(_tags, *_COPY, volumes=1, copies=1, seconds=15),
    ),
    row(
        "copy-shows-its-source",
        "A copy shows the volume that it was made of.",
        MODEL.at("Volume SourceVolumeId"),
        rests("A volume of another content could be taken for ours.", "ec2/wire.py"),
        cheap(_shows_source, *_COPY, volumes=1, copies=1),
    ),
    row(
        "copy-not-smaller",
        "A copy smaller than its source is refused with InvalidParameterValue.",
        MODEL.at("CopyVolumes Size: equal or larger; the code is assumed"),
        _CLONE,
        cheap(_smaller, *_COPY, volumes=2, copies=1),
    ),
    row(
        "copy-of-missing",
        "A copy of what does not exist is refused with InvalidVolume.NotFound.",
        ERRORS.at("InvalidVolume.NotFound"),
        _CLONE,
        cheap(_missing, "CopyVolumes", copies=1),
    ),
    row(
        "copy-of-creating",
        "A copy of a volume that is creating is refused with IncorrectState.",
        COPYING.at("available or in-use; the code is assumed"),
        _CLONE,
        cheap(_of_creating, *_COPY, volumes=2, copies=1),
    ),
    row(
        "copy-of-modified",
        "A copy of a volume whose modification is modifying is refused with "
        "IncorrectModificationState.",
        COPYING.at("completed or optimizing; the code is assumed"),
        _CLONE,
        cheap(
            _of_modified,
            *_COPY,
            "ModifyVolume",
            "DescribeVolumesModifications",
            volumes=2,
            copies=2,
        ),
    ),
    row(
        "copy-of-new-copy",
        "A copy of a copy that is not initialized is refused with IncorrectState.",
        COPYING.at("the code is assumed"),
        _CLONE,
        cheap(_of_copy, *_STATUS, volumes=1, copies=2, seconds=15),
    ),
    row(
        "copy-one-of-a-source",
        "A second copy of a volume, before the first is initialized, is refused with "
        "CopyVolumesLimitExceeded.",
        COPYING.at("the code is assumed to be that of the Region's limit"),
        _PACE,
        cheap(_second_of_one, *_STATUS, volumes=1, copies=2),
    ),
    row(
        "copy-five-in-a-region",
        "Five copies of a Region are in progress at once; one more is refused with "
        "CopyVolumesLimitExceeded.",
        COPYING.at("the code is assumed"),
        _PACE,
        cheap(_six, *_STATUS, volumes=6, copies=6, seconds=30, alone=True),
    ),
    row(
        "copy-stays-encrypted",
        "A copy of an encrypted volume is encrypted.",
        COPYING,
        _CLONE,
        cheap(_encrypted, *_COPY, volumes=1, copies=1),
    ),
    row(
        "copy-of-outpost",
        "A volume on an Outpost cannot be copied (UnsupportedOperation).",
        COPYING.at("the code is assumed"),
        _CLONE,
        "It needs an Outpost.",
    ),
)
