"""``kubectl ebs cost``: what volumes and snapshots cost a month, and what would cost less."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from provisioner.inspect.command_line import Readers, Target, carry_out, reading, target_options
from provisioner.inspect.cost import cost_rules
from provisioner.inspect.cost.cost_rules import Item, Sum, amount, amount_range
from provisioner.inspect.cost.flow import billed_items
from provisioner.inspect.cost.prices import API, SHIPPED, prices_of
from provisioner.inspect.reading.gap_rules import AWS, Gap
from provisioner.inspect.terminal import screen
from provisioner.inspect.terminal.table_rules import table
from provisioner.model.errors import StorageError
from provisioner.prices import price_rules
from provisioner.prices.price_rules import Prices


@click.command(short_help="Show what volumes and snapshots cost a month.")
@click.option(
    "--by",
    default="namespace",
    show_default=True,
    help="namespace, claim, class, type, status, or label=KEY of the claims.",
)
@click.option(
    "--prices",
    "where",
    default=SHIPPED,
    show_default=True,
    help=f"Or {API}: AWS's price list of today; or a file.",
)
@click.option("--used", is_flag=True, help="Ask the kubelets how full the volumes are.")
@click.option("--output", "-o", type=click.Choice(["table", "json", "csv"]), default="table")
@target_options
def cost(*, by: str, where: str, used: bool, output: str, target: Target) -> None:
    """Show what the volumes and snapshots of this cluster cost a month, by AWS's list prices.

    Without discounts, credits and taxes. Snapshots are a range, since EC2 does not say what each of
    them stores. Orphans are counted, as are Released volumes and those attached to no node. CSV and
    JSON have one entry for each volume, snapshot and fast restore, with exact amounts.

    Exit code 0; 1 if something could not be read, or there are no prices.
    """
    try:
        cost_rules.group_key(by)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    carry_out(_cost(target, by=by, where=where, used=used, output=output))


async def _cost(target: Target, *, by: str, where: str, used: bool, output: str) -> int:
    async with reading(target) as readers:
        async with screen.progress("reading what is billed"):
            prices, told = await _prices(readers, where)
            found = await billed_items(readers, target.driver, prices.rates, with_used=used)
        items = [e for e in found.items if target.namespace in {"", e.owner.namespace}]
        screen.show(_lines(items, prices, by, output))
        screen.warn([*told, *found.remarks, *readers.gap_lines()])
        return 1 if readers.gap_lines() or prices.rates is None else 0


async def _prices(readers: Readers, where: str) -> tuple[Prices, list[str]]:
    """The prices, and what one must know of them; none, and a gap, if AWS's list has no answer."""
    region = readers.cloud.region
    try:
        prices = await prices_of(region, where)
    except StorageError as error:
        readers.cloud.gaps.append(Gap.of(AWS, "prices", error))
        return Prices(region, "USD", None, ""), []
    return prices, price_rules.warnings(prices, datetime.now(UTC).date())


def _lines(items: Sequence[Item], prices: Prices, by: str, output: str) -> list[str]:
    match output:
        case "csv":
            return cost_rules.csv_text(items).splitlines()
        case "json":
            return [screen.json_text(_document(items, prices, by))]
        case _:
            return _table(items, prices, by)


def _document(items: Sequence[Item], prices: Prices, by: str) -> dict[str, Any]:
    as_of = prices.rates.oldest if prices.rates is not None else None
    return {
        "region": prices.region,
        "currency": prices.currency,
        "prices": {"as_of": as_of, "source": prices.source},
        "by": by,
        "groups": [{"group": n, **_sum(s)} for n, s in cost_rules.groups(items, by)],
        "total": _sum(cost_rules.total(items)),
        "remarks": cost_rules.remarks(items, prices.currency),
        "items": items,
    }


def _sum(of: Sum) -> dict[str, Any]:
    return {**msgspec.to_builtins(of), "month_low": str(of.low), "month_high": str(of.high)}


def _table(items: Sequence[Item], prices: Prices, by: str) -> list[str]:
    unit = f"{prices.currency}/MONTH"
    headings = (
        *(by.partition("=")[2].upper() or by.upper(), "VOLUMES", "GIB"),
        *(f"VOLUMES {unit}", f"SNAPSHOTS {unit}", f"TOTAL {unit}"),
    )
    rows = [_cells(name, each) for name, each in cost_rules.groups(items, by)]
    rows.append(_cells("TOTAL", cost_rules.total(items)))
    remarks = [f"- {each}" for each in cost_rules.remarks(items, prices.currency)]
    of = f"Prices: {prices.region}, {prices.rates.oldest}." if prices.rates else ""
    return [*table(headings, rows, width=screen.width()), "", *remarks, of]


def _cells(name: str, of: Sum) -> tuple[str, ...]:
    if not of.is_known:
        return (name, str(of.volumes), str(of.gib), *(amount(None) for _ in range(3)))
    return (
        name,
        str(of.volumes),
        str(of.gib),
        amount(of.volumes_month),
        amount_range(of.others_low, of.others_high),
        amount_range(of.low, of.high),
    )
