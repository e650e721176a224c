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
    ``key``: a pattern of the caller's access key.
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
    key: str = "*"

    def __post_init__(self) -> None:
        if self.when not in _WHEN or self.do not in _DO:
            raise ValueError(f"fault: when is one of {_WHEN}, do is one of {_DO}")

    def fits(self, action: str, flat: dict[str, str], key: str) -> bool:
        """Tell whether this rule is for the call, which was signed with this access key."""
        if self.n <= 0 or not fnmatchcase(action, self.action) or not fnmatchcase(key, self.key):
            return False
        return all(_any_value(flat, name, pattern) for name, pattern in self.match.items())


def _any_value(flat: dict[str, str], name: str, pattern: str) -> bool:
    return any(
        fnmatchcase(value, pattern)
        for key, value in flat.items()
        if key == name or (key.startswith(f"{name}.") and key[len(name) + 1 :].isdigit())
    )


def take(faults: list[Fault], action: str, flat: dict[str, str], key: str) -> Fault | None:
    """Return the first fault for a call with this access key, and use it up by one."""
    for fault in faults:
        if fault.fits(action, flat, key):
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
