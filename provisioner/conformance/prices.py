"""What AWS charges for what a run makes: an upper bound, in US dollars.

Prices are those of us-east-1 as published in these places (read 2026-11-23): gp2, gp3 and io2 on
c3x.dev/resources/aws/aws_ebs_volume; the others, and those of provisioned IOPS and snapshots, in
public cost tools that agree, of whose values the highest is taken. AWS's own list could not be read
here. Volumes are billed by the second, at least 60 of them (aws.eu/ebs/pricing, example 1).
Not found: the price of CopyVolumes, which AWS charges once for each GiB; a whole month of a gp3
volume is taken for it.
Other Regions are dearer. None that we know of by more than the factor below; not verified.
"""

from collections.abc import Iterable, Mapping

from provisioner.conformance.probe import Usage

READ_ON = "2026-11-23"
REGION = "us-east-1"
ELSEWHERE = 2.0

GIB_MONTH: Mapping[str, float] = {
    "gp3": 0.08,
    "gp2": 0.10,
    "io1": 0.125,
    "io2": 0.125,
    "st1": 0.045,
    "sc1": 0.025,
    "standard": 0.05,
}
IOPS_MONTH: Mapping[str, float] = {"io1": 0.065, "io2": 0.065, "gp3": 0.005}
SNAPSHOT_GIB_MONTH = 0.05
COPY_GIB = 0.08
_HOURS_A_MONTH = 720.0
_HOURS_A_DAY = 24.0
_HOUR_S = 3600.0
_CLEAN_UP_S = 60.0  # after a probe's deadline, until the sweep


def cost_usd(uses: Iterable[Usage], region: str) -> float:
    """What a run costs at most, if each probe takes until its deadline."""
    return _factor(region) * sum(
        _monthly(use) * (use.deadline_s + _CLEAN_UP_S) / _HOUR_S / _HOURS_A_MONTH
        + use.copied_gib * COPY_GIB
        for use in uses
    )


def daily_usd(uses: Iterable[Usage], region: str) -> float:
    """What a day costs if nothing is deleted."""
    return _factor(region) * sum(map(_monthly, uses)) * _HOURS_A_DAY / _HOURS_A_MONTH


def certainty(region: str) -> str:
    """How far an estimate can be trusted, as a sentence."""
    if region == REGION:
        return f"Prices: {REGION}, read {READ_ON}; each probe is counted until its deadline."
    return (
        f"Prices: {REGION}, read {READ_ON}, times {ELSEWHERE:.0f} for {region}, whose own prices "
        "are not known here; each probe is counted until its deadline."
    )


def _factor(region: str) -> float:
    return 1.0 if region == REGION else ELSEWHERE


def _monthly(use: Usage) -> float:
    volumes = sum(
        each.count
        * (
            each.size_gib * GIB_MONTH.get(each.volume_type, max(GIB_MONTH.values()))
            + each.iops * IOPS_MONTH.get(each.volume_type, 0.0)
        )
        for each in use.volumes
    )
    copies = use.copied_gib * GIB_MONTH["gp3"]
    return volumes + copies + use.snapshots_gib * SNAPSHOT_GIB_MONTH
