"""ModifyVolume and DescribeVolumesModifications."""

import asyncio
from typing import Any

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
    SHARED,
    SHARED_VOLUMES,
    accepted,
    all_held,
    cheap,
    filtered,
    held,
    outcome,
    refused,
    refused_while_creating,
)
from provisioner.conformance.probes.sources import (
    ERRORS,
    MODEL,
    MODIFYING,
    MULTI_ATTACH,
    assumed,
    observed,
    rests,
    row,
)

_STEPS = ("controller/modifying/rules.py", "controller/modifying/steps.py")
_GROWTH = rests("A claim would show its new size too early, or never.", *_STEPS)
_LIMIT = rests(
    "Growth would be tried again and again, or wait for hours without need.",
    *_STEPS,
    "ec2/error_codes.py",
)
_SHAPES = rests(
    "A change would be sent that EC2 refuses, or one that is needed would not be.",
    "controller/modifying/shape_rules.py",
    "model/volume_type.py",
)
_BAD = ("InvalidParameterValue", "InvalidParameterCombination")
_STATES = ("modifying", "optimizing", "completed")
_COMPLETED_WITHIN_S = 1200.0
_BUDGET = 4
_LARGE_GIB = 200  # gp2 has 250 MiB/s from 170 GiB on


async def _modify(lab: Lab, volume_id: str, **changes: Any) -> dict[str, Any]:
    reply = await lab.call("modify_volume", VolumeId=volume_id, **changes)
    modification: dict[str, Any] = reply["VolumeModification"]
    return modification


async def _modification(lab: Lab, volume_id: str) -> dict[str, Any]:
    found = await lab.call("describe_volumes_modifications", VolumeIds=[volume_id])
    latest: dict[str, Any] = found["VolumesModifications"][0]
    return latest


async def _state(lab: Lab, volume_id: str, *states: str, within_s: float) -> str:
    """Wait until the latest modification has one of these states."""

    async def reached() -> str:
        try:
            state = str((await _modification(lab, volume_id))["ModificationState"])
        except RefusedError as no:
            if no.code == "InvalidVolumeModification.NotFound":
                return ""  # not visible yet
            raise
        return state if state in states else ""

    return await lab.until(f"{volume_id} is {' or '.join(states)}", reached, within_s)


async def _grows(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    reply = await _modify(lab, volume_id, Size=2)
    first = reply.get("ModificationState")
    try:
        state = await _state(lab, volume_id, "optimizing", "completed", within_s=300)
    except NotSeenError as late:
        return Refuted(f"ModifyVolume answered {first}; {late}.")
    seen = f"ModifyVolume answered {first}; then it was {state}."
    return held(first == "modifying", seen)


async def _size_shows(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await _modify(lab, volume_id, Size=2)
    early = (await lab.describe(volume_id))["Size"]
    if await _state(lab, volume_id, *_STATES, within_s=60) == "modifying" and early != 1:
        return Refuted("DescribeVolumes showed the new size while the modification was modifying.")
    if await _state(lab, volume_id, "optimizing", "completed", within_s=300) == "completed":
        raise CannotRunError("the modification was completed before it was seen optimizing")

    async def shown() -> bool:
        return bool((await lab.describe(volume_id))["Size"] == 2)  # noqa: PLR2004

    try:
        await lab.until("DescribeVolumes shows the new size", shown, 30)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    state = (await _modification(lab, volume_id))["ModificationState"]
    return Confirmed(f"DescribeVolumes showed the new size while the modification was {state}.")


async def _one_at_a_time(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await _modify(lab, volume_id, Size=2)
    answer = await outcome(lab, "modify_volume", VolumeId=volume_id, Size=3)
    if answer is None:
        if (await _modification(lab, volume_id))["ModificationState"] == "completed":
            raise CannotRunError("the first modification was completed at once")
        return Refuted("A second ModifyVolume was accepted while the first was running.")
    seen = f"ModifyVolume while one is running: {answer}"
    return held(answer.code == "IncorrectModificationState", seen)


async def _shrinks(lab: Lab) -> Finding:
    volume_id = await lab.volume(2)
    return await refused(lab, "InvalidParameterValue", "modify_volume", VolumeId=volume_id, Size=1)


async def _nothing_changes(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    try:
        reply = await _modify(lab, volume_id, Size=1)
    except RefusedError as no:
        return Refuted(f"ModifyVolume to the size that it has was refused with {no}.")
    state = await _state(lab, volume_id, *_STATES, within_s=30)
    seen = f"ModifyVolume to the size that it has answered {reply.get('ModificationState')}."
    return held(state != "", seen)


async def _nothing_named(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return await refused(lab, _BAD, "modify_volume", VolumeId=volume_id)


async def _while_creating(lab: Lab) -> Finding:
    return await refused_while_creating(lab, "modify_volume", Size=2)


async def _never(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return await refused(
        lab,
        "InvalidVolumeModification.NotFound",
        "describe_volumes_modifications",
        VolumeIds=[volume_id],
    )


async def _never_fails_all(lab: Lab) -> Finding:
    changed, other = await asyncio.gather(lab.volume(), lab.volume())
    await _modify(lab, changed, Size=2)
    await _state(lab, changed, *_STATES, within_s=60)
    return await refused(
        lab,
        "InvalidVolumeModification.NotFound",
        "describe_volumes_modifications",
        text=other,
        VolumeIds=[changed, other],
    )


async def _latest_only(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    for size in (2, 3):
        await _modify(lab, volume_id, Size=size)
        await _completed(lab, volume_id)
    found = await lab.call("describe_volumes_modifications", VolumeIds=[volume_id])
    targets = [each.get("TargetSize") for each in found["VolumesModifications"]]
    return held(targets == [3], f"After two modifications DescribeVolumesModifications: {targets}.")


async def _completed(lab: Lab, volume_id: str) -> None:
    await _state(lab, volume_id, "completed", within_s=_COMPLETED_WITHIN_S)


async def _budget(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    for number in range(1, _BUDGET + 1):
        answer = await outcome(lab, "modify_volume", VolumeId=volume_id, Size=number + 1)
        if answer is not None:
            return Refuted(f"Modification {number} in 24 hours was refused with {answer}.")
        await _completed(lab, volume_id)
    answer = await outcome(lab, "modify_volume", VolumeId=volume_id, Size=_BUDGET + 2)
    if answer is None:
        return Refuted(f"Modification {_BUDGET + 1} in 24 hours was accepted.")
    seen = f"Modification {_BUDGET + 1} in 24 hours was refused with {answer}."
    return held(answer.code == "VolumeModificationRateExceeded", seen)


async def _bounds(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    changes: list[dict[str, Any]] = [
        {"Iops": 2_999},
        {"Iops": 80_001},
        {"Throughput": 2_001},
        {"VolumeType": "io2", "Iops": 100},
        {"VolumeType": "gp9"},
    ]
    codes = (*_BAD, "UnknownVolumeType")
    return all_held(
        *[
            await refused(lab, codes, "modify_volume", VolumeId=volume_id, **each)
            for each in changes
        ]
    )


async def _other_type(lab: Lab) -> Finding:
    volume_id = await lab.volume(VolumeType="gp2")
    try:
        modification = await _modify(lab, volume_id, VolumeType="gp3")
    except RefusedError as no:
        return Refuted(f"gp2 of 1 GiB cannot become gp3: {no}")
    found = (modification.get("TargetIops"), modification.get("TargetThroughput"))
    return held(found == (3000, 125), f"gp2 of 1 GiB becomes gp3 with {found[0]}, {found[1]}.")


async def _large_gp2(lab: Lab) -> Finding:
    volume_id = await lab.volume(_LARGE_GIB, VolumeType="gp2")
    modification = await _modify(lab, volume_id, VolumeType="gp3")
    found = (modification.get("TargetIops"), modification.get("TargetThroughput"))
    seen = f"gp2 of {_LARGE_GIB} GiB becomes gp3 with {found[0]} IOPS, {found[1]} MiB/s."
    return held(found == (3000, 250), seen)


async def _keeps_iops(lab: Lab) -> Finding:
    volume_id = await lab.volume(8, Iops=3100)
    modification = await _modify(lab, volume_id, Size=9)
    iops = modification.get("TargetIops")
    return held(iops == 3100, f"gp3 with 3,100 IOPS grows and has {iops}.")  # noqa: PLR2004


async def _page_size(lab: Lab) -> Finding:
    asked = {"Filters": [filtered("modification-state", "modifying")]}
    operation = "describe_volumes_modifications"
    answer = await outcome(lab, operation, **asked, MaxResults=500)
    if answer is not None:
        return Refuted(f"MaxResults 500 was refused with {answer}.")
    return await refused(lab, "InvalidParameterValue", operation, **asked, MaxResults=501)


async def _by_state(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await _modify(lab, volume_id, Size=2)
    state = await _state(lab, volume_id, "optimizing", "completed", within_s=300)
    found = await lab.call(
        "describe_volumes_modifications",
        Filters=[filtered("volume-id", volume_id), filtered("modification-state", state, "failed")],
    )
    other = await lab.call(
        "describe_volumes_modifications",
        Filters=[filtered("volume-id", volume_id), filtered("modification-state", "failed")],
    )
    numbers = (len(found["VolumesModifications"]), len(other["VolumesModifications"]))
    return held(numbers == (1, 0), f"The filters {state} and failed found {numbers}.")


async def _shows_both_shapes(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    shown = await _modify(lab, volume_id, Size=2)
    names = ("OriginalSize", "TargetSize", "OriginalVolumeType", "TargetVolumeType", "TargetIops")
    found = tuple(shown.get(each) for each in names)
    return held(found == (1, 2, "gp3", "gp3", 3000), f"ModifyVolume shows {found}.")


async def _missing(lab: Lab) -> Finding:
    return await refused(
        lab,
        "InvalidVolume.NotFound",
        "modify_volume",
        VolumeId=lab.missing_id("volume"),
        Size=2,
    )


async def _shared_type(lab: Lab) -> Finding:
    volume_id = await lab.volume(4, **SHARED)
    codes = ("UnsupportedOperation", *_BAD)
    asked = {"VolumeId": volume_id, "VolumeType": "io1", "Iops": 100}
    return all_held(
        await refused(lab, codes, "modify_volume", **asked),
        await accepted(lab, "modify_volume", VolumeId=volume_id, Size=5),
    )


async def _shared_switch(lab: Lab) -> Finding:
    volume_id = await lab.volume(4, **SHARED)
    await lab.attached(volume_id)
    return await refused(
        lab,
        ("IncorrectState", "InvalidParameterCombination"),
        "modify_volume",
        VolumeId=volume_id,
        MultiAttachEnabled=False,
    )


async def _share_gp3(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return await refused(
        lab,
        "InvalidParameterCombination",
        "modify_volume",
        VolumeId=volume_id,
        MultiAttachEnabled=True,
    )


_IO1 = Usage((VolumeUse(5, "io1", iops=100),), seconds=10)


async def _io1_switch(lab: Lab) -> Finding:
    volume_id = await lab.volume(4, VolumeType="io1", Iops=100)
    return await refused(
        lab,
        "InvalidParameterCombination",
        "modify_volume",
        VolumeId=volume_id,
        MultiAttachEnabled=True,
    )


async def _io1_shared(lab: Lab) -> Finding:
    if lab.region not in ("us-east-1", "us-west-2", "ap-northeast-2"):
        raise CannotRunError("io1 has no Multi-Attach in this Region")
    volume_id = await lab.volume(4, VolumeType="io1", Iops=100, MultiAttachEnabled=True)
    codes = ("UnsupportedOperation", *_BAD)
    return await refused(lab, codes, "modify_volume", VolumeId=volume_id, Size=5)


_MODIFY = ("CreateVolume", "ModifyVolume", "DescribeVolumes", "DescribeVolumesModifications")
RULES = (
    row(
        "modify-answers-modifying",
        "ModifyVolume answers modifying; then the modification is optimizing and completed.",
        MODEL.at("VolumeModificationState"),
        _GROWTH,
        cheap(_grows, *_MODIFY, volumes=2, seconds=60),
    ),
    row(
        "modify-size-at-optimizing",
        "The new size shows once the modification is optimizing, and not before.",
        MODIFYING.at("Monitor the progress of volume modifications"),
        _GROWTH,
        cheap(_size_shows, *_MODIFY, volumes=2, seconds=60),
    ),
    row(
        "modify-one-at-a-time",
        "ModifyVolume while one is running is refused with IncorrectModificationState.",
        ERRORS.at("IncorrectModificationState"),
        _LIMIT,
        cheap(_one_at_a_time, *_MODIFY, volumes=4, seconds=30),
    ),
    row(
        "modify-never-shrinks",
        "A smaller size is refused with InvalidParameterValue.",
        MODIFYING.at("Limitations; the code is assumed"),
        rests("Data would be cut off.", "controller/modifying/shape_rules.py"),
        cheap(_shrinks, *_MODIFY, volumes=2),
    ),
    row(
        "modify-of-nothing-counts",
        "A ModifyVolume that changes nothing is accepted, and is a modification.",
        observed("aws-ebs-csi-driver, March 2024"),
        _SHAPES,
        cheap(_nothing_changes, *_MODIFY, volumes=1, seconds=30),
    ),
    row(
        "modify-names-something",
        "ModifyVolume that names no change is refused with InvalidParameterValue or "
        "InvalidParameterCombination.",
        assumed("the API model says that all are optional"),
        rests("Nothing: the product names a change.", "ec2/modifications.py"),
        cheap(_nothing_named, *_MODIFY, volumes=1),
    ),
    row(
        "modify-while-creating",
        "ModifyVolume of a volume that is creating is refused with IncorrectState.",
        assumed("it must be in-use or available"),
        _GROWTH,
        cheap(_while_creating, "CreateVolume", "ModifyVolume", "DescribeVolumes", volumes=3),
    ),
    row(
        "modify-of-missing",
        "ModifyVolume of what does not exist is refused with InvalidVolume.NotFound.",
        ERRORS.at("InvalidVolume.NotFound"),
        rests("A volume that is gone would be grown for ever.", "ec2/error_codes.py"),
        cheap(_missing, "ModifyVolume"),
    ),
    row(
        "never-modified",
        "A volume that was never modified is answered with InvalidVolumeModification.NotFound.",
        observed("aws-ebs-csi-driver #1965"),
        rests(
            "The first modification of a volume would wait for ever.",
            "ec2/error_codes.py",
            "ec2/modifications.py",
        ),
        cheap(_never, *_MODIFY, volumes=1),
    ),
    row(
        "never-modified-fails-all",
        "One such volume fails the whole call, and is named (InvalidVolumeModification.NotFound).",
        observed("aws-ebs-csi-driver #1965"),
        rests("One volume would hide the others' modifications.", "ec2/batches.py"),
        cheap(_never_fails_all, *_MODIFY, volumes=3, seconds=30),
    ),
    row(
        "modify-four-in-a-day",
        "A volume takes four modifications in 24 hours; the next is refused with "
        "VolumeModificationRateExceeded.",
        MODIFYING.at("Limitations; the code is older than this rule"),
        _LIMIT,
        cheap(_budget, *_MODIFY, volumes=6, seconds=1500),
    ),
    row(
        "modify-shows-the-latest",
        "DescribeVolumesModifications shows the latest modification of a volume only.",
        MODEL.at("DescribeVolumesModifications: the most recent"),
        rests("An older modification would be taken for the latest.", "ec2/modifications.py"),
        cheap(_latest_only, *_MODIFY, volumes=3, seconds=900),
    ),
    row(
        "modify-shows-both-shapes",
        "A modification shows what the volume was and what it is to be, the unchanged too.",
        MODEL.at("VolumeModification"),
        rests(
            "A modification of a lost call would not be recognized.",
            "controller/modifying/steps.py",
            "model/modification.py",
        ),
        cheap(_shows_both_shapes, *_MODIFY, volumes=2),
    ),
    row(
        "modify-within-the-types-limits",
        "ModifyVolume refuses what CreateVolume refuses (InvalidParameterValue, "
        "InvalidParameterCombination, UnknownVolumeType).",
        MODEL.at("ModifyVolume; the code is assumed"),
        _SHAPES,
        cheap(_bounds, *_MODIFY, volumes=1),
    ),
    row(
        "modify-gp2-to-gp3",
        "A small gp2 volume that becomes gp3 gets 3,000 IOPS and 125 MiB/s.",
        MODIFYING.at("Requirements: the larger of the source's and the type's"),
        _SHAPES,
        cheap(_other_type, *_MODIFY, volumes=1),
    ),
    row(
        "modify-large-gp2-to-gp3",
        "A gp2 volume of more than 170 GiB that becomes gp3 keeps its 250 MiB/s.",
        MODIFYING.at("Requirements: the larger of the source's and the type's"),
        _SHAPES,
        Probe(_large_gp2, _MODIFY, Usage((VolumeUse(_LARGE_GIB, "gp2"),))),
    ),
    row(
        "modify-keeps-iops",
        "A gp3 volume that grows keeps its IOPS.",
        MODEL.at("ModifyVolume Iops: default is the existing value"),
        _SHAPES,
        Probe(_keeps_iops, _MODIFY, Usage((VolumeUse(9, iops=100),))),
    ),
    row(
        "modify-page-size",
        "MaxResults of DescribeVolumesModifications is 500 at most; more is refused with "
        "InvalidParameterValue.",
        MODEL.at("DescribeVolumesModifications MaxResults; the code is assumed"),
        rests("Looks at modifications would fail.", "ec2/modifications.py"),
        cheap(_page_size, "DescribeVolumesModifications"),
    ),
    row(
        "modify-found-by-state",
        "Modifications can be filtered by volume-id and modification-state.",
        MODEL.at("DescribeVolumesModifications Filters"),
        rests("Modifications that are running would be missed.", "ec2/modifications.py"),
        cheap(_by_state, *_MODIFY, volumes=2, seconds=60),
    ),
    row(
        "modify-may-fail",
        "A modification may end as failed, and leaves the volume as it was.",
        MODEL.at("VolumeModificationState"),
        rests("A claim would show a size that its volume does not have.", *_STEPS),
        "EC2 cannot be made to fail.",
    ),
    row(
        "modify-quota",
        "Beyond a quota of storage that is modified at once, EC2 answers "
        "VolumeModificationSizeLimitExceeded.",
        ERRORS.at("VolumeModificationSizeLimitExceeded"),
        rests("The event would not name the quota.", "ec2/error_codes.py"),
        "The quota is 500 TiB.",
    ),
    row(
        "share-other-types",
        "ModifyVolume refuses Multi-Attach for gp3 with InvalidParameterCombination.",
        MULTI_ATTACH.at("the code is assumed"),
        _SHAPES,
        cheap(_share_gp3, *_MODIFY, volumes=1),
    ),
    row(
        "shared-keeps-its-type",
        "The type of an io2 volume with Multi-Attach cannot be changed (UnsupportedOperation, or "
        "InvalidParameter…), its size can.",
        MULTI_ATTACH.at("the code is assumed"),
        _SHAPES,
        Probe(_shared_type, _MODIFY, Usage((VolumeUse(5, "io2", iops=100),), seconds=10)),
    ),
    row(
        "shared-switch-while-attached",
        "Multi-Attach cannot be switched while the volume is attached (IncorrectState or "
        "InvalidParameterCombination).",
        MULTI_ATTACH.at("the code is assumed"),
        rests("Nothing: the product does not switch it.", "controller/modifying/shape_rules.py"),
        Probe(
            _shared_switch,
            (*_MODIFY, "AttachVolume"),
            Usage(SHARED_VOLUMES, needs_instance=True, seconds=15),
        ),
    ),
    row(
        "shared-io1-switch",
        "Multi-Attach of io1 cannot be switched after creation (InvalidParameterCombination).",
        MULTI_ATTACH.at("the code is assumed"),
        rests("A change of such a volume would wait without a clear event.", "ec2/error_codes.py"),
        Probe(_io1_switch, _MODIFY, _IO1),
    ),
    row(
        "shared-io1-modification",
        "An io1 volume with Multi-Attach cannot be modified (UnsupportedOperation, or "
        "InvalidParameter…).",
        MULTI_ATTACH.at("the code is assumed"),
        rests("A change of such a volume would wait without a clear event.", "ec2/error_codes.py"),
        Probe(_io1_shared, _MODIFY, _IO1),
    ),
    row(
        "modify-rule-in-china",
        "Four modifications in 24 hours, and 80,000 IOPS of gp3, are given in China too.",
        assumed("the Chinese editions of the guide do not say"),
        _LIMIT,
        "The rules modify-four-in-a-day and iops-of-gp3 say so when they are run there.",
    ),
)
