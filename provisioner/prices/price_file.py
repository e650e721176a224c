"""The file of prices that is shipped."""

import functools
from pathlib import Path

from provisioner.prices.price_rules import PriceFile, read_file

SHIPPED = Path(__file__).with_name("prices.json")


@functools.cache
def shipped() -> PriceFile:
    """Its prices; read once."""
    return read_file(SHIPPED.read_bytes())
