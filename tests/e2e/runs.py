"""Which tests are run with which class, and how many at a time."""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.e2e import expected
from tests.e2e.claims import Variation

PROCESSES = 8
"""On two cores: a test mostly waits, and eight of them keep these half busy."""

_ALL = "External Storage"
_NEVER = expected.never_run()
_DISRUPTIVE = r"\[Disruptive\]"
_SLOW = r"\[Slow\]|\[Serial\]|\[Disruptive\]"

# The file system is ext4 where the class says nothing. The kernel grows a mounted one only for
# CAP_SYS_RESOURCE (Linux, fs/ext4/ioctl.c, EXT4_IOC_RESIZE_FS); before the mount the node plugin
# grows it on any machine.
_GROWS_MOUNTED = (
    r"(Dynamic PV|Generic Ephemeral-volume) \(default fs\).*"
    r"(should resize volume when PVC is edited while pod is using it|support expansion of pvcs)"
)
# Without a pod, WaitForFirstConsumer never binds the claims: the first test then fails by the API
# server's rule, and the second passes without a volume.
_UNBOUND = r"volume-modify-stress"
_SCALE = r"lifecycle-performance|pvc-deletion-performance"
_SHARED = r"block volmode.*access the single volume from pods on different node"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the test binary.

    Attributes:
        name: of its logs.
        focus, skip: regular expressions on the full names of tests.
        processes: how many tests at a time.
        timeout_s: after which it is ended, far beyond what it takes.
    """

    name: str
    variation: Variation
    focus: str
    skip: str
    processes: int = PROCESSES
    timeout_s: float = 2400.0


def plan(*, quick: bool, grows_mounted_ext4: bool) -> tuple[Run, ...]:
    """All runs, one after the other.

    Args:
        quick: only what is neither Slow nor Serial nor Disruptive, and needs no other class.
        grows_mounted_ext4: whether the machine lets us; where not, xfs has to show it.
    """
    unable = "" if grows_mounted_ext4 else _GROWS_MOUNTED
    if quick:
        return (Run("plain", Variation.PLAIN, _ALL, _any(_SLOW, _NEVER, unable)),)
    elsewhere = _any(_UNBOUND, _SCALE, _SHARED)
    return (
        Run("plain", Variation.PLAIN, _ALL, _any(_DISRUPTIVE, _NEVER, elsewhere, unable)),
        Run("xfs", Variation.XFS, _GROWS_MOUNTED, _NEVER),
        Run("immediate", Variation.IMMEDIATE, _any(_UNBOUND, _SCALE), _NEVER),
        Run("multi-attach", Variation.MULTI_ATTACH, _SHARED, _NEVER),
        # They stop kubelets, which other tests on the same node would notice.
        Run("disruptive", Variation.PLAIN, rf"{_ALL}.*{_DISRUPTIVE}", _NEVER, processes=1),
    )


def part(names: Iterable[str], number: int, count: int) -> list[str]:
    """The tests of one of ``count`` parts of equal size, always the same ones; from 1 on."""
    return sorted(name for name in names if zlib.crc32(name.encode()) % count == number - 1)


def rotated(commit: str, count: int) -> int:
    """The number of the part that is run for a commit: the same each time, each as often."""
    return zlib.crc32(commit.encode()) % count + 1


def exactly(names: Sequence[str]) -> str:
    """A regular expression of Go for just these names, which follow the name of the suite."""
    return f" ({'|'.join(map(re.escape, names))})$"


def _any(*expressions: str) -> str:
    return "|".join(each for each in expressions if each)
