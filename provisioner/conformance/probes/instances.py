"""DescribeInstances and DescribeInstanceTypes."""

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import Finding, RefusedError, Refuted
from provisioner.conformance.probes.asking import (
    all_held,
    cheap,
    filtered,
    held,
    outcome,
    refused,
)
from provisioner.conformance.probes.sources import ERRORS, MODEL, assumed, rests, row

_LOOK = rests(
    "Attachments to other nodes would wait for one that is gone.",
    "ec2/attachments.py",
    "ec2/batches.py",
)
_TYPES = rests(
    "Nodes would be given too many volumes, or too few.",
    "model/instance_type_limit.py",
    "ec2/lookups.py",
)


async def _missing(lab: Lab) -> Finding:
    first, second = lab.missing_id("instance"), lab.missing_id("instance")
    answer = await outcome(lab, "describe_instances", InstanceIds=[first, second])
    if answer is None:
        return Refuted("DescribeInstances of missing ids was accepted.")
    named = first in answer.message and second in answer.message
    return held(answer.code == "InvalidInstanceID.NotFound" and named, f"Missing ids: {answer}")


async def _only_missing_named(lab: Lab) -> Finding:
    there, gone = lab.instance, lab.missing_id("instance")
    answer = await outcome(lab, "describe_instances", InstanceIds=[there, gone])
    if answer is None:
        return Refuted("DescribeInstances with a missing id was accepted.")
    named = gone in answer.message and there not in answer.message
    return held(answer.code == "InvalidInstanceID.NotFound" and named, f"A missing id: {answer}")


async def _pages_of_ids(lab: Lab) -> Finding:
    asked = {"InstanceIds": [lab.instance], "MaxResults": 5}
    return await refused(lab, "InvalidParameterCombination", "describe_instances", **asked)


async def _by_filter(lab: Lab) -> Finding:
    filters = [
        filtered("instance-id", lab.instance),
        filtered("instance-state-name", "running"),
        filtered("availability-zone", lab.zone),
    ]
    found = await lab.call("describe_instances", Filters=filters)
    ids = [each["InstanceId"] for some in found["Reservations"] for each in some["Instances"]]
    none = await lab.call(
        "describe_instances",
        Filters=[filtered("instance-id", lab.instance), filtered("instance-state-name", "stopped")],
    )
    seen = f"Filters by id, state and zone found {len(ids)}; of a stopped one none."
    return held(ids == [lab.instance] and not none["Reservations"], seen)


async def _limit_shown(lab: Lab) -> Finding:
    found = await lab.call("describe_instance_types", InstanceTypes=["m5.large", "m7i.large"])
    info = {each["InstanceType"]: each.get("EbsInfo", {}) for each in found["InstanceTypes"]}
    shown = {
        name: (each.get("MaximumEbsAttachments"), each.get("AttachmentLimitType"))
        for name, each in info.items()
    }
    wanted = {"m5.large": (27, "shared"), "m7i.large": (32, "dedicated")}
    return held(shown == wanted, f"EbsInfo of m5.large and m7i.large: {sorted(shown.items())}.")


async def _unknown_type(lab: Lab) -> Finding:
    return await refused(
        lab,
        "InvalidInstanceType",
        "describe_instance_types",
        text="m0.none",
        InstanceTypes=["m5.large", "m0.none"],
    )


async def _hundred_types(lab: Lab) -> Finding:
    names = [f"m0.none{number}" for number in range(101)]
    return all_held(
        await refused(
            lab, "InvalidInstanceType", "describe_instance_types", InstanceTypes=names[:100]
        ),
        await refused(lab, "InvalidParameterValue", "describe_instance_types", InstanceTypes=names),
    )


async def _types_in_pages(lab: Lab) -> Finding:
    seen: list[str] = []
    token: dict[str, str] = {}
    asked = {"Filters": [filtered("instance-type", "m5.*", "m6i.*")]}
    for _ in range(20):
        try:
            found = await lab.call("describe_instance_types", **asked, MaxResults=5, **token)
        except RefusedError as no:
            return Refuted(f"A page of instance types was refused with {no}.")
        seen.extend(each["InstanceType"] for each in found["InstanceTypes"])
        if len(found["InstanceTypes"]) > 5:  # noqa: PLR2004
            return Refuted(f"A page of 5 held {len(found['InstanceTypes'])}.")
        if not (following := found.get("NextToken")):
            break
        token = {"NextToken": following}
    is_so = {"m5.large", "m6i.large"} <= set(seen) and len(seen) == len(set(seen))
    return held(is_so, f"Pages of m5 and m6i held {len(seen)} types, {len(set(seen))} different.")


_READ = ("DescribeInstances",)
_READ_TYPES = ("DescribeInstanceTypes",)
RULES = (
    row(
        "instances-all-missing-named",
        "Missing ids fail DescribeInstances with InvalidInstanceID.NotFound, and are all named.",
        ERRORS.at("InvalidInstanceID.NotFound"),
        _LOOK,
        cheap(_missing, *_READ),
    ),
    row(
        "instances-only-missing-named",
        "One missing id fails the whole DescribeInstances with InvalidInstanceID.NotFound, and no "
        "other is named.",
        assumed("as for volumes"),
        _LOOK,
        cheap(_only_missing_named, *_READ, instance=True),
    ),
    row(
        "instances-pages-of-ids",
        "DescribeInstances with ids and MaxResults is refused with InvalidParameterCombination.",
        MODEL.at("DescribeInstances MaxResults: not with instance IDs; the code is assumed"),
        rests("Nothing: ids are never sent with MaxResults.", "ec2/attachments.py"),
        cheap(_pages_of_ids, *_READ, instance=True),
    ),
    row(
        "instances-by-filter",
        "Instances can be filtered by id, state and zone.",
        MODEL.at("DescribeInstances Filters"),
        rests("Nodes would not be found by their addresses.", "ec2/lookups.py"),
        cheap(_by_filter, *_READ, instance=True),
    ),
    row(
        "types-show-their-limits",
        "DescribeInstanceTypes shows how many volumes a type takes: m5.large 27, shared with "
        "interfaces, m7i.large 32 of its own.",
        MODEL.at("EbsInfo; aws-ebs-csi-driver v1.64, volume_limits.go"),
        _TYPES,
        cheap(_limit_shown, *_READ_TYPES),
    ),
    row(
        "types-missing",
        "An unknown type fails the whole DescribeInstanceTypes with InvalidInstanceType, and is "
        "named.",
        ERRORS.at("InvalidInstanceType"),
        _TYPES,
        cheap(_unknown_type, *_READ_TYPES),
    ),
    row(
        "types-hundred-names",
        "DescribeInstanceTypes names up to 100 types; more are refused with InvalidParameterValue.",
        MODEL.at("DescribeInstanceTypes InstanceType: 100; the code is assumed"),
        _TYPES,
        cheap(_hundred_types, *_READ_TYPES),
    ),
    row(
        "types-in-pages",
        "DescribeInstanceTypes has pages, of 5 to 100 types.",
        MODEL.at("DescribeInstanceTypes MaxResults"),
        rests("The table of limits would lack types.", "inspect/limit_table.py"),
        cheap(_types_in_pages, *_READ_TYPES),
    ),
)
