"""Client tokens of CreateVolume and CopyVolumes."""

from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import (
    CannotRunError,
    Confirmed,
    Finding,
    RefusedError,
    Refuted,
)
from provisioner.conformance.probes.asking import (
    all_held,
    cheap,
    held,
    made,
    new_volume,
    refused,
    tagged,
)
from provisioner.conformance.probes.sources import (
    DRIVER,
    IDEMPOTENCY,
    MODEL,
    assumed,
    rests,
    row,
)

_TWICE = rests(
    "A claim would get two volumes after a lost reply or a restart.",
    "controller/provisioning/client_token_rules.py",
    "controller/provisioning/creation.py",
)
_NUMBERS = rests(
    "A token that is used up would be sent for ever.",
    "controller/provisioning/creation_rules.py",
    "controller/provisioning/client_token_rules.py",
)
_MISMATCH = "IdempotentParameterMismatch"


def _token(lab: Lab, kind: str = "volume") -> str:
    """A token that nobody has used."""
    return f"conformance-{lab.missing_id(kind)}"


async def _kept(lab: Lab, token: str) -> dict[str, Any]:
    """Make a volume with a token.

    Raises:
        CannotRunError: tokens are ignored, so that another one makes another volume anyway.
    """
    one, again = await made(lab, ClientToken=token), await made(lab, ClientToken=token)
    if one["VolumeId"] != again["VolumeId"]:
        raise CannotRunError("even the same request with the same token makes a second volume")
    return one


async def _replayed(lab: Lab, first: dict[str, Any], again: dict[str, Any]) -> Finding:
    """Whether two requests with one token make one volume."""
    token = _token(lab)
    one = await made(lab, **first, ClientToken=token)
    try:
        other = await made(lab, **again, ClientToken=token)
    except RefusedError as no:
        return Refuted(f"The same token was refused with {no}.")
    same = one["VolumeId"] == other["VolumeId"]
    return held(same, f"The same token made {one['VolumeId']}, then {other['VolumeId']}.")


async def _other(lab: Lab, **changes: Any) -> Finding:
    """Whether a changed request with the token of an earlier one is a mismatch."""
    token = _token(lab)
    await made(lab, ClientToken=token)
    asked = new_volume(lab, **changes, ClientToken=token)
    return await refused(lab, _MISMATCH, "create_volume", **asked)


async def _same_again(lab: Lab) -> Finding:
    return await _replayed(lab, {}, {})


async def _order_of_tags(lab: Lab) -> Finding:
    first = {"TagSpecifications": tagged(a="1", b="2")}
    again = {"TagSpecifications": tagged(b="2", a="1")}
    return await _replayed(lab, first, again)


async def _other_parameters(lab: Lab) -> Finding:
    return all_held(
        await _other(lab, Size=2),
        await _other(lab, VolumeType="gp2"),
        await _other(lab, Throughput=126),
    )


async def _other_tags(lab: Lab) -> Finding:
    return await _other(lab, TagSpecifications=tagged(a="1"))


async def _other_zone(lab: Lab) -> Finding:
    if len(lab.zones) == 1:
        raise CannotRunError("it needs two zones")
    token = _token(lab)
    one = await _kept(lab, token)
    try:
        other = await made(lab, ClientToken=token, AvailabilityZone=lab.zones[1])
    except RefusedError as no:
        return Refuted(f"The same token in another zone was refused with {no}.")
    zone = other.get("AvailabilityZone")
    different = one["VolumeId"] != other["VolumeId"]
    return held(different and zone == lab.zones[1], f"The same token made a volume in {zone}.")


async def _deleted(lab: Lab) -> Finding:
    token = _token(lab)
    volume_id = str((await made(lab, ClientToken=token))["VolumeId"])
    await lab.volume_state(volume_id, "available")
    await lab.call("delete_volume", VolumeId=volume_id)
    return await refused(lab, _MISMATCH, "create_volume", **new_volume(lab, ClientToken=token))


async def _length(lab: Lab) -> Finding:
    token = _token(lab).ljust(64, "x")
    long = new_volume(lab, ClientToken=f"{token}x")
    return all_held(
        await _replayed_with(lab, token),
        await refused(lab, "InvalidParameterValue", "create_volume", **long),
    )


async def _replayed_with(lab: Lab, token: str) -> Finding:
    try:
        reply = await made(lab, ClientToken=token)
    except RefusedError as no:
        return Refuted(f"A token of {len(token)} characters was refused with {no}.")
    return Confirmed(f"A token of {len(token)} characters made {reply['VolumeId']}.")


async def _ascii(lab: Lab) -> Finding:
    long = new_volume(lab, ClientToken=f"{_token(lab)}é")
    return await refused(lab, "InvalidParameterValue", "create_volume", **long)


async def _case(lab: Lab) -> Finding:
    token = _token(lab)
    one = await _kept(lab, token)
    try:
        other = await made(lab, ClientToken=token.upper())
    except RefusedError as no:
        return Refuted(f"The token in capitals was refused with {no}.")
    different = one["VolumeId"] != other["VolumeId"]
    return held(different, f"The token in capitals made {other['VolumeId']}.")


async def _of_both_calls(lab: Lab) -> Finding:
    token = _token(lab)
    source = str((await made(lab, ClientToken=token))["VolumeId"])
    await lab.volume_state(source, "available")
    return await refused(
        lab,
        _MISMATCH,
        "copy_volumes",
        SourceVolumeId=source,
        VolumeType="gp3",
        ClientToken=token,
    )


async def _copied_again(lab: Lab) -> Finding:
    asked = {
        "SourceVolumeId": await lab.volume(),
        "VolumeType": "gp3",
        "ClientToken": _token(lab),
    }
    (one,) = (await lab.call("copy_volumes", **asked))["Volumes"]
    try:
        (other,) = (await lab.call("copy_volumes", **asked))["Volumes"]
    except RefusedError as no:
        return Refuted(f"The same token was refused with {no}.")
    same = one["VolumeId"] == other["VolumeId"]
    return held(same, f"The same token made {one['VolumeId']}, then {other['VolumeId']}.")


async def _shows_its_state(lab: Lab) -> Finding:
    token = _token(lab)
    first = await made(lab, ClientToken=token)
    volume_id = str(first["VolumeId"])
    await lab.volume_state(volume_id, "available")
    again = await made(lab, ClientToken=token)
    state = again.get("State")
    return held(
        (again["VolumeId"], state) == (volume_id, "available"),
        f"The token of an available volume was answered with {again['VolumeId']}, {state}.",
    )


RULES = (
    row(
        "token-again",
        "The same client token with the same parameters returns the same volume.",
        IDEMPOTENCY,
        _TWICE,
        cheap(_same_again, "CreateVolume", volumes=2),
    ),
    row(
        "token-shows-the-volume-as-it-is",
        "A repeated token is answered with the state that the volume has by now.",
        assumed("the guide says 'the latest information' of other services only"),
        rests(
            "A volume that is there would be waited for.",
            "controller/provisioning/creation_rules.py",
        ),
        cheap(_shows_its_state, "CreateVolume", volumes=2),
    ),
    row(
        "token-ignores-the-order-of-tags",
        "The order of tags makes no other request.",
        DRIVER.at("it sends tags in the random order of a Go map"),
        _TWICE,
        cheap(_order_of_tags, "CreateVolume", volumes=2),
    ),
    row(
        "token-of-other-parameters",
        "A token with another size, type or throughput is refused with "
        "IdempotentParameterMismatch.",
        IDEMPOTENCY.at("IdempotentParameterMismatch"),
        _NUMBERS,
        cheap(_other_parameters, "CreateVolume", volumes=7),
    ),
    row(
        "token-of-other-tags",
        "Tags are among the parameters: others are refused with IdempotentParameterMismatch.",
        IDEMPOTENCY.at("IdempotentParameterMismatch: all parameters but Region and zone"),
        rests(
            "A volume whose request has lost a tag would be found under the token.",
            "controller/provisioning/plan_rules.py",
        ),
        cheap(_other_tags, "CreateVolume", volumes=2),
    ),
    row(
        "token-in-another-zone",
        "The same token in another zone makes a second volume.",
        IDEMPOTENCY.at("all parameters but Region and zone are compared"),
        rests(
            "Nothing if false; the product never sends a token to two zones.",
            "controller/placement/failover_rules.py",
            "controller/provisioning/plan_rules.py",
        ),
        cheap(_other_zone, "CreateVolume", volumes=3),
    ),
    row(
        "token-of-a-deleted-volume",
        "The token of a deleted volume is refused with IdempotentParameterMismatch.",
        DRIVER.at("#3010, crossplane #1858"),
        _NUMBERS,
        cheap(_deleted, "CreateVolume", "DeleteVolume", volumes=2),
    ),
    row(
        "token-length",
        "A token has at most 64 characters; a longer one is refused with InvalidParameterValue.",
        DRIVER.at("#1038; EC2 developer guide, Ensuring idempotency"),
        rests(
            "Every CreateVolume would be refused.", "controller/provisioning/client_token_rules.py"
        ),
        cheap(_length, "CreateVolume", volumes=2),
    ),
    row(
        "token-is-ascii",
        "A token with a character that is not ASCII is refused with InvalidParameterValue.",
        IDEMPOTENCY.at("up to 64 ASCII characters; the code is assumed"),
        rests("Nothing: tokens are hexadecimal.", "controller/provisioning/client_token_rules.py"),
        cheap(_ascii, "CreateVolume", volumes=1),
    ),
    row(
        "token-case",
        "A token in capitals is another one.",
        MODEL.at("CreateVolume ClientToken: case-sensitive"),
        rests(
            "Nothing: tokens are lower-case hexadecimal.",
            "controller/provisioning/client_token_rules.py",
        ),
        cheap(_case, "CreateVolume", volumes=3),
    ),
    row(
        "token-of-both-calls",
        "A token of CreateVolume is refused for CopyVolumes (IdempotentParameterMismatch).",
        assumed("one token stands for one request (EC2 developer guide)"),
        rests(
            "A claim whose data source was changed would get a second volume.",
            "controller/provisioning/client_token_rules.py",
        ),
        cheap(_of_both_calls, "CreateVolume", "CopyVolumes", volumes=1, copies=1),
    ),
    row(
        "token-of-a-copy",
        "CopyVolumes with the same token returns the same copy.",
        MODEL.at("CopyVolumes ClientToken"),
        _TWICE,
        cheap(_copied_again, "CreateVolume", "CopyVolumes", volumes=1, copies=2),
    ),
    row(
        "token-life",
        "EC2 remembers a token for 12 hours.",
        DRIVER.at("#2075, its maintainers' measurement"),
        rests(
            "After a longer outage a volume is found by its tag, not by its token.",
            "controller/provisioning/creation_rules.py",
            "ec2/lookups.py",
        ),
        "It takes 12 hours.",
    ),
    row(
        "token-at-the-quota",
        "At the quota of volumes even a repeated token is refused with VolumeLimitExceeded.",
        DRIVER.at("#2512"),
        rests(
            "A volume that was made would be reported as refused.",
            "controller/provisioning/creation_rules.py",
        ),
        "A quota is 50 TiB or more.",
    ),
)
