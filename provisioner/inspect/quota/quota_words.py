"""The table of ``kubectl ebs quota``."""

from provisioner.inspect.reading.quota_rules import QuotaUse

HEADINGS = ("OF", "QUOTA", "CODE", "NUMBER", "USED", "LIMIT", "USED%")
_UNKNOWN = "?"


def cells(use: QuotaUse) -> tuple[str, ...]:
    """One row of the table; with a + where more may be in use than was counted."""
    digits = 2 if use.unit == "TiB" else 0
    more = "+" if use.is_least else ""
    return (
        use.of,
        use.what,
        use.code,
        f"{use.number}{more}",
        f"{use.used:,.{digits}f}{more} {use.unit}",
        _UNKNOWN if use.limit is None else f"{use.limit:,.0f} {use.unit}",
        _UNKNOWN if use.percent is None else f"{use.percent:.0f}%{more}",
    )
