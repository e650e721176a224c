"""One rule of EC2 that the product, or the sandbox's strict EC2, takes for true."""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from provisioner.conformance.probe import Probe


class Certainty(StrEnum):
    """How well a rule is known."""

    DOCUMENTED = "documented"  # AWS says so
    OBSERVED = "observed"  # others have seen it; the source says who
    ASSUMED = "assumed"  # nobody has said it; it is the most likely


@dataclass(frozen=True, slots=True)
class RestsOn:
    """What is wrong in the product if a rule is false.

    Attributes:
        consequence: one sentence about what users would see.
        files: where the product relies on the rule; paths from the repository's root that exist.
    """

    consequence: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        name: of lower-case words and dashes; unique.
        sentence: the rule, as one main clause about EC2.
        source: page, model or issue that says so, or why it is assumed.
        read_on: when the source was read.
        certainty: how well it is known.
        rests_on: what in the product relies on it.
        probe: what would show it wrong; else the reason why no probe can.
    """

    name: str
    sentence: str
    source: str
    read_on: date
    certainty: Certainty
    rests_on: RestsOn
    probe: Probe | str
