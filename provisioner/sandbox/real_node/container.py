"""A program in the view that the DaemonSet gives the node plugin: ``python -m …container ARGV...``.

It has a mount namespace of its own, where all is read-only but /dev, /proc, /sys and the kubelet's
folder; only of the latter are mounts shared with the node, both ways. It sees more of the machine
than the image holds, and nothing of what the node's containers have mounted. (What sets up a
container of the node's own could do the same, but its image would have to be built first.)

Source: manifests/node/daemonset.yaml (privileged, readOnlyRootFilesystem, its two volumes), and
runc 1.1 libcontainer/rootfs_linux.go for what these become. Linux 5.12 for mount_setattr. The
standard library only.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from provisioner.sandbox.real_node import syscalls

KUBELET: Final = "/var/lib/kubelet"
_WRITABLE: Final = ("/dev", "/proc", "/sys")
_OF_THE_NODE: Final = ("/run", "/var/lib")
_OF_CONTAINERS: Final = ("/run/containerd", "/var/lib/containerd", KUBELET)
_MOUNT_POINT: Final = 4  # the field of a line of mountinfo: proc_pid_mountinfo(5)


def confine() -> None:
    """Give the calling process that view, for good.

    Raises:
        OSError: the kernel refuses.
    """
    syscalls.unshare(syscalls.CLONE_NEWNS)
    Path(KUBELET).mkdir(parents=True, exist_ok=True)
    # Attached nowhere for now, it stays shared when nothing else does.
    shared = syscalls.clone_mounts(KUBELET)
    # What the machine unmounts is to go here too, but nothing is to come from the node's pods.
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
    for own in _OF_THE_NODE:
        syscalls.mount("none", own, "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    _forget_containers()
    syscalls.set_read_only("/", read_only=True)
    no_programs = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", no_programs)  # that of our own pid namespace
    for path in _WRITABLE:
        syscalls.set_read_only(path, read_only=False)
    syscalls.attach_mounts(shared, KUBELET)
    os.close(shared)


def _forget_containers() -> None:
    """Drop our copies of what the node has mounted for pods: it is never told of to us any more.

    A copy would keep a volume's file system alive that is unmounted everywhere else.
    """
    for line in reversed(Path("/proc/self/mountinfo").read_bytes().splitlines()):
        path = line.split()[_MOUNT_POINT].decode("unicode_escape")
        if any(path.startswith(f"{folder}/") for folder in _OF_CONTAINERS):
            with suppress(FileNotFoundError):  # went while it was shared, or with one above it
                syscalls.unmount_lazily(path)


if __name__ == "__main__":
    confine()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 -- what the agent says, with no shell
