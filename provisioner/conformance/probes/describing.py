"""DescribeVolumes: ids, filters, pages."""

import asyncio
from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import Finding, RefusedError, Refuted
from provisioner.conformance.probes.asking import (
    DRY_RUN,
    accepted,
    all_held,
    cheap,
    filtered,
    held,
    listed,
    made,
    outcome,
    refused,
    tagged,
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

_BATCHES = rests("One volume that is gone would hide others, or cost many calls.", "ec2/batches.py")
_LOOK = rests("Volumes that exist would be taken for missing.", "ec2/volumes.py", "ec2/lookups.py")
_PAGES = rests("Volumes beyond the first page would be missed.", "ec2/volumes.py", "ec2/batches.py")
_PAGINATION = documented("EC2 developer guide, Pagination")
_FILTERS = documented("EC2 user guide, Filter output: Using_Filtering")


async def _only_missing_named(lab: Lab) -> Finding:
    there, gone = await lab.volume(), lab.missing_id("volume")
    finding = await refused(
        lab, "InvalidVolume.NotFound", "describe_volumes", text=gone, VolumeIds=[there, gone]
    )
    answer = await outcome(lab, "describe_volumes", VolumeIds=[there, gone])
    blamed = answer is not None and there in answer.message
    return all_held(finding, held(not blamed, f"The text names {there if blamed else gone}."))


async def _all_missing_named(lab: Lab) -> Finding:
    first, second = lab.missing_id("volume"), lab.missing_id("volume")
    answer = await outcome(lab, "describe_volumes", VolumeIds=[first, second])
    if answer is None:
        return Refuted("DescribeVolumes of two missing ids was accepted.")
    named = first in answer.message and second in answer.message
    return held(answer.code == "InvalidVolume.NotFound" and named, f"Two missing ids: {answer}")


async def _malformed(lab: Lab) -> Finding:
    return await refused(
        lab, "InvalidVolumeID.Malformed", "describe_volumes", VolumeIds=["vol-data"]
    )


async def _other_kind(lab: Lab) -> Finding:
    snapshot_id = lab.missing_id("snapshot")
    return await refused(lab, "InvalidParameterValue", "describe_volumes", VolumeIds=[snapshot_id])


async def _id_twice(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    try:
        found = await lab.call("describe_volumes", VolumeIds=[volume_id, volume_id])
    except RefusedError as no:
        return Refuted(f"An id that came twice was refused with {no}.")
    return held(len(found["Volumes"]) == 1, f"It came {len(found['Volumes'])} times.")


async def _thousand_ids(lab: Lab) -> Finding:
    """Ids of nothing: which refusal comes shows whether the number was too large."""
    ids = [lab.missing_id("volume") for _ in range(1001)]
    return all_held(
        await refused(lab, "InvalidVolume.NotFound", "describe_volumes", VolumeIds=ids[:1000]),
        await refused(lab, "InvalidParameterValue", "describe_volumes", VolumeIds=ids),
    )


async def _pages(lab: Lab) -> Finding:
    volumes = set(await asyncio.gather(*[lab.volume() for _ in range(6)]))
    seen: list[str] = []
    sizes: list[int] = []
    token: dict[str, str] = {}
    while len(sizes) < 100:  # noqa: PLR2004 -- a token that never ends
        found = await lab.call("describe_volumes", Filters=[lab.tag_filter], MaxResults=5, **token)
        page = [str(each["VolumeId"]) for each in found["Volumes"]]
        seen.extend(page)
        sizes.append(len(page))
        if not (following := found.get("NextToken")):
            break
        token = {"NextToken": following}
    mine = [each for each in seen if each in volumes]
    is_so = max(sizes) <= 5 and len(sizes) > 1 and sorted(mine) == sorted(volumes)  # noqa: PLR2004
    return held(is_so, f"Pages of {sizes} volumes held {len(set(mine))} of 6.")


async def _page_size(lab: Lab) -> Finding:
    return all_held(
        await accepted(lab, "describe_volumes", Filters=[lab.tag_filter], MaxResults=5),
        await accepted(lab, "describe_volumes", Filters=[lab.tag_filter], MaxResults=1000),
        await refused(lab, "InvalidParameterValue", "describe_volumes", MaxResults=4),
    )


async def _large_page(lab: Lab) -> Finding:
    return await refused(
        lab,
        "InvalidParameterValue",
        "describe_volumes",
        Filters=[lab.tag_filter],
        MaxResults=1001,
    )


async def _page_of_ids(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return await refused(
        lab,
        "InvalidParameterCombination",
        "describe_volumes",
        VolumeIds=[volume_id],
        MaxResults=5,
    )


async def _bad_token(lab: Lab) -> Finding:
    codes = ("InvalidNextToken", "InvalidParameterValue")
    return await refused(lab, codes, "describe_volumes", MaxResults=5, NextToken="made-up")


async def _filter_by_id(lab: Lab) -> Finding:
    volume_id, gone = await lab.volume(), lab.missing_id("volume")
    try:
        found = await listed(lab, filtered("volume-id", volume_id, gone))
    except RefusedError as no:
        return Refuted(f"The filter volume-id with a missing id was refused with {no}.")
    return held(found == {volume_id}, f"The filter volume-id found {len(found)} of 1.")


async def _three(lab: Lab) -> tuple[str, str, str]:
    """Volumes with tags a=1 b=1; b=1; c=blue-1."""
    made_now = await asyncio.gather(
        made(lab, TagSpecifications=tagged(a="1", b="1")),
        made(lab, TagSpecifications=tagged(b="1")),
        made(lab, TagSpecifications=tagged(c="blue-1")),
    )
    first, second, third = [str(each["VolumeId"]) for each in made_now]
    for each in (first, second, third):
        await lab.volume_state(each, "available")
    return first, second, third


async def _found(lab: Lab, among: tuple[str, ...], *filters: dict[str, Any]) -> set[str]:
    return {each for each in await listed(lab, *filters) if each in among}


async def _values_are_alternatives(lab: Lab) -> Finding:
    three = await _three(lab)
    found = await _found(lab, three, filtered("tag-key", "a", "c"))
    return held(found == {three[0], three[2]}, f"tag-key a or c found {len(found)} of 2.")


async def _filters_add_up(lab: Lab) -> Finding:
    three = await _three(lab)
    found = await _found(lab, three, filtered("tag-key", "a"), filtered("tag:b", "1"))
    return held(found == {three[0]}, f"tag-key a and tag:b 1 found {len(found)} of 1.")


async def _same_filter_twice(lab: Lab) -> Finding:
    three = await _three(lab)
    found = await _found(lab, three, filtered("tag-key", "a"), filtered("tag-key", "b"))
    return held(found == {three[0]}, f"tag-key a and tag-key b found {len(found)} of 1.")


async def _wildcards(lab: Lab) -> Finding:
    three = await _three(lab)
    many = await _found(lab, three, filtered("tag:c", "bl*"))
    one = await _found(lab, three, filtered("tag:c", "blue-?", "blue-2"))
    zero = await _found(lab, three, filtered("tag:c", "blue-1?"))
    none = await _found(lab, three, filtered("tag:c", "blue?"))
    is_so = many == one == zero == {three[2]} and not none
    numbers = [len(each) for each in (many, one, zero, none)]
    seen = f"bl*, blue-?, blue-1? and blue? found {numbers} of blue-1."
    return held(is_so, seen)


async def _no_such_filter(lab: Lab) -> Finding:
    return await refused(
        lab,
        "InvalidParameterValue",
        "describe_volumes",
        Filters=[lab.tag_filter, filtered("client-token", "t")],
    )


async def _filter_values(lab: Lab) -> Finding:
    ids = [lab.missing_id("volume") for _ in range(201)]
    return all_held(
        await accepted(lab, "describe_volumes", Filters=[filtered("volume-id", *ids[:200])]),
        await refused(
            lab,
            "FilterLimitExceeded",
            "describe_volumes",
            Filters=[filtered("volume-id", *ids)],
        ),
    )


async def _filters(lab: Lab) -> Finding:
    tags = [filtered(f"tag:{number}", "1") for number in range(51)]
    return all_held(
        await accepted(lab, "describe_volumes", Filters=tags[:50]),
        await refused(lab, "FilterLimitExceeded", "describe_volumes", Filters=tags),
    )


async def _filter_values_of_all(lab: Lab) -> Finding:
    ids = [lab.missing_id("volume") for _ in range(199)]
    some = [filtered("volume-id", *ids), filtered("status", "available", "in-use")]
    return await refused(lab, "FilterLimitExceeded", "describe_volumes", Filters=some)


async def _ids_and_filters(lab: Lab) -> Finding:
    first, second, _ = await _three(lab)
    found = await lab.call(
        "describe_volumes", VolumeIds=[first, second], Filters=[filtered("tag-key", "a")]
    )
    ids = {each["VolumeId"] for each in found["Volumes"]}
    return held(ids == {first}, f"Two ids and a filter that one passes found {len(ids)}.")


async def _dry_run(lab: Lab) -> Finding:
    return await refused(lab, DRY_RUN, "describe_volumes", DryRun=True)


async def _fields(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    filters = {
        "availability-zone": lab.zone,
        "volume-type": "gp3",
        "size": "1",
        "status": "available",
        "multi-attach-enabled": "false",
    }
    missed = [
        name
        for name, value in filters.items()
        if volume_id not in await listed(lab, filtered(name, value))
    ]
    return held(not missed, f"Filters that miss a volume: {', '.join(missed) or 'none'}.")


RULES = (
    row(
        "describe-names-the-missing",
        "One missing id fails the whole DescribeVolumes with InvalidVolume.NotFound, whose text "
        "names that id and no other.",
        observed("aws-ebs-csi-driver #2817"),
        _BATCHES,
        cheap(_only_missing_named, "CreateVolume", "DescribeVolumes", volumes=1),
    ),
    row(
        "describe-names-all-missing",
        "Several missing ids are all named.",
        assumed("the plural text is remembered, not quoted"),
        _BATCHES,
        cheap(_all_missing_named, "DescribeVolumes"),
    ),
    row(
        "describe-malformed-id",
        "What begins like a volume id and is none is refused with InvalidVolumeID.Malformed.",
        observed("cloud-custodian #1738"),
        rests("A handle that is no volume would be tried for ever.", "ec2/error_codes.py"),
        cheap(_malformed, "DescribeVolumes"),
    ),
    row(
        "describe-id-of-another-kind",
        "The id of another kind of thing is refused with InvalidParameterValue.",
        observed("aws-missing-tools #59"),
        rests("A handle that is no volume would be tried for ever.", "ec2/batches.py"),
        cheap(_other_kind, "DescribeVolumes"),
    ),
    row(
        "describe-id-twice",
        "An id that comes twice is answered once.",
        assumed("nobody quotes a refusal"),
        _LOOK,
        cheap(_id_twice, "CreateVolume", "DescribeVolumes", volumes=1),
    ),
    row(
        "describe-thousand-ids",
        "A call names up to 1,000 ids; more are refused with InvalidParameterValue.",
        _PAGINATION.at("ID lists; the code is assumed"),
        rests("Looks at many volumes would fail.", "ec2/volumes.py", "ec2/snapshots.py"),
        cheap(_thousand_ids, "DescribeVolumes"),
    ),
    row(
        "describe-pages",
        "With MaxResults, pages hold every volume once, until there is no NextToken.",
        MODEL.at("DescribeVolumes NextToken"),
        _PAGES,
        cheap(_pages, "CreateVolume", "DescribeVolumes", volumes=6, seconds=15),
    ),
    row(
        "describe-page-size",
        "MaxResults is 5 to 1,000; less is refused with InvalidParameterValue.",
        _PAGINATION.at("MaxResults; the code is assumed"),
        _PAGES,
        cheap(_page_size, "DescribeVolumes"),
    ),
    row(
        "describe-page-too-large",
        "MaxResults above 1,000 is refused with InvalidParameterValue.",
        assumed("older texts say that 1,000 are returned instead"),
        rests("Nothing: the product asks for 500.", "ec2/batches.py"),
        cheap(_large_page, "DescribeVolumes"),
    ),
    row(
        "describe-pages-of-ids",
        "MaxResults with ids is refused with InvalidParameterCombination.",
        observed("botocore's older models and error texts; today's page is silent"),
        rests("Nothing: ids are never sent with MaxResults.", "ec2/volumes.py"),
        cheap(_page_of_ids, "CreateVolume", "DescribeVolumes", volumes=1),
    ),
    row(
        "describe-bad-page-token",
        "A NextToken that EC2 has not given is refused (InvalidNextToken or "
        "InvalidParameterValue).",
        ERRORS.at("InvalidNextToken"),
        rests("A listing would begin again, or end early.", "ec2/batches.py"),
        cheap(_bad_token, "DescribeVolumes"),
    ),
    row(
        "describe-by-id-filter",
        "The filter volume-id returns the volumes that exist, and refuses none for the others.",
        assumed("it is a filter like others"),
        _LOOK,
        cheap(_filter_by_id, "CreateVolume", "DescribeVolumes", volumes=1),
    ),
    row(
        "filter-values-are-alternatives",
        "One of a filter's values is enough, of tag-key too.",
        _FILTERS,
        _LOOK,
        cheap(_values_are_alternatives, "CreateVolume", "DescribeVolumes", volumes=3),
    ),
    row(
        "filters-add-up",
        "Every filter of a call must match.",
        _FILTERS,
        _LOOK,
        cheap(_filters_add_up, "CreateVolume", "DescribeVolumes", volumes=3),
    ),
    row(
        "filter-named-twice",
        "Two filters of one name must both match.",
        assumed("it follows from the rule about filters"),
        rests("The product would have to look at what it gets; it does.", "ec2/volumes.py"),
        cheap(_same_filter_twice, "CreateVolume", "DescribeVolumes", volumes=3),
    ),
    row(
        "filter-wildcards",
        "* in a filter's value stands for any characters, ? for none or one.",
        _FILTERS,
        rests("The product would have to look at what it gets; it does.", "ec2/volumes.py"),
        cheap(_wildcards, "CreateVolume", "DescribeVolumes", volumes=3),
    ),
    row(
        "filter-that-does-not-exist",
        "A filter that EC2 does not have is refused with InvalidParameterValue, client-token too.",
        MODEL.at("DescribeVolumes Filters: the list; the code is assumed"),
        rests("Volumes could be found by token instead of by tag.", "ec2/lookups.py"),
        cheap(_no_such_filter, "DescribeVolumes"),
    ),
    row(
        "filter-values-limit",
        "A filter has up to 200 values; more are refused with FilterLimitExceeded.",
        _FILTERS.at("200 values; the code is assumed"),
        _BATCHES,
        cheap(_filter_values, "DescribeVolumes"),
    ),
    row(
        "filters-limit",
        "A call has up to 50 filters; more are refused with FilterLimitExceeded.",
        _FILTERS.at("50 filters; the code is assumed to be that of values"),
        rests("Nothing: the product sends three at most.", "ec2/volumes.py"),
        cheap(_filters, "DescribeVolumes"),
    ),
    row(
        "filter-values-limit-of-all",
        "The 200 values are counted over all filters of a call (FilterLimitExceeded).",
        observed("cloud-custodian #3778, #4350"),
        _BATCHES,
        cheap(_filter_values_of_all, "DescribeVolumes"),
    ),
    row(
        "filter-with-ids",
        "Ids and filters of one call must both match.",
        MODEL.at("DescribeVolumes"),
        _LOOK,
        cheap(_ids_and_filters, "CreateVolume", "DescribeVolumes", volumes=3),
    ),
    row(
        "filter-fields",
        "Volumes can be filtered by zone, type, size, state and Multi-Attach.",
        MODEL.at("DescribeVolumes Filters: the list"),
        rests("The use of a quota could not be counted.", "ec2/usage.py", "ec2/volumes.py"),
        cheap(_fields, "CreateVolume", "DescribeVolumes", volumes=1),
    ),
    row(
        "describe-dry-run",
        "DescribeVolumes with DryRun is answered with DryRunOperation.",
        MODEL.at("DescribeVolumes DryRun"),
        rests(
            "The check of rights at start would cost a listing.",
            "controller/ownership/aws_access.py",
        ),
        cheap(_dry_run, "DescribeVolumes"),
    ),
    row(
        "describe-has-no-order",
        "Volumes come in no order.",
        assumed("none is promised"),
        rests("Nothing: the product relies on none.", "ec2/volumes.py"),
        "An order that is seen is not promised by that.",
    ),
    row(
        "describe-lags",
        "DescribeVolumes may not show a new volume for some seconds.",
        documented("EC2 developer guide, Eventual consistency"),
        rests(
            "A new volume that is not shown is waited for, not made again.",
            "controller/provisioning/creation_rules.py",
        ),
        "That it shows all at once now does not say that it always does.",
    ),
)
