"""Token buckets, one per account, region and API action, as AWS documents them.

Source: docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html, read 2026-11-21. Whether a
DescribeVolumes with nothing but ids counts as "unfiltered and unpaginated" is not said there; we
take the stricter reading.
"""

from dataclasses import dataclass, field
from typing import Final

UNFILTERED: Final = ":unfiltered"
_DEFAULT: Final = "*"
_DESCRIBE_DEFAULT: Final = "Describe*"

# action -> (burst, refill per second)
DOCUMENTED: Final[dict[str, tuple[float, float]]] = {
    "CreateVolume": (100, 5),
    "DeleteVolume": (100, 5),
    "CreateSnapshot": (100, 5),
    "CreateSnapshots": (100, 5),
    "DeleteSnapshot": (100, 5),
    "TerminateInstances": (100, 5),
    "CreateTags": (100, 10),
    "DeleteTags": (100, 10),
    "RunInstances": (5, 2),
    _DESCRIBE_DEFAULT: (100, 20),
    f"DescribeVolumes{UNFILTERED}": (50, 10),
    f"DescribeInstances{UNFILTERED}": (50, 10),
    f"DescribeSnapshots{UNFILTERED}": (50, 10),
    _DEFAULT: (50, 5),
}


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


@dataclass(slots=True)
class Throttle:
    """All buckets; no rates means no throttling."""

    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    _buckets: dict[tuple[str, str], _Bucket] = field(default_factory=dict)

    def admit(self, action: str, *, filtered: bool, scope: str, now_s: float) -> bool:
        """Take a token; False means the call is refused, and costs nothing."""
        if not self.rates:
            return True
        name = f"{action}{UNFILTERED}"
        if filtered or name not in self.rates:
            name = action  # one bucket, where the two are not told apart
        rate = self._rate_of(name, action)
        if rate is None:
            return True
        burst, per_s = rate
        bucket = self._buckets.setdefault((scope, name), _Bucket(burst, now_s))
        bucket.tokens = min(burst, bucket.tokens + max(0.0, now_s - bucket.filled_at) * per_s)
        bucket.filled_at = now_s
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _rate_of(self, name: str, action: str) -> tuple[float, float] | None:
        kind = _DESCRIBE_DEFAULT if action.startswith(("Describe", "Get", "List")) else _DEFAULT
        for key in (name, action, kind, _DEFAULT):
            if key in self.rates:
                return self.rates[key]
        return None


def parse(spec: object) -> Throttle:
    """Read ``documented``, ``none``, ``documentedx20``, ``x20`` or ``{action: [burst, per_s]}``.

    Raises: ValueError for anything else.
    """
    match spec:
        case "none":
            return Throttle()
        case str():
            factor = spec.removeprefix("documented")
            times = 1.0 if factor == "" else float(factor.removeprefix("x"))
            return Throttle({a: (b * times, r * times) for a, (b, r) in DOCUMENTED.items()})
        case dict():
            return Throttle({str(a): (float(b), float(r)) for a, (b, r) in spec.items()})
        case _:
            raise ValueError(f"throttle must be documented, none, xN or a mapping, not {spec!r}")
