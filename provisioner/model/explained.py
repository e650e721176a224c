"""The form in which a reason is explained."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explained:
    """One reason.

    Attributes:
        meaning: what has happened.
        remedy: what to do.
    """

    meaning: str
    remedy: str
