"""Find the prices of a Region: those that are shipped, of a file, or of AWS's price list."""

import asyncio
from contextlib import closing
from pathlib import Path

from provisioner.inspect.cost import price_list_rules
from provisioner.inspect.reading.aws import PRICES, PRICES_REGION, Aws
from provisioner.prices import price_file, price_rules
from provisioner.prices.price_rules import Prices

SHIPPED, API = "shipped", "api"


async def prices_of(region: str, where: str) -> Prices:
    """The prices of a Region.

    Args:
        region: "" if none is known: then there are no prices.
        where: ``SHIPPED``, ``API``, or the path of a file.

    Raises:
        StorageError: AWS's price list refuses or does not answer.
        ValueError: the file, or AWS's answer, cannot be read.
    """
    if where == API and region:
        return await _of_api(region)
    path = price_file.SHIPPED if where in {SHIPPED, API} else Path(where)
    try:
        text = await asyncio.to_thread(path.read_bytes)
        found = price_rules.read_file(text)
    except OSError as error:
        raise ValueError(f"--prices {where}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"--prices {where}: {error}") from error
    rates = found.regions.get(region)
    keys = rates.sources if rates is not None else ()
    source = "; ".join(found.sources.get(key, key) for key in keys) or str(path)
    return Prices(region, found.currency, rates, source)


async def _of_api(region: str) -> Prices:
    """One question for each family of products: the price list has 100 products a page."""
    with closing(Aws.of_caller(PRICES_REGION)) as aws:
        answers = await asyncio.gather(
            *(_products(aws, region, family) for family in price_list_rules.FAMILIES)
        )
    rates = price_list_rules.read_prices(text for some in answers for text in some)
    return Prices(region, "USD", rates, "AWS Price List Query API")


async def _products(aws: Aws, region: str, family: str) -> list[str]:
    fields = {"regionCode": region, "productFamily": family}
    filters = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in fields.items()]
    return await aws.read_all(
        PRICES, "GetProducts", "PriceList", ServiceCode="AmazonEC2", Filters=filters
    )
