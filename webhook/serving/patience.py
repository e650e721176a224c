"""How long the API server waits for an answer, as it says in the query of its call.

Source: Kubernetes 1.36, ``?timeout=5s``: the time left, rounded up to a whole second and written as
a Go duration (time.Duration.String).
"""

import re

# What a webhook configuration has without timeoutSeconds, and the most that it can have.
DEFAULT_S = 10.0
MOST_S = 30.0

_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = r"(\d{1,9}(?:\.\d{0,9})?)(h|ms|m|s|us|µs|ns)"
_DURATION = re.compile(f"(?:{_PART})+", re.ASCII)
_PARTS = re.compile(_PART, re.ASCII)


def seconds(timeout: str) -> float:
    """The time named by ``timeout``, at most 30 s; 10 s when it names none or is no duration."""
    if not _DURATION.fullmatch(timeout):
        return DEFAULT_S
    named = sum(float(number) * _UNITS_S[unit] for number, unit in _PARTS.findall(timeout))
    return min(named, MOST_S)
