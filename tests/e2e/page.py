"""The page of the documentation that has the measured tables, between two markers."""

import re

from tests.documents import DOCS

PAGE = DOCS / "reference/e2e.md"
_MARKED = re.compile(r"(<!-- results: [^>]*-->\n).*(\n<!-- end of results -->)", re.DOTALL)


def written(page: str, tables: str) -> str:
    """The page with these tables.

    Raises:
        ValueError: it has no markers.
    """
    text, count = _MARKED.subn(lambda match: f"{match[1]}\n{tables}\n{match[2]}", page)
    if count != 1:
        raise ValueError(f"{PAGE} has no markers for the results")
    return text


def write(tables: str) -> None:
    """Put the tables into the page."""
    PAGE.write_text(written(PAGE.read_text(), tables))
