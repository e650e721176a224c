"""The node plugin's options; created in ``commands``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.model.driver import EBS_DRIVER
from provisioner.node.instance.volume_limit_rules import LimitOptions
from provisioner.node.runtime.sysfs import SystemDirs

if TYPE_CHECKING:  # it loads aiohttp, for which commands.py makes room first
    from provisioner.node.instance.kube import ApiServer

KUBELET_DIR = Path("/var/lib/kubelet")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Options of ``ebs-provisioner node``. Times in seconds.

    Attributes:
        node_name: of the Node object.
        server: the API server.
        metadata_endpoint: URL of the instance metadata service; "" for AWS's own.
        asks_metadata: whether the instance metadata service may be used.
        kubelet_dir: the kubelet's root directory, absolute and normalised.
        legacy_xfs: whether Linux before 5.10 has to mount an xfs.
        limits: set the number of volumes, instead of computing it.
        drain_s: how long calls and programs may take to end after SIGTERM.
    """

    node_name: str
    server: ApiServer
    metadata_endpoint: str = ""
    asks_metadata: bool = True
    driver: str = EBS_DRIVER
    kubelet_dir: Path = KUBELET_DIR
    metrics_address: str = ""
    legacy_xfs: bool = False
    limits: LimitOptions = field(default_factory=LimitOptions)
    drain_s: float = 85.0
    dirs: SystemDirs = field(default_factory=SystemDirs)

    @property
    def csi_socket(self) -> Path:
        """The socket of the CSI services."""
        return self.kubelet_dir / "plugins" / self.driver / "csi.sock"

    @property
    def stages(self) -> Path:
        """The directory in which the kubelet stages our volumes."""
        return self.kubelet_dir / "plugins" / "kubernetes.io" / "csi" / self.driver

    @property
    def registration_socket(self) -> Path:
        """The socket in the kubelet's plugin registry."""
        return self.kubelet_dir / "plugins_registry" / f"{self.driver}-reg.sock"
