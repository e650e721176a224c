"""Tags: at creation, later, and their limits."""

from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import (
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
    all_held,
    cheap,
    held,
    listed,
    made,
    refused,
    tagged,
    try_accepted,
    try_refused,
)
from provisioner.conformance.probes.sources import (
    ERRORS,
    MODEL,
    assumed,
    documented,
    observed,
    rests,
    row,
)

_TAGGING = documented("EC2 user guide, Tag restrictions")
_FOUND = rests(
    "A volume whose reply was lost would not be found, and another one made.",
    "ec2/lookups.py",
    "controller/provisioning/creation.py",
)
_CHECKED = rests(
    "A claim with such tags would fail at every attempt, without a clear event.",
    "model/tag_template.py",
    "model/tags.py",
)
_LATER = rests(
    "Volumes would lack tags that --extra-tags asks for.",
    "controller/tagging/flow.py",
    "controller/tagging/extra_tags_rules.py",
)
_ODD_GIB = 13


def _pairs(**tags: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _many(number: int) -> list[dict[str, Any]]:
    return tagged(**{f"key-{each}": "" for each in range(number)})


async def _at_creation(lab: Lab) -> Finding:
    reply = await made(lab, TagSpecifications=tagged(one="1"))
    volume_id = str(reply["VolumeId"])
    await lab.volume_state(volume_id, "available")
    found = {each["Key"]: each["Value"] for each in (await lab.describe(volume_id))["Tags"]}
    wanted = {"one": "1", lab.tag["Key"]: lab.tag["Value"]}
    by_tag = await listed(lab, {"Name": "tag:one", "Values": ["1"]})
    is_so = found == wanted and volume_id in by_tag
    return held(is_so, f"A volume made with 2 tags has {len(found)}, and its tag finds it.")


async def _reserved(lab: Lab) -> Finding:
    tags = tagged(**{"aws:conformance": "1"})
    return await try_refused(lab, "InvalidParameterValue", TagSpecifications=tags)


async def _fifty(lab: Lab) -> Finding:
    """The tag of the run is one of them."""
    return all_held(
        await try_accepted(lab, TagSpecifications=_many(49)),
        await try_refused(
            lab, ("TagLimitExceeded", "InvalidParameterValue"), TagSpecifications=_many(50)
        ),
    )


async def _refused_makes_nothing(lab: Lab) -> Finding:
    """What is left may have no tag at all: it is looked for by a size that nothing else has."""
    size = {"Name": "size", "Values": [str(_ODD_GIB)]}

    async def there() -> set[str]:
        found = await lab.call("describe_volumes", Filters=[size])
        return {str(each["VolumeId"]) for each in found["Volumes"]}

    before = await there()
    try:
        await made(lab, Size=_ODD_GIB, TagSpecifications=_many(50))
    except RefusedError as no:
        code = no.code
    else:
        return Refuted("CreateVolume with 51 tags was accepted.")
    await lab.sleep(5)
    left = await there() - before
    named = f"{', '.join(sorted(left))}, which nothing here deletes" if left else "nothing"
    return held(not left, f"CreateVolume with 51 tags: {code}; it left {named}.")


async def _key_length(lab: Lab) -> Finding:
    long, longer = "k" * 128, "k" * 129
    return all_held(
        await try_accepted(lab, TagSpecifications=tagged(**{long: "1"})),
        await try_refused(lab, "InvalidParameterValue", TagSpecifications=tagged(**{longer: "1"})),
    )


async def _value_length(lab: Lab) -> Finding:
    return all_held(
        await try_accepted(lab, TagSpecifications=tagged(a="v" * 256)),
        await try_refused(lab, "InvalidParameterValue", TagSpecifications=tagged(a="v" * 257)),
    )


async def _same_key_twice(lab: Lab) -> Finding:
    tags = tagged(a="1")
    tags[0]["Tags"].append({"Key": "a", "Value": "2"})
    return await try_refused(lab, "InvalidParameterValue", TagSpecifications=tags)


async def _other_kind(lab: Lab) -> Finding:
    tags = [*tagged("instance", a="1")]
    return await try_refused(
        lab, ("InvalidParameterValue", "InvalidParameterCombination"), TagSpecifications=tags
    )


async def _later(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await lab.call("create_tags", Resources=[volume_id], Tags=_pairs(a="1", b="1"))
    await lab.call("create_tags", Resources=[volume_id], Tags=_pairs(a="2"))

    async def shown() -> bool:
        found = {each["Key"]: each["Value"] for each in (await lab.describe(volume_id))["Tags"]}
        return (found.get("a"), found.get("b")) == ("2", "1")

    try:
        await lab.until("the tags are shown", shown, 30)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    return Confirmed("CreateTags added two tags, and then changed one of them.")


async def _all_or_none(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    finding = await refused(
        lab,
        "InvalidVolume.NotFound",
        "create_tags",
        Resources=[volume_id, lab.missing_id("volume")],
        Tags=_pairs(a="1"),
    )
    await lab.sleep(2)
    keys = {each["Key"] for each in (await lab.describe(volume_id))["Tags"]}
    return all_held(finding, held("a" not in keys, "The volume that exists got no tag."))


async def _later_fifty(lab: Lab) -> Finding:
    reply = await made(lab, TagSpecifications=_many(49))
    volume_id = str(reply["VolumeId"])
    await lab.volume_state(volume_id, "available")
    return await refused(
        lab, "TagLimitExceeded", "create_tags", Resources=[volume_id], Tags=_pairs(a="1")
    )


async def _thousand(lab: Lab) -> Finding:
    ids = [lab.missing_id("volume") for _ in range(1001)]
    return all_held(
        await refused(
            lab,
            "InvalidVolume.NotFound",
            "create_tags",
            Resources=ids[:1000],
            Tags=_pairs(a="1"),
        ),
        await refused(
            lab, "InvalidParameterValue", "create_tags", Resources=ids, Tags=_pairs(a="1")
        ),
    )


async def _no_id(lab: Lab) -> Finding:
    return await refused(lab, "InvalidID", "create_tags", Resources=["data"], Tags=_pairs(a="1"))


async def _no_tags(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return all_held(
        await refused(lab, "MissingParameter", "create_tags", Resources=[volume_id]),
        await refused(lab, "MissingParameter", "create_tags", Resources=[], Tags=_pairs(a="1")),
    )


async def _delete_by_value(lab: Lab) -> Finding:
    reply = await made(lab, TagSpecifications=tagged(a="1", b="1", c="1"))
    volume_id = str(reply["VolumeId"])
    await lab.volume_state(volume_id, "available")
    tags = [{"Key": "a", "Value": "other"}, {"Key": "b"}, {"Key": "c", "Value": "1"}]
    await lab.call("delete_tags", Resources=[volume_id], Tags=tags)
    await lab.sleep(3)
    left = {each["Key"] for each in (await lab.describe(volume_id))["Tags"]} & {"a", "b", "c"}
    seen = f"Of a=1, b=1, c=1, DeleteTags of a=other, b, c=1 left {', '.join(sorted(left))}."
    return held(left == {"a"}, seen)


_TAG = ("CreateVolume", "CreateTags", "DescribeVolumes")
RULES = (
    row(
        "tags-at-creation",
        "A volume is made together with its tags, which find it.",
        MODEL.at("CreateVolume TagSpecification"),
        _FOUND,
        cheap(_at_creation, "CreateVolume", "DescribeVolumes", volumes=1),
    ),
    row(
        "tags-reserved",
        "A key that begins with aws: is refused with InvalidParameterValue.",
        _TAGGING.at("the code is assumed"),
        _CHECKED,
        cheap(_reserved, "CreateVolume"),
    ),
    row(
        "tags-fifty",
        "A volume has 50 tags at most; CreateVolume refuses more (TagLimitExceeded or "
        "InvalidParameterValue).",
        _TAGGING.at("the code is assumed"),
        _CHECKED,
        cheap(_fifty, "CreateVolume"),
    ),
    row(
        "tags-refused-make-nothing",
        "A CreateVolume that is refused for its tags makes nothing.",
        MODEL.at("CreateVolume TagSpecification"),
        rests("Volumes would be left that no object names.", "controller/deleting/orphans.py"),
        Probe(
            _refused_makes_nothing,
            ("CreateVolume", "DescribeVolumes"),
            Usage((VolumeUse(_ODD_GIB),), seconds=10),
        ),
    ),
    row(
        "tags-key-length",
        "A key has 128 characters at most (InvalidParameterValue).",
        _TAGGING.at("the code is assumed"),
        _CHECKED,
        cheap(_key_length, "CreateVolume"),
    ),
    row(
        "tags-value-length",
        "A value has 256 characters at most (InvalidParameterValue).",
        _TAGGING.at("the code is assumed"),
        _CHECKED,
        cheap(_value_length, "CreateVolume"),
    ),
    row(
        "tags-key-twice",
        "A key that comes twice is refused with InvalidParameterValue.",
        assumed("each key is unique for a resource (tag restrictions)"),
        _CHECKED,
        cheap(_same_key_twice, "CreateVolume"),
    ),
    row(
        "tags-of-another-kind",
        "Tags for an instance are refused by CreateVolume (InvalidParameterValue or "
        "InvalidParameterCombination).",
        assumed("texts quoted in public issues"),
        rests("Nothing: the product tags what it makes.", "ec2/volumes.py"),
        cheap(_other_kind, "CreateVolume"),
    ),
    row(
        "tags-later",
        "CreateTags adds tags, and changes those that are there.",
        MODEL.at("CreateTags: overwrites"),
        _LATER,
        cheap(_later, *_TAG, volumes=1),
    ),
    row(
        "tags-later-all-or-none",
        "CreateTags that names a missing volume is refused with InvalidVolume.NotFound, and tags "
        "none of the others.",
        assumed("nobody says so"),
        _LATER,
        cheap(_all_or_none, *_TAG, volumes=1),
    ),
    row(
        "tags-later-fifty",
        "CreateTags of a 51st tag is refused with TagLimitExceeded.",
        ERRORS.at("TagLimitExceeded"),
        _LATER,
        cheap(_later_fifty, *_TAG, volumes=1),
    ),
    row(
        "tags-thousand-resources",
        "CreateTags names up to 1,000 resources; more are refused with InvalidParameterValue.",
        MODEL.at("CreateTags ResourceId: up to 1000; the code is assumed"),
        _LATER,
        cheap(_thousand, "CreateTags"),
    ),
    row(
        "tags-on-no-id",
        "CreateTags on what has the form of no id is refused with InvalidID.",
        observed("terratest #204"),
        rests("A handle that is no volume would be tried for ever.", "ec2/error_codes.py"),
        cheap(_no_id, "CreateTags"),
    ),
    row(
        "tags-none",
        "CreateTags without tags, or without resources, is refused with MissingParameter.",
        MODEL.at("CreateTags Tag, ResourceId: required; the code is assumed"),
        rests("Nothing: the product sends some.", "ec2/volumes.py"),
        cheap(_no_tags, *_TAG, volumes=1),
    ),
    row(
        "tags-deleted-by-value",
        "DeleteTags with a value removes a tag only if it has that value; without one, always.",
        MODEL.at("DeleteTags Tag"),
        rests("Nothing: the product deletes no tags.", "ec2/volumes.py"),
        cheap(_delete_by_value, "CreateVolume", "DeleteTags", "DescribeVolumes", volumes=1),
    ),
    row(
        "tags-deleted-all",
        "DeleteTags without tags removes all of them.",
        MODEL.at("DeleteTags"),
        rests("Nothing: the product deletes no tags.", "ec2/volumes.py"),
        "It would remove the tag by which this run finds its volumes again.",
    ),
)
