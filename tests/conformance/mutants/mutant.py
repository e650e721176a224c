"""One way to break the strict EC2."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One broken rule.

    Attributes:
        rule: its name.
        where: ``module.function`` of the strict EC2, or a table's name.
        old: text that is there, exactly once; of a table, the key of the entry.
        new: text that stands there instead; of a table, see ``mutation._entry``.
    """

    rule: str
    where: str
    old: str
    new: str


def off(rule: str, where: str, condition: str) -> Mutant:
    """A check that never finds anything."""
    return Mutant(rule, where, f"if {condition}:", "if False:")
