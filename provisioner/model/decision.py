"""Answers that the rules of several stories give."""

from dataclasses import dataclass

from provisioner.model.errors import Reason


@dataclass(frozen=True, slots=True)
class Refuse:
    """It cannot be provisioned as it is.

    ``settled``: only a change of an object can help, so no try is repeated.
    ``normal``: not a fault of anybody: told as a Normal event.
    """

    reason: Reason
    message: str
    settled: bool = False
    normal: bool = False
