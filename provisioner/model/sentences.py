"""Parts of sentences that are told to users."""

from collections.abc import Collection
from typing import Literal

MOST_LISTED = 4


def listed(names: Collection[str], word: Literal["or", "and"] = "or") -> str:
    """Names in a sentence, sorted; the first few of many."""
    first = sorted(names)[:MOST_LISTED]
    more = len(names) - len(first)
    return f" {word} ".join([*first, *([f"{more} more"] if more else [])])


def printable(text: str) -> str:
    """A line as a terminal can show it: what is no visible character, escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
