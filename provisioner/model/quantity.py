"""Kubernetes quantities, as whole bytes.

``kubernetes.utils.quantity`` loads the whole synchronous client and accepts ``NaN`` and ``1_000``,
so this is ours; ``tests/cluster`` holds it to the API server.
Source: k8s.io/apimachinery/pkg/api/resource/quantity.go (v0.36).
"""

import re

# Go caps a quantity at the largest int64 instead of refusing it.
LARGEST = 2**63 - 1

_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NO_MATTER = 40  # powers of ten beyond which a value is capped, or rounds up to one


def parse_bytes(text: str) -> int:
    """Read a quantity as bytes, rounded up, capped at 2^63-1.

    Raises:
        ValueError: the text is not a quantity, or is negative.
    """
    found = _FORM.fullmatch(text)
    if found is None or not (found["whole"] or found["fraction"]):
        raise ValueError(f"{text!r} is not a quantity such as 30Gi")
    fraction = (found["fraction"] or "").rstrip("0")
    digits = int((found["whole"] or "0") + fraction)
    if found["sign"] == "-" and digits:
        raise ValueError(f"{text!r} is negative")
    if not digits:
        return 0
    suffix, exponent = found["suffix"] or "", _clamped(found["exponent"])
    ten = _DECIMAL.get(suffix, exponent) - len(fraction)
    number = digits << _BINARY.get(suffix, 0)
    scale: int = 10 ** abs(ten)
    size_bytes = number * scale if ten >= 0 else -(-number // scale)
    return min(size_bytes, LARGEST)


def _clamped(exponent: str | None) -> int:
    if not exponent:
        return 0
    sign, digits = (-1 if exponent[0] == "-" else 1), exponent.lstrip("+-").lstrip("0")
    return sign * (int(digits or "0") if len(digits) <= 2 else _NO_MATTER * 3)  # noqa: PLR2004 -- two digits
