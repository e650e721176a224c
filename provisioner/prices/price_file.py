"""The file of prices that is shipped."""

from pathlib import Path

from provisioner.prices.price_rules import PriceFile, read_file

SHIPPED = Path(__file__).with_name("prices.json")


def shipped() -> PriceFile:
    """Its prices."""
    return read_file(SHIPPED.read_bytes())
