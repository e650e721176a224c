"""What a real node has of its own: network, /dev, /run, /var/lib, /var/log and /sys/dev/block.

All else is the machine's. (/sys/class/net shows the machine's interfaces, too.) The mounts
belong to one mount namespace, so nothing of them is seen outside, and all are gone when its last
process is; so is the network. The standard library only: the agent uses it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from provisioner.sandbox.real_node.syscalls import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_REC,
    MS_SHARED,
    MS_SLAVE,
    mount,
    unshare,
)

_DEVICES: Final = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "kmsg": (1, 11),  # the kubelet does not start without
    "tty": (5, 0),
    "fuse": (10, 229),
    "loop-control": (10, 237),
}
"""Character devices (Linux, Documentation/admin-guide/devices.txt); no disk of the machine's."""

_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1
_IFF_RUNNING: Final = 0x40

_LOOPS: Final = 256
_LOOP_MAJOR: Final = 7
_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}

_OWN_FOLDERS: Final = ("/var/lib", "/var/log")
_HIDDEN: Final = ("/dev", "/run", *_OWN_FOLDERS)

_SETTINGS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet writes to /proc/sys unless it is there (pkg/kubelet/cm, setupKernelTunables)."""


def folder_of_devices(folder: Path) -> Path:
    """Return what a node whose files are in ``folder`` has as /sys/dev/block."""
    return folder / "sys-dev-block"


def prepare(folder: Path) -> None:
    """Make the folders that a node has of its own; the processes outside may fill them."""
    for own in _OWN_FOLDERS:
        _copy_of(folder, own).mkdir(parents=True, exist_ok=True)
    devices = folder_of_devices(folder)
    devices.mkdir(exist_ok=True)
    for link in Path("/sys/dev/block").iterdir():
        copy = devices / link.name
        if not copy.is_symlink() and not copy.exists():
            copy.symlink_to(link.readlink())


def enter(folder: Path, visible: Sequence[str]) -> None:
    """Give the calling process the namespace of a node, for good. It has to be pid 1 of its own.

    Args:
        folder: of the node, as ``prepare`` has left it.
        visible: paths that stay what they are, wherever they are.

    Raises:
        OSError: the kernel refuses a mount.
    """
    unshare(CLONE_NEWNS | CLONE_NEWNET)
    _make_network()
    # What the machine unmounts goes here too: in a copy that stayed, its disk would be in use.
    mount("none", "/", "", MS_REC | MS_SLAVE)
    # Found by descriptors once something else is mounted over them.
    kept = [(path, os.open(path, os.O_PATH)) for path in _hidden(visible)]
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _keep_settings(folder)
    _make_dev()
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for own in _OWN_FOLDERS:
        mount(str(_copy_of(folder, own)), own, "", MS_BIND)
    mount(str(folder_of_devices(folder)), "/sys/dev/block", "", MS_BIND)
    for path, descriptor in kept:
        Path(path).mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", path, "", MS_BIND | MS_REC)
        os.close(descriptor)
    # Or no pod would see what the node plugin mounts, were it to run in a pod.
    mount("none", "/", "", MS_REC | MS_SHARED)


def _make_network() -> None:
    """Bring the loopback up, and forward for pods; the sandbox brings the node's interface.

    Source: Linux 6.1 include/uapi/linux/if.h, struct ifreq; netdevice(7).
    """
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # of the namespace of who opens it
    up = struct.pack("16sH22x", b"lo", _IFF_UP | _IFF_RUNNING)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, up)


def _copy_of(folder: Path, own: str) -> Path:
    return folder / own.strip("/").replace("/", "-")


def _hidden(visible: Sequence[str]) -> Iterator[str]:
    for each in sorted({os.path.realpath(path) for path in visible}):
        if any(each == hidden or each.startswith(f"{hidden}/") for hidden in _HIDDEN):
            yield each


def _keep_settings(folder: Path) -> None:
    """Let a kubelet find the kernel's settings as it wants them: they are the whole machine's."""
    for name, value in _SETTINGS.items():
        setting = folder / "settings" / name
        setting.parent.mkdir(parents=True, exist_ok=True)
        setting.write_text(f"{value}\n")
        mount(str(setting), f"/proc/sys/{name}", "", MS_BIND)


def _make_dev() -> None:
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name, numbers in _DEVICES.items():
        _make_node(name, stat.S_IFCHR | 0o666, *numbers)
    for number in range(_LOOPS):
        _make_node(f"loop{number}", stat.S_IFBLK | 0o660, _LOOP_MAJOR, number)
    for name, target in _LINKS.items():
        Path("/dev", name).symlink_to(target)
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"),
        ("shm", "tmpfs", "mode=1777"),
    ):
        Path("/dev", name).mkdir()
        mount(kind, f"/dev/{name}", kind, MS_NOSUID | MS_NOEXEC, options)


def _make_node(name: str, mode: int, major: int, minor: int) -> None:
    path = Path("/dev", name)
    os.mknod(path, mode, os.makedev(major, minor))
    path.chmod(stat.S_IMODE(mode))  # whatever the umask
