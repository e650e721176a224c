"""Device names under which EC2 attaches volumes.

AttachVolume demands a name; on Nitro instances it is only a label (the guest sees NVMe devices in
any order), on Xen ones it is the device. Which names are good, and in which order they are given
away, follows aws-ebs-csi-driver v1.64 (127 names; without xvda and xvdc[a-z], which some Windows
instances cannot use). Source: EC2 user guide "Device names", read 2026-11-21.
"""

from collections.abc import Collection, Mapping
from string import ascii_lowercase

_LETTERS = ascii_lowercase
DEVICE_NAMES: tuple[str, ...] = (
    *(f"/dev/xvda{letter}" for letter in _LETTERS),
    *(f"/dev/xvdb{letter}" for letter in _LETTERS),
    *(f"/dev/xvdd{letter}" for letter in _LETTERS[:24]),
    *(f"/dev/xvd{letter}" for letter in _LETTERS[1:]),
    *(f"/dev/sd{letter}" for letter in _LETTERS[1:]),
    "/dev/sda2",
)
_ORDER = {name: place for place, name in enumerate(DEVICE_NAMES)}


def choose(taken: Collection[str], freed_at_s: Mapping[str, float]) -> str | None:
    """The name for the next volume of an instance; None if all are taken.

    A name that was never used comes first, then the one freed longest ago: using a name again
    right after its volume was detached can leave the attachment stuck. A name that a Xen kernel
    could take for another one in use (sdf for xvdf) is the last resort.

    Args:
        taken: names in use, on their way, or known to be refused.
        freed_at_s: when names were freed, on any one clock.
    """
    suffixes = {_suffix(name) for name in taken}
    free = [name for name in DEVICE_NAMES if name not in taken]
    return min(
        free,
        key=lambda name: (
            _suffix(name) in suffixes,
            freed_at_s.get(name, float("-inf")),
            _ORDER[name],
        ),
        default=None,
    )


def _suffix(name: str) -> str:
    bare = name.removeprefix("/dev/")
    return bare.removeprefix("xvd") if bare.startswith("xvd") else bare.removeprefix("sd")
