"""Prices in the answers of AWS's Price List Query API (``pricing:GetProducts``).

Source: AWS Billing user guide "AWS Price List Query API", and the usage types of the price list of
AmazonEC2 as the sources of ``prices.json`` have it (read 2026-11-23). Throughput is priced a GiB/s,
there 1,024 MiB/s. Not verified on AWS.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from provisioner.prices.price_rules import RegionPrices

FAMILIES = (
    "Storage",
    "System Operation",
    "Provisioned Throughput",
    "Storage Snapshot",
    "Fast Snapshot Restore",
)
_MIB_A_GIB = 1024


class _Product(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    product_family: str = ""
    attributes: dict[str, str] = {}


class _Dimension(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    unit: str = ""
    price_per_unit: dict[str, str] = {}


class _Term(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    price_dimensions: dict[str, _Dimension] = {}


class _Item(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    product: _Product = _Product()
    terms: dict[str, dict[str, _Term]] = {}
    publication_date: str = ""


def read_prices(texts: Iterable[str]) -> RegionPrices | None:
    """The prices of the Region that was asked for; None if nothing in the answers is one.

    Raises:
        ValueError: an answer is not what the price list has.
    """
    found: dict[str, Decimal] = {}
    dates: list[date] = []
    for text in texts:
        try:
            item = msgspec.json.decode(text, type=_Item)
        except msgspec.DecodeError as error:
            raise ValueError(f"an answer of the price list cannot be read: {error}") from error
        for key, price in _priced(item):
            found[key] = price
            dates.append(_day(item.publication_date))
    if not found:
        return None
    io2 = [found.get(key) for key in ("io2", "io2.tier2", "io2.tier3")]
    known = tuple(each for each in io2 if each is not None)
    return RegionPrices(
        as_of=min(dates),
        gib_month={
            key.partition(":")[2]: price for key, price in found.items() if key.startswith("gib:")
        },
        gp3_iops_month=found.get("gp3"),
        gp3_mibps_month=found.get("mibps"),
        io1_iops_month=found.get("io1"),
        io2_iops_month=(known[0], known[1], known[2]) if len(known) == len(io2) else None,
        snapshot_gib_month=found.get("snapshot"),
        fast_restore_hour=found.get("restore"),
    )


def _priced(item: _Item) -> Iterator[tuple[str, Decimal]]:
    product = item.product
    if product.attributes.get("locationType", "AWS Region") != "AWS Region":
        return
    key = _key(product.product_family, product.attributes)
    for term in item.terms.get("OnDemand", {}).values():
        for each in term.price_dimensions.values():
            price = _amount(each.price_per_unit.get("USD"))
            if key and price:
                scale = _MIB_A_GIB if each.unit.lower().startswith("gibps") else 1
                yield key, price / scale


def _key(family: str, attributes: dict[str, Any]) -> str:
    """What a product is the price of; "" for what is none of ours."""
    usage = str(attributes.get("usagetype", ""))
    _, found, kind = usage.rpartition("EBS:")
    if not found:
        return ""
    match family:
        case "Storage" if kind.startswith("VolumeUsage") and attributes.get("volumeApiName"):
            return f"gib:{attributes['volumeApiName']}"
        case "System Operation" if kind.startswith("VolumeP-IOPS."):
            name = kind.removeprefix("VolumeP-IOPS.")
            return "io1" if name == "piops" else name
        case "Provisioned Throughput" if kind == "VolumeP-Throughput.gp3":
            return "mibps"
        case "Storage Snapshot" if kind == "SnapshotUsage":
            return "snapshot"
        case "Fast Snapshot Restore" if kind == "FastSnapshotRestore":
            return "restore"
        case _:
            return ""


def _amount(text: str | None) -> Decimal | None:
    try:
        return Decimal(text) if text else None
    except InvalidOperation as error:
        raise ValueError(f"the price list has a price {text!r}") from error


def _day(text: str) -> date:
    try:
        return datetime.fromisoformat(text).astimezone(UTC).date()
    except ValueError as error:
        raise ValueError(f"the price list has a date {text!r}") from error
