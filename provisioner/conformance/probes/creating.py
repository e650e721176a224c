"""CreateVolume: what it needs, what it answers."""

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
    DRY_RUN,
    all_held,
    cheap,
    held,
    listed,
    made,
    new_volume,
    outcome,
    refused,
    tagged,
    try_accepted,
    try_refused,
    zone_id,
)
from provisioner.conformance.probes.sources import (
    DRIVER,
    ERRORS,
    MODEL,
    MULTI_ATTACH,
    assumed,
    observed,
    rests,
    row,
)

_CREATION = ("controller/provisioning/creation.py", "controller/provisioning/creation_rules.py")
_ZONES = "A claim would wait or fail where it should try another zone."
_WAITS = "A persistent volume would be saved before its volume can be attached."


async def _is_creating_first(lab: Lab) -> Finding:
    reply = await made(lab)
    volume_id, first = str(reply["VolumeId"]), reply.get("State")
    try:
        await lab.volume_state(volume_id, "available")
    except NotSeenError as late:
        return Refuted(f"CreateVolume answered {first}; {late}.")
    return held(first == "creating", f"CreateVolume answered {first}, then it became available.")


async def _zone_is_required(lab: Lab) -> Finding:
    return await try_refused(lab, "MissingParameter", AvailabilityZone=None)


async def _zone_exists(lab: Lab) -> Finding:
    name = f"{lab.region}z"
    return await try_refused(lab, "InvalidZone.NotFound", AvailabilityZone=name)


async def _zone_is_named_once(lab: Lab) -> Finding:
    return await try_refused(
        lab, "InvalidParameterCombination", AvailabilityZoneId=await zone_id(lab)
    )


async def _zone_by_id(lab: Lab) -> Finding:
    named = await zone_id(lab)
    try:
        reply = await made(lab, AvailabilityZone=None, AvailabilityZoneId=named)
    except RefusedError as no:
        return Refuted(f"CreateVolume in {named} was refused with {no}.")
    zone, shown = reply.get("AvailabilityZone"), reply.get("AvailabilityZoneId")
    seen = f"CreateVolume in {named} answered zone {zone} with id {shown}."
    return held((zone, shown) == (lab.zone, named), seen)


async def _dry_run_validates(lab: Lab) -> Finding:
    answer = await outcome(lab, "create_volume", **new_volume(lab, Size=-1), DryRun=True)
    if answer is None:
        return Refuted("CreateVolume of -1 GiB with DryRun was accepted.")
    return held(answer.code != DRY_RUN, f"CreateVolume of -1 GiB with DryRun: {answer}")


async def _dry_run_makes_nothing(lab: Lab) -> Finding:
    mark = {"conformance-dry-run": lab.missing_id("volume")}
    tags = tagged(**mark)
    answer = await outcome(
        lab, "create_volume", **new_volume(lab, TagSpecifications=tags), DryRun=True
    )
    code = "" if answer is None else answer.code
    await lab.sleep(2)
    (key, value) = next(iter(mark.items()))
    found = await listed(lab, {"Name": f"tag:{key}", "Values": [value]})
    seen = f"A valid request with DryRun was answered {code or 'as done'}; it made {len(found)}."
    return held(code == DRY_RUN and not found, seen)


async def _size_or_snapshot(lab: Lab) -> Finding:
    return await try_refused(lab, "MissingParameter", Size=None)


async def _size_is_a_number(lab: Lab) -> Finding:
    return await try_refused(lab, "InvalidParameterValue", Size="1.5")


async def _type_exists(lab: Lab) -> Finding:
    return await try_refused(lab, "UnknownVolumeType", VolumeType="gp9")


async def _default_type(lab: Lab) -> Finding:
    reply = await made(lab, VolumeType=None)
    kind, iops = reply.get("VolumeType"), reply.get("Iops")
    return held(kind == "gp2", f"Without a type EC2 made {kind} with {iops} IOPS.")


async def _gp2_iops(lab: Lab) -> Finding:
    reply = await made(lab, VolumeType="gp2", Size=40)
    small = await made(lab, VolumeType="gp2", Size=1)
    found = (reply.get("Iops"), small.get("Iops"))
    return held(
        found == (120, 100), f"gp2 of 40 GiB and of 1 GiB have {found[0]}, {found[1]} IOPS."
    )


async def _gp3_defaults(lab: Lab) -> Finding:
    reply = await made(lab)
    found = (reply.get("Iops"), reply.get("Throughput"))
    return held(found == (3000, 125), f"gp3 was made with {found[0]} IOPS and {found[1]} MiB/s.")


async def _multi_attach_types(lab: Lab) -> Finding:
    return all_held(
        await try_accepted(lab, VolumeType="io2", Size=4, Iops=100, MultiAttachEnabled=True),
        await try_refused(lab, "InvalidParameterCombination", MultiAttachEnabled=True),
    )


async def _io1_multi_attach_regions(lab: Lab) -> Finding:
    asked = {"VolumeType": "io1", "Size": 4, "Iops": 100, "MultiAttachEnabled": True}
    if lab.region in ("us-east-1", "us-west-2", "ap-northeast-2"):
        return all_held(
            await try_accepted(lab, **asked),
            await try_refused(lab, "InvalidParameterCombination", MultiAttachEnabled=True),
        )
    return await try_refused(lab, "InvalidParameterCombination", **asked)


async def _ceiling_text(lab: Lab) -> Finding:
    return await try_refused(
        lab, "InvalidParameterValue", text="too high; maximum is ", Size=4, Iops=2**31 - 1
    )


async def _ceiling_text_of_io2(lab: Lab) -> Finding:
    answer = await outcome(
        lab,
        "create_volume",
        **new_volume(lab, VolumeType="io2", Size=4, Iops=2**31 - 1),
        DryRun=True,
    )
    if answer is None or answer.code == DRY_RUN:
        return await try_refused(lab, (), VolumeType="io2", Size=4, Iops=2**31 - 1)
    named = "K IOPS" in answer.message or "maximum is " in answer.message
    return held(named, f"2,147,483,647 IOPS of io2: {answer}")


async def _rate_needs_a_snapshot(lab: Lab) -> Finding:
    return await try_refused(lab, "InvalidParameterCombination", VolumeInitializationRate=100)


async def _key_needs_encryption(lab: Lab) -> Finding:
    answer = await lab.call("get_ebs_encryption_by_default")
    if answer.get("EbsEncryptionByDefault"):
        return await try_accepted(lab, KmsKeyId="alias/aws/ebs")
    return await try_refused(lab, "InvalidParameterDependency", KmsKeyId="alias/aws/ebs")


async def _bad_key_vanishes(lab: Lab) -> Finding:
    key = "11111111-2222-3333-4444-555555555555"
    token = lab.missing_id("volume")
    try:
        reply = await made(lab, Encrypted=True, KmsKeyId=key, ClientToken=token)
    except RefusedError as no:
        return Refuted(f"CreateVolume with a key that does not exist was refused with {no}.")
    volume_id = str(reply["VolumeId"])

    async def gone() -> bool:
        return await lab.code_of("describe_volumes", VolumeIds=[volume_id]) != ""

    await lab.sleep(10)  # until EC2's readers know it
    try:
        await lab.until(f"{volume_id} is gone", gone, 60)
    except NotSeenError:
        state = (await lab.describe(volume_id))["State"]
        return Refuted(f"A volume with a key that does not exist is {state}.")
    again = await refused(
        lab,
        "IdempotentParameterMismatch",
        "create_volume",
        **new_volume(lab, Encrypted=True, KmsKeyId=key, ClientToken=token),
    )
    return all_held(
        Confirmed(f"CreateVolume answered {reply.get('State')}, then the volume vanished."), again
    )


async def _outpost_exists(lab: Lab) -> Finding:
    arn = f"arn:aws:outposts:{lab.region}:123456789012:outpost/op-0123456789abcdef0"
    codes = ("InvalidParameterValue", "InvalidOutpostArn.NotFound")
    return await try_refused(lab, codes, OutpostArn=arn)


_IDS = rests(
    "Volumes would be made in a zone that no node is in.",
    "controller/provisioning/plan_rules.py",
    "ec2/volumes.py",
)
_CEILINGS = rests(
    "Classes that ask for too many IOPS would fail where they are lowered now.", "ec2/ceilings.py"
)
_TRIED = (
    "Classes that ask for too many IOPS would fail where they are lowered now, and moves to a size "
    "that no volume can have would be planned."
)

RULES = (
    row(
        "create-answers-creating",
        "CreateVolume answers with a volume that is creating, and that becomes available later.",
        MODEL.at("VolumeState"),
        rests(_WAITS, *_CREATION, "ec2/watcher.py"),
        cheap(_is_creating_first, "CreateVolume", volumes=1),
    ),
    row(
        "create-needs-a-zone",
        "CreateVolume without a zone is refused with MissingParameter.",
        observed("texts quoted in public issues"),
        _IDS,
        cheap(_zone_is_required, "CreateVolume"),
    ),
    row(
        "create-in-unknown-zone",
        "CreateVolume in a zone that does not exist is refused with InvalidZone.NotFound.",
        ERRORS.at("InvalidZone.NotFound"),
        rests(_ZONES, "ec2/error_codes.py", "controller/placement/failover_rules.py"),
        cheap(_zone_exists, "CreateVolume"),
    ),
    row(
        "create-names-a-zone-once",
        "CreateVolume with a zone's name and its id is refused with InvalidParameterCombination.",
        MODEL.at("CreateVolume AvailabilityZoneId: either, not both; the code is assumed"),
        _IDS,
        cheap(_zone_is_named_once, "CreateVolume", "DescribeAvailabilityZones"),
    ),
    row(
        "create-by-zone-id",
        "CreateVolume takes a zone's id, and shows the zone's name and id.",
        MODEL.at("CreateVolume AvailabilityZoneId"),
        _IDS,
        cheap(_zone_by_id, "CreateVolume", "DescribeAvailabilityZones", volumes=1),
    ),
    row(
        "dry-run-validates",
        "CreateVolume with DryRun is validated before DryRunOperation is answered.",
        DRIVER.at("pkg/cloud/cloud.go, which learns limits in this way"),
        rests(_TRIED, "ec2/ceilings.py", "controller/moving/planning.py"),
        cheap(_dry_run_validates, "CreateVolume"),
    ),
    row(
        "dry-run-makes-nothing",
        "A valid CreateVolume with DryRun is answered with DryRunOperation and makes nothing.",
        MODEL.at("CreateVolume DryRun"),
        rests(
            "Learning the IOPS limits, plans of moves and the check of rights at start would leave "
            "volumes.",
            "ec2/ceilings.py",
            "controller/moving/planning.py",
            "controller/ownership/aws_access.py",
        ),
        cheap(_dry_run_makes_nothing, "CreateVolume", "DescribeVolumes", volumes=1),
    ),
    row(
        "create-needs-a-size-or-snapshot",
        "CreateVolume with neither size nor snapshot is refused with MissingParameter.",
        MODEL.at("CreateVolume Size: you must specify either; the code is assumed"),
        rests("An empty size would make a volume of a default size.", "ec2/volumes.py"),
        cheap(_size_or_snapshot, "CreateVolume"),
    ),
    row(
        "create-size-is-a-whole-number",
        "A size that is no whole number is refused with InvalidParameterValue.",
        MODEL.at("CreateVolume Size: integer; the code is assumed"),
        rests("A size could be rounded down, below what the claim asks for.", "model/quantity.py"),
        cheap(_size_is_a_number, "CreateVolume"),
    ),
    row(
        "create-of-unknown-type",
        "CreateVolume of a type that does not exist is refused with UnknownVolumeType.",
        DRIVER.at("#662: a type that a zone lacks has the same code"),
        rests(_ZONES, "ec2/error_codes.py"),
        cheap(_type_exists, "CreateVolume"),
    ),
    row(
        "create-default-type",
        "CreateVolume without a type makes gp2.",
        MODEL.at("CreateVolume VolumeType, default"),
        rests("Nothing: the product always names the type.", "ec2/volumes.py"),
        cheap(_default_type, "CreateVolume", volumes=1),
    ),
    row(
        "gp2-iops",
        "A gp2 volume shows 3 IOPS per GiB, 100 at least.",
        MODEL.at("CreateVolume Iops"),
        rests(
            "A change from gp2 to gp3 would be taken for done, or repeated.",
            "controller/modifying/shape_rules.py",
        ),
        Probe(_gp2_iops, ("CreateVolume",), Usage((VolumeUse(40, "gp2"), VolumeUse(1, "gp2")))),
    ),
    row(
        "gp3-defaults",
        "A gp3 volume without IOPS and throughput has 3,000 IOPS and 125 MiB/s.",
        MODEL.at("CreateVolume Iops and Throughput, default"),
        rests(
            "A volume that is as its class wants would be modified, or not.",
            "controller/modifying/shape_rules.py",
            "model/volume_type.py",
        ),
        cheap(_gp3_defaults, "CreateVolume", volumes=1),
    ),
    row(
        "multi-attach-types",
        "Multi-Attach is for io1 and io2; CreateVolume refuses it for others with "
        "InvalidParameterCombination.",
        MODEL.at("CreateVolume MultiAttachEnabled; the code is assumed"),
        rests("A shared volume would be promised that EC2 does not make.", "model/volume_type.py"),
        cheap(_multi_attach_types, "CreateVolume"),
    ),
    row(
        "multi-attach-io1-regions",
        "Multi-Attach of io1 is for us-east-1, us-west-2 and ap-northeast-2.",
        MULTI_ATTACH,
        rests(
            "EC2 itself refuses such a class; the event shows its text.",
            "controller/provisioning/plan_rules.py",
        ),
        cheap(_io1_multi_attach_regions, "CreateVolume"),
    ),
    row(
        "iops-ceiling-text",
        "The refusal of too many IOPS of gp3 says 'too high; maximum is' and the Region's maximum.",
        DRIVER.at("pkg/cloud/cloud.go"),
        _CEILINGS,
        cheap(_ceiling_text, "CreateVolume"),
    ),
    row(
        "iops-ceiling-text-of-io2",
        "The refusal of too many IOPS of io2 names the maximum, as '256K IOPS' or 'maximum is'.",
        DRIVER.at("#2781"),
        _CEILINGS,
        cheap(_ceiling_text_of_io2, "CreateVolume"),
    ),
    row(
        "initialization-rate-needs-a-snapshot",
        "VolumeInitializationRate without a snapshot is refused with InvalidParameterCombination.",
        MODEL.at("CreateVolume VolumeInitializationRate: snapshots only; the code is assumed"),
        rests(
            "A class with a rate would fail, or cost, for empty volumes.",
            "controller/provisioning/plan_rules.py",
        ),
        cheap(_rate_needs_a_snapshot, "CreateVolume"),
    ),
    row(
        "key-needs-encryption",
        "KmsKeyId without Encrypted is refused with InvalidParameterDependency, unless the Region "
        "encrypts by default.",
        MODEL.at("CreateVolume KmsKeyId: Encrypted must be true; the code is assumed"),
        rests(
            "A volume would be made without encryption although a key was named.",
            "classes/storage_class_rules.py",
        ),
        cheap(_key_needs_encryption, "CreateVolume", "GetEbsEncryptionByDefault"),
    ),
    row(
        "unusable-key-vanishes",
        "A volume with a key that cannot be used is answered as creating and vanishes; its client "
        "token is used up (IdempotentParameterMismatch).",
        DRIVER.at("#3010, #1951; EC2 API model, CreateVolume KmsKeyId: checked asynchronously"),
        rests(
            "A claim would wait for ever, or get a new volume every minute.",
            *_CREATION,
            "controller/provisioning/client_token_rules.py",
        ),
        cheap(_bad_key_vanishes, "CreateVolume", volumes=1, seconds=30),
    ),
    row(
        "encryption-by-default",
        "Where the Region encrypts by default, every new volume is encrypted.",
        MODEL.at("EnableEbsEncryptionByDefault"),
        rests("Nothing: the product shows what EC2 answers.", "ec2/wire.py"),
        "It would change a setting of the whole account.",
    ),
    row(
        "outpost-exists",
        "CreateVolume on an Outpost that does not exist is refused with InvalidParameterValue.",
        assumed("nobody quotes the code"),
        rests(
            "A class with a wrong Outpost would be tried for ever, without a clear event.",
            "ec2/error_codes.py",
        ),
        cheap(_outpost_exists, "CreateVolume"),
    ),
    row(
        "outpost-serves-its-own",
        "An attachment across the edge of an Outpost is refused with UnsupportedOperation.",
        assumed("AWS Outposts user guide; nobody quotes the code"),
        rests("A pod would wait without a clear event.", "ec2/error_codes.py"),
        "It needs an Outpost.",
    ),
    row(
        "outpost-elsewhere",
        "CreateVolume on an Outpost of another zone is refused with InvalidParameterCombination, "
        "CreateSnapshot on one that does not have the volume with InvalidParameterValue.",
        assumed("nobody quotes the codes"),
        rests("A pod would wait without a clear event.", "ec2/error_codes.py"),
        "It needs an Outpost.",
    ),
    row(
        "no-capacity",
        "CreateVolume in a zone without room is refused with InsufficientVolumeCapacity.",
        ERRORS.at("InsufficientVolumeCapacity"),
        rests(
            "A claim would wait for room where another zone has some.",
            "ec2/error_codes.py",
            "controller/placement/failover_rules.py",
        ),
        "Nobody can empty a zone of AWS.",
    ),
    row(
        "create-may-fail",
        "A volume may end in state error instead of available.",
        MODEL.at("VolumeState"),
        rests("A claim would wait for ever for such a volume.", *_CREATION),
        "EC2 cannot be made to fail.",
    ),
    row(
        "quota-codes",
        "Beyond a quota of volumes, storage or IOPS, EC2 answers VolumeLimitExceeded or "
        "MaxIOPSLimitExceeded.",
        ERRORS.at("VolumeLimitExceeded, MaxIOPSLimitExceeded"),
        rests("The event would not name the quota.", "ec2/error_codes.py", "ec2/usage.py"),
        "A quota is 50 TiB or more.",
    ),
)
