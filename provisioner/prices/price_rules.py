"""Prices of EBS by Region, and what a volume, a snapshot or a fast restore costs a month by them.

All amounts are exact: ``Decimal`` in the currency of the price file. A price that is not known is
None, and nothing is computed with a guess in its place.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

import msgspec

from provisioner.model.volume import Volume

FORMAT = 1
OLD_AFTER = timedelta(days=180)
# AWS's month of 730 hours (AWS Pricing Calculator, as its estimates state it; read 2026-11-23).
HOURS_A_MONTH = 730
# A gp3 volume's price includes so much, at every size. Source: EBS user guide "General Purpose SSD
# volumes" (read 2026-11-21).
GP3_IOPS, GP3_MIBPS = 3_000, 125
# The IOPS of an io2 volume are priced in three steps. Source: Amazon EBS pricing page (read through
# the price list's usage types EBS:VolumeP-IOPS.io2, .tier2 and .tier3, 2026-11-23).
_IO2_STEPS = (32_000, 64_000)
# Up to this size a gp2 volume has 128 MiB/s at most, larger ones up to 250. Source: EBS user guide
# "General Purpose SSD volumes", gp2 throughput (read 2026-11-21).
_GP2_SLOW_GIB, _GP2_MIBPS = 170, 250
_NONE = Decimal(0)


class RegionPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The prices of one Region; each a month, if not named otherwise.

    Attributes:
        as_of: when they were AWS's prices.
        performance_as_of: the same of IOPS and throughput; None: as ``as_of``.
        sources: keys of the file's ``sources``.
        gib_month: of storage, by volume type.
        gp3_iops_month: of each IOPS above 3,000.
        gp3_mibps_month: of each MiB/s above 125.
        io1_iops_month: of each IOPS.
        io2_iops_month: of each IOPS up to 32,000, up to 64,000, and above.
        snapshot_gib_month: of what a snapshot of the standard tier stores.
        fast_restore_hour: of fast restore of one snapshot in one zone.
    """

    as_of: date
    performance_as_of: date | None = None
    sources: tuple[str, ...] = ()
    gib_month: dict[str, Decimal] = {}
    gp3_iops_month: Decimal | None = None
    gp3_mibps_month: Decimal | None = None
    io1_iops_month: Decimal | None = None
    io2_iops_month: tuple[Decimal, Decimal, Decimal] | None = None
    snapshot_gib_month: Decimal | None = None
    fast_restore_hour: Decimal | None = None

    @property
    def oldest(self) -> date:
        """The age of the oldest of them."""
        return min(self.as_of, self.performance_as_of or self.as_of)


class PriceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of prices."""

    format: int
    currency: str
    regions: dict[str, RegionPrices]
    sources: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices that a command uses.

    Attributes:
        region: whose prices they are.
        currency: such as "USD".
        rates: None: there are none for the Region.
        source: where they come from, for people.
    """

    region: str
    currency: str
    rates: RegionPrices | None
    source: str


def read_file(text: bytes) -> PriceFile:
    """The prices that a file says.

    Raises:
        ValueError: one sentence: what is wrong with it.
    """
    try:
        found = msgspec.json.decode(text, type=PriceFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no price file: {error}") from error
    if found.format != FORMAT:
        raise ValueError(f"it is a price file of format {found.format}, not {FORMAT}")
    for region, rates in found.regions.items():
        wrong = next((each for each in _amounts(rates) if not each.is_finite() or each < 0), None)
        if wrong is not None:
            raise ValueError(f"a price of {region} is {wrong}, which no price can be")
    return found


def _amounts(rates: RegionPrices) -> list[Decimal]:
    single = (
        *(rates.gp3_iops_month, rates.gp3_mibps_month, rates.io1_iops_month),
        *(rates.snapshot_gib_month, rates.fast_restore_hour),
    )
    known = [each for each in single if each is not None]
    return [*known, *rates.gib_month.values(), *(rates.io2_iops_month or ())]


def warnings(prices: Prices, today: date) -> list[str]:
    """What somebody who reads the amounts must know of the prices."""
    if prices.rates is None:
        where = prices.region or "unknown"
        ways = "--prices api (needs the right pricing:GetProducts), or a file (docs/costs.md)"
        return [f"no prices for region {where}: use {ways}"]
    age = today - prices.rates.oldest
    if age <= OLD_AFTER:
        return []
    what = "prices" if today - prices.rates.as_of > OLD_AFTER else "prices of IOPS and throughput"
    old = f"of {prices.rates.oldest}, {age.days} days old"
    return [f"the {what} of {prices.region} are {old}: --prices api asks AWS for those of today"]


def volume_month(volume: Volume, rates: RegionPrices | None) -> Decimal | None:
    """What a volume costs a month; without what AWS charges for each I/O of type standard.

    Returns:
        None if a price that is needed is not known.
    """
    if rates is None or volume.volume_type not in rates.gib_month:
        return None
    storage = rates.gib_month[volume.volume_type] * volume.size_gib
    match volume.volume_type:
        case "gp3":
            more = _gp3_month(volume.iops or GP3_IOPS, volume.throughput_mibps or GP3_MIBPS, rates)
        case "io1":
            more = _times(volume.iops or 0, rates.io1_iops_month)
        case "io2":
            more = _io2_month(volume.iops or 0, rates)
        case _:
            more = _NONE
    return None if more is None else storage + more


def gp3_saving(volume: Volume, rates: RegionPrices | None) -> Decimal | None:
    """What a gp2 volume would save a month as gp3 with at least its IOPS and throughput.

    Returns:
        None for other types, where a price is not known, or where nothing would be saved.
    """
    now = volume_month(volume, rates)
    if volume.volume_type != "gp2" or rates is None or now is None or "gp3" not in rates.gib_month:
        return None
    mibps = GP3_MIBPS if volume.size_gib <= _GP2_SLOW_GIB else _GP2_MIBPS
    more = _gp3_month(max(volume.iops or 0, GP3_IOPS), mibps, rates)
    if more is None:
        return None
    saving = now - rates.gib_month["gp3"] * volume.size_gib - more
    return saving if saving > 0 else None


def snapshot_month(size_bytes: int, rates: RegionPrices | None) -> Decimal | None:
    """What so many stored bytes of snapshots cost a month; None without a price."""
    if rates is None or rates.snapshot_gib_month is None:
        return None
    return rates.snapshot_gib_month * Decimal(size_bytes) / 2**30


def fast_restore_month(zones: int, rates: RegionPrices | None) -> Decimal | None:
    """What fast restore of a snapshot in so many zones costs a month; None without a price."""
    return _times(zones * HOURS_A_MONTH, rates.fast_restore_hour if rates else None)


def _gp3_month(iops: int, mibps: int, rates: RegionPrices) -> Decimal | None:
    parts = (
        _times(max(iops - GP3_IOPS, 0), rates.gp3_iops_month),
        _times(max(mibps - GP3_MIBPS, 0), rates.gp3_mibps_month),
    )
    known = [each for each in parts if each is not None]
    return sum(known, _NONE) if len(known) == len(parts) else None


def _io2_month(iops: int, rates: RegionPrices) -> Decimal | None:
    if rates.io2_iops_month is None:
        return None
    low, high = _IO2_STEPS
    steps = (min(iops, low), min(max(iops - low, 0), high - low), max(iops - high, 0))
    pairs = zip(steps, rates.io2_iops_month, strict=True)
    return sum((number * price for number, price in pairs), _NONE)


def _times(number: int, price: Decimal | None) -> Decimal | None:
    """None only if the price matters and is not known."""
    if not number:
        return _NONE
    return None if price is None else price * number
