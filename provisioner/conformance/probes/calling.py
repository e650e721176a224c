"""How often EC2 may be called, and by whom. All calls are tries that change nothing."""

import asyncio
from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import CannotRunError, Finding, RefusedError, Refuted
from provisioner.conformance.probes.asking import DRY_RUN, cheap, held, new_volume
from provisioner.conformance.probes.sources import ERRORS, THROTTLING, assumed, rests, row

_LIMITER = rests(
    "The limiter would be too slow, or be throttled all the time.",
    "ec2/limiter.py",
)
_AT_ONCE = 25
_MOST_CALLS = 300
_THROTTLED = "RequestLimitExceeded"


async def _is_admitted(lab: Lab, operation: str, params: dict[str, Any]) -> bool:
    try:
        await lab.call_once(operation, **params)
    except RefusedError as no:
        return no.code != _THROTTLED
    return True


async def _burst(lab: Lab, operation: str, params: dict[str, Any]) -> tuple[int, float]:
    """Call until calls are refused; how many passed, and in how many seconds."""
    begun_s, passed = lab.now_s(), 0
    for _ in range(0, _MOST_CALLS, _AT_ONCE):
        some = [_is_admitted(lab, operation, params) for _ in range(_AT_ONCE)]
        admitted = sum(await asyncio.gather(*some))
        passed += admitted
        if admitted < _AT_ONCE:
            break
    return passed, lab.now_s() - begun_s


async def _has_bucket(
    lab: Lab, operation: str, params: dict[str, Any], burst: int, per_s: float
) -> Finding:
    """Whether about so many calls pass at once; a tenth more or less is no other rule."""
    passed, took_s = await _burst(lab, operation, params)
    most = burst + per_s * (took_s + 1)
    seen = f"{passed} of {operation} passed in {took_s:.1f} s."
    if passed >= _MOST_CALLS and most >= passed:
        raise CannotRunError(f"{seen} Calls from here are too slow to use the quota up.")
    if passed >= _MOST_CALLS:
        return Refuted(f"{seen} None was refused.")
    if passed < burst * 0.9:
        raise CannotRunError(f"{seen} Somebody else in the account may call EC2, too.")
    return held(passed <= most * 1.1, seen)


def _tried(lab: Lab) -> dict[str, Any]:
    return new_volume(lab, DryRun=True)


async def _creates(lab: Lab) -> Finding:
    return await _has_bucket(lab, "create_volume", _tried(lab), 100, 5)


async def _attaches(lab: Lab) -> Finding:
    return await _has_bucket(lab, "attach_volume", _attach(lab), 50, 5)


async def _tag_writes(lab: Lab) -> Finding:
    params = {"Resources": [lab.missing_id("volume")], "Tags": [{"Key": "a", "Value": "1"}]}
    return await _has_bucket(lab, "create_tags", params, 100, 10)


async def _filtered_reads(lab: Lab) -> Finding:
    params = {"Filters": [lab.tag_filter], "MaxResults": 5}
    return await _has_bucket(lab, "describe_volumes", params, 100, 20)


async def _reads_by_id(lab: Lab) -> Finding:
    params = {"VolumeIds": [lab.missing_id("volume")]}
    return await _has_bucket(lab, "describe_volumes", params, 50, 10)


def _attach(lab: Lab) -> dict[str, Any]:
    missing = {
        "VolumeId": lab.missing_id("volume"),
        "InstanceId": lab.missing_id("instance"),
    }
    return {**missing, "Device": "/dev/sdf"}


async def _own_buckets(lab: Lab) -> Finding:
    passed, _ = await _burst(lab, "attach_volume", _attach(lab))
    if passed >= _MOST_CALLS:
        raise CannotRunError(f"none of {passed} calls was refused")
    other = {"VolumeId": lab.missing_id("volume"), "Size": 2}
    admitted = await asyncio.gather(
        *[_is_admitted(lab, "modify_volume", other) for _ in range(_AT_ONCE)]
    )
    seen = f"After AttachVolume was refused, {sum(admitted)} of {_AT_ONCE} ModifyVolume passed."
    return held(all(admitted), seen)


async def _refills(lab: Lab) -> Finding:
    passed, _ = await _burst(lab, "attach_volume", _attach(lab))
    if passed >= _MOST_CALLS:
        raise CannotRunError(f"none of {passed} calls was refused")
    await lab.sleep(4)
    params = _attach(lab)
    admitted = await asyncio.gather(
        *[_is_admitted(lab, "attach_volume", params) for _ in range(_AT_ONCE * 2)]
    )
    # 5 a second for 4 s, and for as long as the calls took.
    is_so = 15 <= sum(admitted) <= 35  # noqa: PLR2004
    return held(is_so, f"4 s after a refusal, {sum(admitted)} of AttachVolume passed.")


async def _refused_by_name(lab: Lab) -> Finding:
    async def code() -> str:
        try:
            await lab.call_once("create_volume", **_tried(lab))
        except RefusedError as no:
            return no.code
        return ""

    codes: set[str] = set()
    begun_s = lab.now_s()
    for _ in range(0, _MOST_CALLS, _AT_ONCE):
        codes |= set(await asyncio.gather(*[code() for _ in range(_AT_ONCE)]))
        if codes - {"", DRY_RUN}:
            break
    limits = sorted(codes - {"", DRY_RUN})
    took_s = lab.now_s() - begun_s
    if not limits and took_s * 5 + 100 > _MOST_CALLS:
        raise CannotRunError(
            f"{_MOST_CALLS} calls took {took_s:.0f} s: too slow to use the quota up"
        )
    if not limits:
        return Refuted(f"{_MOST_CALLS} of CreateVolume at once were all let through.")
    return held(limits == [_THROTTLED], f"Many calls at once: {', '.join(limits)}.")


RULES = (
    row(
        "throttled-code",
        "Beyond its quota of calls, EC2 answers RequestLimitExceeded.",
        ERRORS.at("RequestLimitExceeded"),
        rests(
            "A call that was not carried out would be taken for one that may have been.",
            "ec2/error_codes.py",
            "ec2/calls.py",
        ),
        cheap(_refused_by_name, "CreateVolume", seconds=60, alone=True),
    ),
    row(
        "throttle-of-creates",
        "CreateVolume has a bucket of 100 calls, and 5 more a second; tries count.",
        THROTTLING,
        _LIMITER,
        cheap(_creates, "CreateVolume", seconds=60, alone=True),
    ),
    row(
        "throttle-of-attaches",
        "AttachVolume has a bucket of 50 calls.",
        THROTTLING,
        _LIMITER,
        cheap(_attaches, "AttachVolume", seconds=60, alone=True),
    ),
    row(
        "throttle-refills",
        "The bucket of AttachVolume gets 5 calls a second.",
        THROTTLING,
        _LIMITER,
        cheap(_refills, "AttachVolume", seconds=60, alone=True),
    ),
    row(
        "throttle-of-tags",
        "CreateTags has a bucket of 100 calls, and 10 more a second.",
        THROTTLING,
        _LIMITER,
        cheap(_tag_writes, "CreateTags", seconds=60, alone=True),
    ),
    row(
        "throttle-of-filtered-reads",
        "DescribeVolumes with a filter or MaxResults has a bucket of 100 calls, and 20 more a "
        "second.",
        THROTTLING,
        _LIMITER,
        cheap(_filtered_reads, "DescribeVolumes", seconds=60, alone=True),
    ),
    row(
        "throttle-of-reads-by-id",
        "DescribeVolumes with ids alone counts as neither filtered nor in pages: 50 calls, and 10 "
        "more a second.",
        assumed("the guide does not say; the smaller is taken"),
        _LIMITER,
        cheap(_reads_by_id, "DescribeVolumes", seconds=60, alone=True),
    ),
    row(
        "throttle-by-action",
        "Each action has a bucket of its own: AttachVolume takes none of ModifyVolume's calls.",
        THROTTLING.at("a comment in aws-ebs-csi-driver says otherwise"),
        _LIMITER,
        cheap(_own_buckets, "AttachVolume", "ModifyVolume", seconds=60, alone=True),
    ),
    row(
        "credentials-refused",
        "Calls without valid credentials are refused with AuthFailure.",
        ERRORS.at("AuthFailure"),
        rests("A wrong key would look like an outage.", "ec2/error_codes.py", "ec2/calls.py"),
        "It would need other credentials than those of the run.",
    ),
    row(
        "internal-errors",
        "A call that is answered with InternalError, or not at all, may have been carried out.",
        ERRORS.at("InternalError"),
        rests(
            "A volume would be made twice, or a change be lost.",
            "ec2/error_codes.py",
            "controller/provisioning/creation_rules.py",
        ),
        "EC2 cannot be made to fail.",
    ),
)
