"""What a volume of each type may be: sizes, IOPS, throughput. Nothing is made, all is DryRun."""

from collections.abc import Awaitable, Callable

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import Finding
from provisioner.conformance.probes.asking import all_held, cheap, try_accepted, try_refused
from provisioner.conformance.probes.sources import DRIVER, MODEL, rests, row
from provisioner.conformance.rule import Rule

_SIZE = rests(
    "A claim would be refused here that EC2 would serve, or sent again and again in vain.",
    "model/volume_type.py",
)
_IOPS = rests(
    "IOPS would be raised or lowered to what EC2 refuses.",
    "model/volume_type.py",
    "classes/iops_rules.py",
)
_BAD = ("InvalidParameterValue", "InvalidParameterCombination")
_Run = Callable[[Lab], Awaitable[Finding]]


def _sized(kind: str, least: int, most: int) -> _Run:
    iops = {"Iops": 100} if kind in ("io1", "io2") else {}

    async def run(lab: Lab) -> Finding:
        return all_held(
            await try_accepted(lab, VolumeType=kind, Size=least, **iops),
            await try_accepted(lab, VolumeType=kind, Size=most, **iops),
            await try_refused(
                lab, "InvalidParameterValue", VolumeType=kind, Size=least - 1, **iops
            ),
            await try_refused(lab, "InvalidParameterValue", VolumeType=kind, Size=most + 1, **iops),
        )

    return run


def _size(kind: str, least: int, most: int) -> Rule:
    return row(
        f"size-of-{kind}",
        f"A {kind} volume has {least:,} to {most:,} GiB; CreateVolume refuses others with "
        "InvalidParameterValue.",
        MODEL.at("CreateVolume Size; the code is assumed"),
        _SIZE,
        cheap(_sized(kind, least, most), "CreateVolume"),
    )


def _with_iops(kind: str, least: int, most: int) -> _Run:
    large = {"VolumeType": kind, "Size": 10_000}

    async def run(lab: Lab) -> Finding:
        return all_held(
            await try_accepted(lab, **large, Iops=least),
            await try_accepted(lab, **large, Iops=most),
            await try_refused(lab, _BAD, **large, Iops=least - 1),
            await try_refused(lab, _BAD, **large, Iops=most + 1),
        )

    return run


def _iops(kind: str, least: int, most: int) -> Rule:
    return row(
        f"iops-of-{kind}",
        f"A {kind} volume has {least:,} to {most:,} IOPS; CreateVolume refuses others "
        "(InvalidParameterValue or InvalidParameterCombination).",
        MODEL.at("CreateVolume Iops, a Region may have less; the code is assumed"),
        _IOPS,
        cheap(_with_iops(kind, least, most), "CreateVolume"),
    )


def _with_ratio(kind: str, most: int) -> _Run:
    small = {"VolumeType": kind, "Size": 10}

    async def run(lab: Lab) -> Finding:
        return all_held(
            await try_accepted(lab, **small, Iops=10 * most),
            await try_refused(lab, _BAD, **small, Iops=10 * most + 1),
        )

    return run


def _ratio(kind: str, most: int) -> Rule:
    return row(
        f"iops-per-gib-of-{kind}",
        f"A {kind} volume has at most {most:,} IOPS per GiB.",
        DRIVER.at("pkg/cloud/cloud.go"),
        _IOPS,
        cheap(_with_ratio(kind, most), "CreateVolume"),
    )


async def _first_iops_of_gp3(lab: Lab) -> Finding:
    return all_held(
        await try_accepted(lab, Size=1, Iops=3000),
        await try_refused(lab, _BAD, Size=1, Iops=3001),
    )


async def _iops_required(lab: Lab) -> Finding:
    return all_held(
        await try_refused(lab, "InvalidParameterCombination", VolumeType="io1", Size=4),
        await try_refused(lab, "InvalidParameterCombination", VolumeType="io2", Size=4),
    )


async def _iops_not_taken(lab: Lab) -> Finding:
    sizes = {"gp2": 1, "st1": 125, "sc1": 125, "standard": 1}
    return all_held(
        *[
            await try_refused(
                lab, "InvalidParameterCombination", VolumeType=kind, Size=size, Iops=100
            )
            for kind, size in sizes.items()
        ]
    )


async def _throughput(lab: Lab) -> Finding:
    fast = {"Size": 100, "Iops": 10_000}
    return all_held(
        await try_accepted(lab, **fast, Throughput=125),
        await try_accepted(lab, **fast, Throughput=2000),
        await try_refused(lab, _BAD, **fast, Throughput=124),
        await try_refused(lab, _BAD, **fast, Throughput=2001),
    )


async def _throughput_ratio(lab: Lab) -> Finding:
    return all_held(
        await try_accepted(lab, Iops=3000, Throughput=750),
        await try_refused(lab, _BAD, Iops=3000, Throughput=751),
    )


async def _throughput_types(lab: Lab) -> Finding:
    return all_held(
        await try_refused(lab, "InvalidParameterCombination", VolumeType="gp2", Throughput=125),
        await try_refused(
            lab,
            "InvalidParameterCombination",
            VolumeType="io2",
            Size=4,
            Iops=1000,
            Throughput=125,
        ),
    )


RULES = (
    _size("gp2", 1, 16_384),
    _size("gp3", 1, 65_536),
    _size("io1", 4, 16_384),
    _size("io2", 4, 65_536),
    _size("st1", 125, 16_384),
    _size("sc1", 125, 16_384),
    _size("standard", 1, 1_024),
    _iops("gp3", 3_000, 80_000),
    _iops("io1", 100, 64_000),
    _iops("io2", 100, 256_000),
    _ratio("gp3", 500),
    _ratio("io1", 50),
    _ratio("io2", 1_000),
    row(
        "iops-of-small-gp3",
        "A gp3 volume of 1 GiB may name its 3,000 IOPS, whatever the ratio, and no more.",
        MODEL.at("CreateVolume Iops"),
        _IOPS,
        cheap(_first_iops_of_gp3, "CreateVolume"),
    ),
    row(
        "iops-required",
        "io1 and io2 without IOPS are refused with InvalidParameterCombination.",
        DRIVER.at("pkg/cloud/cloud.go; EC2 API model, CreateVolume Iops: required"),
        _IOPS,
        cheap(_iops_required, "CreateVolume"),
    ),
    row(
        "iops-of-other-types",
        "IOPS for gp2, st1, sc1 and standard are refused with InvalidParameterCombination.",
        MODEL.at("CreateVolume Iops: only gp3, io1 and io2; the code is assumed"),
        _IOPS,
        cheap(_iops_not_taken, "CreateVolume"),
    ),
    row(
        "throughput-of-gp3",
        "A gp3 volume has 125 to 2,000 MiB/s; CreateVolume refuses others.",
        MODEL.at("CreateVolume Throughput"),
        _IOPS,
        cheap(_throughput, "CreateVolume"),
    ),
    row(
        "throughput-per-iops",
        "A gp3 volume has at most 0.25 MiB/s per IOPS.",
        DRIVER.at("the text is quoted there"),
        _IOPS,
        cheap(_throughput_ratio, "CreateVolume"),
    ),
    row(
        "throughput-of-other-types",
        "Throughput for other types than gp3 is refused with InvalidParameterCombination.",
        MODEL.at("CreateVolume Throughput: only gp3; the code is assumed"),
        _IOPS,
        cheap(_throughput_types, "CreateVolume"),
    ),
)
