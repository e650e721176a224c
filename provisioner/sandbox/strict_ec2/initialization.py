"""How the blocks of a restored or copied volume arrive after it is available.

Sources: EBS user guide "Initialize Amazon EBS volumes" and "Monitor the status of Amazon EBS volume
initialization", read 2026-11-22. Nobody quotes what is said beyond the regional rate: it is ours.
"""

from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, invalid
from provisioner.sandbox.strict_ec2.records import Initialization, record_of
from provisioner.sandbox.strict_ec2.snapshot_records import snapshot_record_of

MIN_RATE_MIBPS: Final = 100
MAX_RATE_MIBPS: Final = 300


def restored(call: Call, snapshot: Any, zone: str) -> Initialization | None:
    """Return how a new volume is initialized; None for one that is made empty.

    Raises: Ec2Error for a rate without a snapshot, out of bounds, or beyond what the region has.
    """
    rate = call.params.integer("VolumeInitializationRate")
    if snapshot is None:
        if rate is not None:
            raise combination(
                "The parameter VolumeInitializationRate can only be specified with a snapshot."
            )
        return None
    now_s, delays = call.world.now_s(), call.world.settings.delays
    if rate is not None:
        _check_rate(call, rate, now_s)
        return Initialization("provisioned-rate", now_s, now_s + delays.initialize_s, rate)
    fast = snapshot_record_of(snapshot).fast_restores.get(zone)
    if fast is not None and fast.state == "enabled":
        return Initialization("default", now_s, now_s, fast_restored=True)
    return Initialization("default", now_s, now_s + delays.initialize_s)


def copied(call: Call) -> Initialization:
    """Return how a new copy of a volume is initialized."""
    now_s = call.world.now_s()
    return Initialization("volume-copy", now_s, now_s + call.world.settings.delays.initialize_s)


def _check_rate(call: Call, rate: int, now_s: float) -> None:
    if not MIN_RATE_MIBPS <= rate <= MAX_RATE_MIBPS:
        raise invalid(
            f"Value ({rate}) for parameter VolumeInitializationRate is invalid. "
            f"Expecting a value between {MIN_RATE_MIBPS} and {MAX_RATE_MIBPS}."
        )
    most = call.world.settings.initialization_rate_limit_mibps
    in_use = sum(
        each.rate_mibps or 0
        for volume in call.backend.volumes.values()
        if (each := record_of(volume).initialization) is not None and each.is_running(now_s)
    )
    if in_use + rate > most:
        raise Ec2Error(
            "VolumeInitializationRateLimitExceeded",
            f"The cumulative volume initialization rate of {most} MiB/s in this Region has been "
            "reached.",
        )
