"""A network for the pods of real nodes, which have none: a link and an address for each pod.

To go once the sandbox's nodes have a network of their own.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.node import RealNode

_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_PLUGINS = ("ptp", "host-local", "loopback")


def configuration(subnet: str) -> dict[str, object]:
    """What containerd is told: links of two ends, addresses of this range."""
    addresses = {
        "type": "host-local",
        "subnet": subnet,
        "dataDir": "/var/lib/cni/addresses",
    }
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": addresses}]
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}


def add(nodes: Sequence[RealNode]) -> None:
    """Give each node such a network; containerd notices.

    Raises:
        SandboxError: this machine lacks the CNI plugins.
    """
    here = next((f for f in _FOLDERS if all((f / name).exists() for name in _PLUGINS)), None)
    if here is None:
        raise SandboxError(
            "pods of the suite need a network: apt install containernetworking-plugins"
        )
    # Of several sandboxes on one machine each needs ranges of its own.
    second = random.SystemRandom().randrange(64, 250)
    for number, node in enumerate(nodes):
        folder = node.root / "var/lib/cni"
        (folder / "bin").symlink_to(here)
        document = configuration(f"10.{second}.{number}.0/24")
        (folder / "net.d/00-pods.conflist").write_text(json.dumps(document))
