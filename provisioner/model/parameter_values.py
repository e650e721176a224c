"""How the values of a StorageClass's parameters are read: text in, a value or a refusal out.

Every function raises ValueError with the end of a sentence that begins with the value.
"""

import re

from provisioner.model.refusal import RefusedHereError
from provisioner.model.volume_type import DEFAULT_TYPE, LARGEST_NUMBER, VOLUME_TYPES

FILE_SYSTEMS = ("ext4", "ext3", "xfs")
OF_WINDOWS = "ntfs"

# Source: EC2 API CreateVolume, KmsKeyId: a key's id or ARN, an alias or its ARN (2026-11-21).
_KEY = re.compile(
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[A-Za-z0-9/_-]+"
    r"|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+"
    r"|(mrk-)?[0-9A-Fa-f-]{32,36}"
)
_TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "f", "0", "no", "n", "off"})
# Source: EBS user guide "Initialize EBS volumes": 100 to 300 MiB/s (2026-11-21).
_LEAST_RATE_MIBPS = 100


def whole_number(text: str) -> int | None:
    """A number; zero is "not said", as for the stock driver."""
    found = re.fullmatch(r"\+?0*([0-9]+)", text.strip(), re.ASCII)
    if found is None:
        # The stock driver takes less than nothing for nothing.
        negative = re.fullmatch(r"-0*[0-9]{1,9}", text, re.ASCII)
        raise (RefusedHereError if negative else ValueError)("is not a whole number")
    if len(found[1]) > len(str(LARGEST_NUMBER)) or int(found[1]) > LARGEST_NUMBER:
        raise ValueError("is more than EC2 could be asked for")
    return int(found[1]) or None


def rate(text: str) -> int | None:
    """MiB/s of an initialization."""
    number = whole_number(text)
    if number is not None and number < _LEAST_RATE_MIBPS:
        raise ValueError(f"is too slow: EC2 takes {_LEAST_RATE_MIBPS} MiB/s and more")
    return number


def boolean(text: str) -> bool | None:
    """The usual spellings of yes and no; the stock driver takes any other text for no.

    Empty is "not said": templates of charts leave such values behind.
    """
    lowered = text.strip().lower()
    if not lowered:
        return None
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise RefusedHereError('is neither "true" nor "false"')


def volume_type(text: str) -> str:
    """An EBS volume type in any case of letters."""
    lowered = text.strip().lower() or DEFAULT_TYPE
    if lowered not in VOLUME_TYPES:
        raise ValueError(f"is no EBS volume type; there are {', '.join(VOLUME_TYPES)}")
    return lowered


def key(text: str) -> str | None:
    """A KMS key as EC2 takes it; "" is none."""
    stripped = text.strip()
    if stripped and not _KEY.fullmatch(stripped):
        raise ValueError("is no KMS key: neither an ARN, nor alias/NAME, nor a key's id")
    return stripped or None


def file_system(text: str) -> str | None:
    """A file system in any case of letters; "" is none.

    The stock driver makes volumes for any text; raw devices of them work.
    """
    lowered = text.strip().lower()
    if lowered == OF_WINDOWS:
        raise RefusedHereError(
            "is for Windows nodes, whose volumes nothing here can format or mount; use "
            f"{', '.join(FILE_SYSTEMS)}, or aws-ebs-csi-driver for claims of Windows pods"
        )
    if lowered and lowered not in FILE_SYSTEMS:
        known = ", ".join(FILE_SYSTEMS)
        raise RefusedHereError(f"is no file system that can be made; there are {known}")
    return lowered or None


def word(text: str) -> str | None:
    """A number as ``mkfs`` takes it, perhaps with a unit; "" is none."""
    stripped = text.strip()
    if not re.fullmatch(r"[A-Za-z0-9]*", stripped):
        raise ValueError("is neither a number nor a number with a unit")
    return stripped or None


def ignored(_: str) -> None:
    """Read nothing: what it says has no effect, or is read elsewhere."""
