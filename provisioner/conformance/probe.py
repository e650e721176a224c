"""A probe: what it does, needs and costs, and what it can find."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provisioner.conformance.lab import Lab

_LEAST_S = 60.0
_PATIENCE = 4.0


@dataclass(frozen=True, slots=True)
class Confirmed:
    """EC2 does as the rule says.

    Attributes:
        seen: one sentence: what EC2 did.
    """

    seen: str


@dataclass(frozen=True, slots=True)
class Refuted:
    """EC2 does otherwise.

    Attributes:
        seen: one sentence: what EC2 did, with its code and text.
    """

    seen: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """Nothing is known: never counted as confirmed.

    Attributes:
        why: one sentence.
    """

    why: str


Finding = Confirmed | Refuted | NotRun


class RefusedError(Exception):
    """EC2 refused a call, and nothing happened.

    Attributes:
        code: EC2's, such as "InvalidVolume.NotFound".
        message: EC2's.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class CannotRunError(Exception):
    """A probe cannot find anything out; its finding is NotRun with this sentence.

    The lab raises it for missing rights, an action that the endpoint does not have, a lost reply
    and a preparation that takes too long. A probe may raise it, and should not catch it.
    """


class NotSeenError(CannotRunError):
    """What ``Lab.until`` waited for did not come; catch it where this refutes the rule."""


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """Volumes that a probe makes.

    Attributes:
        size_gib: of each.
        volume_type: of each.
        count: how many of them.
        iops: that are provisioned for each, beyond what the type includes.
    """

    size_gib: int = 1
    volume_type: str = "gp3"
    count: int = 1
    iops: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What one run of a probe makes and takes; an upper bound, for the plan and its cost.

    Attributes:
        volumes: that it makes.
        snapshots_gib: the sum of its snapshots' volume sizes.
        copied_gib: the sum of sizes of what it makes with CopyVolumes; AWS charges each copy.
        needs_instance: whether it attaches volumes to ``Lab.instance``.
        seconds: how long it usually takes.
        needs_other: whether it needs ``Lab.other_instance`` too.
    """

    volumes: tuple[VolumeUse, ...] = ()
    snapshots_gib: int = 0
    copied_gib: int = 0
    needs_instance: bool = False
    seconds: float = 5.0
    needs_other: bool = False

    @property
    def deadline_s(self) -> float:
        """After so long a probe that uses this is stopped."""
        return max(_LEAST_S, self.seconds * _PATIENCE)


@dataclass(frozen=True, slots=True)
class Probe:
    """What shows a rule wrong, if it is.

    Attributes:
        run: does it; gets a lab of its own.
        actions: EC2 actions that it calls, such as "CreateVolume". Those by which the lab waits
            and cleans up (Describe…, DeleteVolume, DetachVolume, DeleteSnapshot) may be left out.
        uses: what it makes.
        alone: whether no other probe may run meanwhile: it fills a limit of the whole account.
    """

    run: "Callable[[Lab], Awaitable[Finding]]"
    actions: tuple[str, ...]
    uses: Usage = Usage()
    alone: bool = False

    @property
    def deadline_s(self) -> float:
        """After so long it is stopped."""
        return self.uses.deadline_s
