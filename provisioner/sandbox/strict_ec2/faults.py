"""Faults on demand: errors instead of work, and replies lost after the work was done."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

_WHEN: Final = ("before", "after")
_DO: Final = ("error", "reset", "hang", "html", "delay")


@dataclass(slots=True)
class Fault:
    """One rule: which calls, how many of them, and what happens to those.

    ``match`` maps parameter names to shell patterns; ``VolumeId`` also means ``VolumeId.1`` and on.
    ``when``: ``before`` = instead of the work, ``after`` = the work is done and the reply lost.
    """

    action: str
    do: str
    when: str = "before"
    match: dict[str, str] = field(default_factory=dict)
    n: int = 1
    code: str = "InternalError"
    message: str = "An internal error has occurred"
    http_status: int = 500
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if self.when not in _WHEN or self.do not in _DO:
            raise ValueError(f"fault: when is one of {_WHEN}, do is one of {_DO}")

    def fits(self, action: str, flat: dict[str, str]) -> bool:
        """Tell whether this rule is for the call."""
        if self.n <= 0 or not fnmatchcase(action, self.action):
            return False
        return all(_any_value(flat, name, pattern) for name, pattern in self.match.items())


def _any_value(flat: dict[str, str], name: str, pattern: str) -> bool:
    return any(
        fnmatchcase(value, pattern)
        for key, value in flat.items()
        if key == name or (key.startswith(f"{name}.") and key[len(name) + 1 :].isdigit())
    )


def take(faults: list[Fault], action: str, flat: dict[str, str]) -> Fault | None:
    """Return the first fault for a call and use it up by one."""
    for fault in faults:
        if fault.fits(action, flat):
            fault.n -= 1
            if fault.n == 0:
                faults.remove(fault)
            return fault
    return None


def parse(documents: list[dict[str, Any]]) -> list[Fault]:
    """Read fault rules as posted.

    Raises: TypeError for an unknown field, ValueError for an unknown value.
    """
    return [Fault(**document) for document in documents]
