"""What a machine needs so that a real node runs on it."""

from __future__ import annotations

import os
import re
import shutil
import struct
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where a node's programs are looked for; a user's own PATH may lack the folders of root's."""

PROGRAMS: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "nft": "nftables",
}
"""Programs by the packages of Debian that bring them."""

CNI_PLUGINS: Final = ("bridge", "host-local", "loopback", "ptp")
"""What gives pods their network, in a folder that is in no PATH."""

CNI_PACKAGE: Final = "containernetworking-plugins"

CNI_FOLDERS: Final[tuple[str, ...]] = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
"""Where Debian and Ubuntu, Kubernetes' own packages, and Fedora have them."""

_LINUX: Final = (5, 13)  # of kube-proxy's nftables; 5.12 has mount_setattr(2)
_PT_INTERP: Final = 3
_ELF64: Final = b"\x7fELF\x02\x01"


def missing(
    path: str = PATH,
    *,
    user_id: int | None = None,
    system: str = sys.platform,
    release: str = "",
) -> str:
    """Return why no real node can run here, in a sentence without its stop; "" if one can.

    Args:
        path: where programs are looked for.
        user_id: who we are, if not the process's own user.
        system: where we are, as ``sys.platform``.
        release: of its kernel, if not the running one's.
    """
    if system != "linux":
        return "a real node needs Linux"
    if not _is_new_enough(release or os.uname().release):
        return f"a real node needs Linux {'.'.join(map(str, _LINUX))} or newer"
    if (os.geteuid() if user_id is None else user_id) != 0:
        return "a real node needs root: it mounts, and creates namespaces and devices"
    packages = {package for name, package in PROGRAMS.items() if not shutil.which(name, path=path)}
    busybox = shutil.which("busybox", path=path)
    if busybox and not is_static(Path(busybox)):
        packages.add("busybox-static")
    if not cni_plugins():
        packages.add(CNI_PACKAGE)
    if packages:
        return f"a real node needs programs: apt install {' '.join(sorted(packages))}"
    if find_spec("grpc") is None:
        return "a real node needs the node plugin's extra: pip install 'ebs-provisioner[node]'"
    for needed, why in (
        ("/dev/loop-control", "loop devices, which this kernel or container does not have"),
        ("/sys/fs/cgroup", "cgroups, which are not mounted here"),
    ):
        if not os.access(needed, os.W_OK):
            return f"a real node needs {why} ({needed})"
    return ""


def cni_plugins() -> str:
    """Return the first folder that holds all CNI plugins that a node needs; "" if none does."""
    for folder in CNI_FOLDERS:
        if all(os.access(Path(folder, name), os.X_OK) for name in CNI_PLUGINS):
            return folder
    return ""


def all_missing(path: str = PATH, *, user_id: int | None = None, system: str = sys.platform) -> str:
    """Return the same, with what root would still have to install where we are not root."""
    ours = missing(path, user_id=user_id, system=system)
    roots = missing(path, user_id=0, system=system)
    return "; ".join(dict.fromkeys(why for why in (ours, roots) if why))


def _is_new_enough(release: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is None or tuple(map(int, found.groups())) >= _LINUX


def is_static(program: Path) -> bool:
    """Tell whether a 64-bit ELF program runs where there are no libraries.

    Source: ELF-64 object file format, version 1.5: a dynamic one names its interpreter.
    """
    with suppress(OSError, struct.error):
        content = program.read_bytes()
        if content.startswith(_ELF64):
            (offset,) = struct.unpack_from("<Q", content, 32)
            size, count = struct.unpack_from("<HH", content, 54)
            kinds = [struct.unpack_from("<I", content, offset + n * size)[0] for n in range(count)]
            return _PT_INTERP not in kinds
    return False
