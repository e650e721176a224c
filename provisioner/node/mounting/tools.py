"""What stages, publishes and expansions share; made once for each process."""

from dataclasses import dataclass
from pathlib import Path

from provisioner.node.devices.lookup import Devices
from provisioner.node.formatting.format import Consents, Formatter
from provisioner.node.instance.kube import NodeKube
from provisioner.node.instance.metadata import Metadata
from provisioner.node.mounting.attached_here import AttachedHere
from provisioner.node.mounting.check import Checks
from provisioner.node.mounting.flush import FLUSH_S, Flushes
from provisioner.node.mounting.growth import Growth
from provisioner.node.mounting.mounts import Mounts
from provisioner.node.mounting.unmounted_growth import UnmountedGrowth, is_needed
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.operations import Operations
from provisioner.node.runtime.paths import Paths
from provisioner.node.runtime.programs import Programs
from provisioner.node.runtime.sysfs import SystemDirs


@dataclass(frozen=True, slots=True)
class Tools:
    """All of them.

    Attributes:
        operations: one at a time for each volume.
        programs: of the machine.
        blocking: calls that may hang.
        devices: find a volume's device.
        attached_here: refuses device names of another instance.
        formatter: formats blank volumes.
        mounts: the mount table, mount and umount.
        checks: check file systems before their mount.
        growth: grows mounted file systems.
        unmounted_growth: grows ext before its mount, where the kernel would not grow it after.
        paths: the kubelet's paths.
        flushes: flush file systems to their disks.
        dirs: where devices are.
    """

    operations: Operations
    programs: Programs
    blocking: BlockingCalls
    devices: Devices
    attached_here: AttachedHere
    formatter: Formatter
    mounts: Mounts
    checks: Checks
    growth: Growth
    unmounted_growth: UnmountedGrowth
    paths: Paths
    flushes: Flushes
    dirs: SystemDirs

    @classmethod
    def made(
        cls,
        dirs: SystemDirs,
        kubelet_dir: Path,
        *,
        kube: NodeKube,
        metadata: Metadata,
        consents: Consents,
        programs: Programs,
        blocking: BlockingCalls,
        is_legacy_xfs: bool = False,
        flush_s: float = FLUSH_S,
    ) -> "Tools":
        """Make all of them."""
        devices = Devices(dirs, blocking)
        mounts = Mounts(programs, blocking, dirs)
        checks = Checks(programs, devices, blocking)
        return cls(
            operations=Operations(),
            programs=programs,
            blocking=blocking,
            devices=devices,
            attached_here=AttachedHere(kube, metadata, mounts, blocking),
            formatter=Formatter(programs, devices, consents, blocking, is_legacy_xfs=is_legacy_xfs),
            mounts=mounts,
            checks=checks,
            growth=Growth(programs, devices, blocking),
            unmounted_growth=UnmountedGrowth(programs, devices, checks, is_needed=is_needed(dirs)),
            paths=Paths(blocking, kubelet_dir),
            flushes=Flushes(programs, mounts, timeout_s=flush_s),
            dirs=dirs,
        )
