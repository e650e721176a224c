"""How often each EC2 action may be called: AWS's documented quotas, and what the user overrides.

Source: EC2 developer guide "Request throttling for the Amazon EC2 API" (read 2026-11-21): token
buckets per account, Region and action. AWS raises them on request, per action; which is why the
limiter probes above them and why ``--ec2-rate`` exists.
Not verified: whether mutating actions share a bucket (a comment in aws-ebs-csi-driver says so, the
guide says per action), and in which class a DescribeVolumes by ids falls; the smaller is assumed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.model.errors import Reason, StorageError


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: so many calls at once, then so many a second."""

    burst: float
    per_s: float

    def times(self, factor: float) -> "Rate":
        """This quota, raised by a factor."""
        return Rate(self.burst * factor, self.per_s * factor)


_UNFILTERED = Rate(50, 10)
_READ = Rate(100, 20)
_MUTATE = Rate(50, 5)
_RESOURCE = Rate(100, 5)
_TAGS = Rate(100, 10)

DOCUMENTED: Mapping[str, Rate] = {
    "CreateVolume": _RESOURCE,
    "DeleteVolume": _RESOURCE,
    "CreateSnapshot": _RESOURCE,
    "DeleteSnapshot": _RESOURCE,
    "AttachVolume": _MUTATE,
    "DetachVolume": _MUTATE,
    "ModifyVolume": _MUTATE,
    "CopyVolumes": _MUTATE,
    "CreateTags": _TAGS,
    "DeleteTags": _TAGS,
    "DescribeVolumes": _UNFILTERED,
    "DescribeInstances": _UNFILTERED,
    "DescribeSnapshots": _UNFILTERED,
    "DescribeAvailabilityZones": _READ,
    "DescribeInstanceTypes": _READ,
    "DescribeVolumesModifications": _READ,
    "DescribeVolumeStatus": _READ,
    "EnableFastSnapshotRestores": _MUTATE,
    "DescribeFastSnapshotRestores": _READ,
    "LockSnapshot": _MUTATE,
    "DescribeLockedSnapshots": _READ,
}
_EVERY = "*"
_HELP = (
    "expected ACTION=BURST:PER_S (CreateVolume=300:15), ACTION=xFACTOR or *=xFACTOR, "
    "separated by commas"
)


def documented(action: str) -> Rate:
    """AWS's documented quota of an action; the class it belongs to if it is not listed."""
    known = DOCUMENTED.get(action)
    if known is not None:
        return known
    return _READ if action.startswith("Describe") else _MUTATE


class Rates:
    """The quota to start from, for every action."""

    __slots__ = ("_exact", "_factors")

    def __init__(
        self, exact: Mapping[str, Rate] | None = None, factors: Mapping[str, float] | None = None
    ) -> None:
        self._exact = dict(exact or {})
        self._factors = dict(factors or {})

    def of(self, action: str) -> Rate:
        """The quota of an action: an override, or the documented one times its factor."""
        exact = self._exact.get(action)
        if exact is not None:
            return exact
        factor = self._factors.get(action, self._factors.get(_EVERY, 1.0))
        return documented(action).times(factor)


def parse_rates(text: str | Iterable[str]) -> Rates:
    """Read ``--ec2-rate``: one text with commas, or several texts.

    Raises:
        StorageError: (INVALID_REQUEST) a part is not of the form ACTION=BURST:PER_S or ACTION=xN,
            or is about an action that another part is about.
    """
    exact: dict[str, Rate] = {}
    factors: dict[str, float] = {}
    texts = [text] if isinstance(text, str) else list(text)
    for part in (part.strip() for each in texts for part in each.split(",")):
        if not part:
            continue
        action, equals, quota = (piece.strip() for piece in part.partition("="))
        if not equals or action not in {*DOCUMENTED, _EVERY}:
            known = ", ".join(sorted(DOCUMENTED))
            raise _refused(part, f"the action must be one of {known} or *" if equals else _HELP)
        if action in {*exact, *factors}:
            raise _refused(part, f"{action} is given twice")
        if quota.startswith("x"):
            factors[action] = _positive(part, quota[1:])
        elif action == _EVERY:
            raise _refused(part, "* takes a factor only, as in *=x20")
        else:
            burst, colon, per_s = quota.partition(":")
            if not colon:
                raise _refused(part, _HELP)
            exact[action] = Rate(_positive(part, burst), _positive(part, per_s))
            if exact[action].burst < 1:
                raise _refused(part, "a burst below 1 would never let a call through")
    return Rates(exact, factors)


def _positive(part: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _refused(part, _HELP) from None
    if not 0 < number <= 1e6:  # noqa: PLR2004 -- also refuses NaN and infinity
        raise _refused(part, "numbers must be above 0 and at most 1000000")
    return number


def _refused(part: str, why: str) -> StorageError:
    return StorageError(Reason.INVALID_REQUEST, f"EC2 rate {part!r}: {why}")
