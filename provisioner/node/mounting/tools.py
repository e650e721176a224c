"""What the plugin works with on its machine; made once a process."""

from dataclasses import dataclass
from pathlib import Path

from provisioner.node.devices.lookup import Devices
from provisioner.node.formatting.format import Consents, Formatter
from provisioner.node.instance.kube import NodeKube
from provisioner.node.instance.metadata import Metadata
from provisioner.node.mounting.attached_here import AttachedHere
from provisioner.node.mounting.flush import FLUSH_S, Flushes
from provisioner.node.mounting.growth import Growth
from provisioner.node.mounting.mounts import Mounts
from provisioner.node.runtime.blocking import Patience
from provisioner.node.runtime.operations import Operations
from provisioner.node.runtime.paths import Paths
from provisioner.node.runtime.programs import Programs
from provisioner.node.runtime.sysfs import Roots


@dataclass(frozen=True, slots=True)
class Tools:
    """What stages, publishes and growths share.

    Attributes:
        operations: one at a time per volume.
        programs: the machine's own.
        patience: calls what may hang.
        devices: find a volume's.
        attached_here: refuses one that only has its name, of another instance.
        formatter: makes a file system where there surely is nothing.
        mounts: what is mounted.
        growth: grows file systems.
        paths: the kubelet's paths.
        flushes: bring to the disk what was written.
        roots: where devices are.
    """

    operations: Operations
    programs: Programs
    patience: Patience
    devices: Devices
    attached_here: AttachedHere
    formatter: Formatter
    mounts: Mounts
    growth: Growth
    paths: Paths
    flushes: Flushes
    roots: Roots

    @classmethod
    def made(
        cls,
        roots: Roots,
        kubelet_dir: Path,
        *,
        kube: NodeKube,
        metadata: Metadata,
        consents: Consents,
        programs: Programs,
        patience: Patience,
        is_legacy_xfs: bool = False,
        flush_s: float = FLUSH_S,
    ) -> "Tools":
        """All of them, made."""
        devices = Devices(roots, patience)
        mounts = Mounts(programs, patience, roots)
        return cls(
            operations=Operations(),
            programs=programs,
            patience=patience,
            devices=devices,
            attached_here=AttachedHere(kube, metadata, mounts, patience),
            formatter=Formatter(programs, devices, consents, patience, is_legacy_xfs=is_legacy_xfs),
            mounts=mounts,
            growth=Growth(programs, devices, patience),
            paths=Paths(patience, kubelet_dir),
            flushes=Flushes(programs, mounts, patience_s=flush_s),
            roots=roots,
        )
