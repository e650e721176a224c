"""Answers that several stories give: a refusal, and when an object is to be looked at again."""

from dataclasses import dataclass

from provisioner.model.errors import Reason


@dataclass(frozen=True, slots=True)
class Refuse:
    """It cannot go on as it is.

    ``settled``: only a change of an object can help, so it is not retried.
    ``normal``: nothing is wrong: it is reported as a Normal event.
    """

    reason: Reason
    message: str
    settled: bool = False
    normal: bool = False


@dataclass(frozen=True, slots=True)
class Later:
    """Look again after so many seconds, or sooner if an event wakes it; 0.0 is at once."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WhenWoken:
    """Something else will have it looked at: a watcher of EC2, a cache, another object's pass."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is left to do until the object changes."""


Next = Later | WhenWoken | Settled
AGAIN = Later(0.0)
WHEN_WOKEN = WhenWoken()
SETTLED = Settled()
