"""What a command could not read: it says so, and goes on with the rest."""

from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.model.errors import Reason, StorageError

KUBERNETES = "Kubernetes"
AWS = "AWS"
GROUPS = "list groups"  # asked of a server that does not say what it serves
_RIGHTS = frozenset({Reason.FORBIDDEN, Reason.PERMISSION_DENIED})


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that was asked and not answered.

    Attributes:
        system: ``KUBERNETES`` or ``AWS``.
        what: what was asked: "list persistentvolumes", "DescribeVolumes".
        reason: why there is no answer.
        message: the same for a human, one sentence.
    """

    system: str
    what: str
    reason: Reason
    message: str

    @classmethod
    def of(cls, system: str, what: str, error: StorageError) -> "Gap":
        """The gap that a failed request leaves."""
        return cls(system, what, error.reason, error.message)

    @property
    def is_right(self) -> bool:
        """Whether the caller lacks a right, rather than that something does not work."""
        return self.reason in _RIGHTS


def lines(gaps: Iterable[Gap]) -> list[str]:
    """One line for each message, with all that it kept from being read; for standard error."""
    kept: dict[str, list[str]] = {}
    for each in gaps:
        of_message = kept.setdefault(each.message.removeprefix(f"{each.what}: "), [])
        if each.what not in of_message:
            of_message.append(each.what)
    return [f"could not read {', '.join(what)}: {message}" for message, what in kept.items()]
