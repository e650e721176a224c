"""Many ids in one call: cut to size, and without those that EC2 does not know."""

import re
from collections.abc import Iterable, Iterator

from provisioner.model.errors import Ec2Error, Reason

_IDS = re.compile(r"\b(?:vol|i)-[0-9a-z]+")


def chunks(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    """The ids, each once, in lists of at most ``size``."""
    every = list(dict.fromkeys(ids))
    return (every[start : start + size] for start in range(0, len(every), size))


def without_missing(failure: Ec2Error, ids: list[str], reason: Reason) -> list[str]:
    """The ids that EC2 did not complain about when it refused a whole call.

    Nothing is left of a single id; all are, if the text names none of them.

    Raises:
        Ec2Error: the failure itself, if it has another reason.
    """
    if failure.reason is not reason:
        raise failure
    if len(ids) == 1:
        return []
    named = set(_IDS.findall(failure.message))
    return [each for each in ids if each not in named]
