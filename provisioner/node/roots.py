"""Where the machine's devices and its kernel's files are; tests have folders of their own."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Roots:
    """The mount points of devtmpfs, sysfs and procfs."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
