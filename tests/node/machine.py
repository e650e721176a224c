"""A machine for tests: real loop devices that look like EBS volumes, and a kubelet's folder.

A device is a node of a loop device under the name that NVMe disks have, with udev's link; sysfs is
a folder with its serial. All that is mounted below the folder, and the loop devices, go at the end.
"""

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.model.errors import StorageError
from provisioner.node.formatting.format import Consents
from provisioner.node.formatting.rules import Consent
from provisioner.node.instance.documents import AttachmentView
from provisioner.node.mounting.expand import Expander, Usages
from provisioner.node.mounting.flush import FLUSH_S
from provisioner.node.mounting.publish import Publisher
from provisioner.node.mounting.stage import Stager
from provisioner.node.mounting.tools import Tools
from provisioner.node.requests import AccessMode, Capability, Publish, Stage
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.programs import PATH, Programs
from provisioner.node.runtime.sysfs import SystemDirs

INSTANCE = "i-0123456789abcdef0"
VOLUME = "vol-0123456789abcdef0"
OTHER = "vol-0fedcba9876543210"
MIB = 1024 * 1024
_PROGRAMS = ("losetup", "mkfs.ext4", "mkfs.xfs", "mount", "umount", "resize2fs", "xfs_growfs")


def run(*argv: str | Path) -> str:
    return subprocess.run(
        [str(word) for word in argv], check=True, capture_output=True, text=True, timeout=120
    ).stdout


def why_not() -> str:
    """Why this machine cannot have the tests; "" if it can."""
    if os.geteuid() != 0:
        return "loop devices and mounts need root"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices here"
    missing = [name for name in _PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not on this machine: {', '.join(missing)}" if missing else ""


def why_no_ext_growth() -> str:
    """Why the kernel lets nobody here grow a mounted ext file system; "" if it does."""
    (effective,) = (
        int(line.split()[1], 16)
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff:")
    )
    has_sys_resource = effective >> 24 & 1
    return "" if has_sys_resource else "growing a mounted ext4 needs CAP_SYS_RESOURCE"


def damage(node: Path, *, mended_by_itself: bool) -> None:
    """Break an ext4 that has been in use."""
    run("mkfs.ext4", "-q", "-b", "4096", node)
    command = "ssv free_blocks_count 1" if mended_by_itself else "clri <2>"
    for each in (command, "ssv mnt_count 1", "ssv mtime now", "ssv state 2"):
        run("debugfs", "-w", "-R", each, node)


@dataclass(frozen=True)
class Disk:
    """A volume that is attached."""

    volume_id: str
    image: Path
    loop: str
    node: Path
    number: str

    def grow(self, size_mib: int) -> None:
        os.truncate(self.image, size_mib * MIB)
        run("losetup", "-c", self.loop)


class NoConsents(Consents):
    """No persistent volume lets itself be formatted against doubt."""

    def __init__(self) -> None:
        pass

    async def of(self, volume_id: str) -> Consent:
        return Consent("pv-1")


class Cluster:
    """The attachments to the node, as far as the API server tells, and which instance it is."""

    def __init__(self) -> None:
        self.attachments: dict[str, AttachmentView] = {}
        self.asked: list[str] = []
        self.trouble: StorageError | None = None

    async def attachment(self, volume_id: str) -> AttachmentView | None:
        self.asked.append(volume_id)
        if self.trouble is not None:
            raise self.trouble
        return self.attachments.get(volume_id)

    async def instance_id(self) -> str:
        return INSTANCE


class Machine:
    """One node, with all parts of the plugin that work on it; or a second process on one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dirs = SystemDirs(dev=folder / "dev", sys=folder / "sys")
        self.kubelet = folder / "kubelet"
        self.bin = folder / "bin"
        for each in (self.dirs.dev / "disk/by-id", self.dirs.sys / "dev/block"):
            each.mkdir(parents=True, exist_ok=True)
        self.kubelet.mkdir(exist_ok=True)
        self.bin.mkdir(exist_ok=True)
        self.cluster: Any = Cluster()
        self._loops: list[str] = []
        self._attached = 0
        self.restart()

    def restart(self, *, flush_s: float = FLUSH_S, release_s: float = 1.0) -> None:
        """The plugin's process starts anew: nothing is remembered but what is on the machine."""
        self.blocking = BlockingCalls(timeout_s=5)
        self.tools = tools = Tools.made(
            self.dirs,
            self.kubelet,
            kube=self.cluster,
            metadata=self.cluster,
            consents=NoConsents(),
            programs=Programs(f"{self.bin}:{PATH}"),
            blocking=self.blocking,
            flush_s=flush_s,
        )
        self.programs, self.operations = tools.programs, tools.operations
        self.devices, self.mounts, self.growth = tools.devices, tools.mounts, tools.growth
        self.stager = Stager(tools, release_s=release_s)
        self.publisher = Publisher(tools)
        self.expander = Expander(tools)
        self.usages = Usages(tools)

    def attach(self, volume_id: str = VOLUME, *, size_mib: int = 512, name: str = "") -> Disk:
        """Attach a volume: a new one, or the one that was detached."""
        image = self.folder / volume_id
        self._attached += 1
        if not image.exists():
            image.touch()
            os.truncate(image, size_mib * MIB)
        loop = run("losetup", "-f", "--show", image).strip()
        self._loops.append(loop)
        status = Path(loop).stat()
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
        node = self.dirs.dev / (name or f"nvme{self._attached}n1")
        os.mknod(node, stat.S_IFBLK | 0o600, status.st_rdev)
        serial = self.dirs.sys / f"dev/block/{major}:{minor}/device/serial"
        serial.parent.mkdir(parents=True)
        serial.write_text(volume_id.replace("-", "") + "\n")
        self.link(volume_id).symlink_to(node)
        return Disk(volume_id, image, loop, node, f"{major}:{minor}")

    def detach(self, disk: Disk, *, frees_number: bool = True) -> None:
        """Take a volume away, mounted or not; another one may get its number, or surely not."""
        self.link(disk.volume_id).unlink()
        disk.node.unlink()
        shutil.rmtree(self.dirs.sys / "dev/block" / disk.number)
        if frees_number:
            run("losetup", "-d", disk.loop)
            self._loops.remove(disk.loop)

    def link(self, volume_id: str) -> Path:
        name = f"nvme-Amazon_Elastic_Block_Store_{volume_id.replace('-', '')}"
        return self.dirs.dev / "disk/by-id" / name

    def known_by_its_name(self, disk: Disk) -> None:
        """Its folder in sysfs is a link to that with the kernel's name for it, as it really is.

        So the kernel's folders of file systems are found, too.
        """
        if not (self.dirs.sys / "fs").exists():
            (self.dirs.sys / "fs").symlink_to("/sys/fs")
        by_number = self.dirs.sys / "dev/block" / disk.number
        own = self.dirs.sys / "devices" / disk.loop.rpartition("/")[2]
        own.parent.mkdir(exist_ok=True)
        by_number.rename(own)
        by_number.symlink_to(own)

    def fake(self, name: str, script: str) -> None:
        """A program of the test's own in front of the machine's."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def real(self, name: str) -> str:
        found = shutil.which(name, path=PATH)
        assert found is not None
        return found

    def mounts_below(self) -> list[mount_table_rules.Mount]:
        table = mount_table_rules.parse(Path("/proc/self/mountinfo").read_bytes())
        return [mount for mount in table if mount.path.startswith(f"{self.folder}/")]

    def clean(self) -> None:
        for mount in reversed(self.mounts_below()):
            run("umount", mount.path)
        for loop in self._loops:
            run("blockdev", "--setrw", loop)  # it is the next one's, too
            run("losetup", "-d", loop)

    def staging(self, volume_id: str = VOLUME) -> Path:
        return self.kubelet / "plugins" / volume_id / "globalmount"

    def target(self, pod: str = "pod-1") -> Path:
        return self.kubelet / "pods" / pod / "volumes" / "mount"

    def stage(self, volume_id: str = VOLUME, *, origin: str = "blank", **asked: Any) -> Stage:
        return Stage(
            volume_id=volume_id,
            staging_path=str(self.staging(volume_id)),
            capability=capability(**asked),
            publish_context={"devicePath": "/dev/xvdaa", "ebs-provisioner.io/made-from": origin},
            volume_context={},
        )

    def publish(
        self,
        volume_id: str = VOLUME,
        *,
        pod: str = "pod-1",
        read_only: bool = False,
        **asked: Any,
    ) -> Publish:
        return Publish(
            volume_id=volume_id,
            staging_path=str(self.staging(volume_id)),
            target_path=str(self.target(pod)),
            capability=capability(**asked),
            read_only=read_only,
            publish_context={"devicePath": "/dev/xvdaa"},
            volume_context={},
        )


def capability(
    *,
    is_block: bool = False,
    file_system: str = "",
    flags: tuple[str, ...] = (),
    mode: AccessMode = AccessMode.SINGLE_NODE_WRITER,
) -> Capability:
    return Capability(is_block, file_system, flags, mode)
