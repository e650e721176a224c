"""Which staged volumes a kubelet may have forgotten.

A kubelet that is killed between NodeUnpublish and NodeUnstage finds the volume again by nothing:
after its start it looks through the folders of its pods (Kubernetes 1.36
pkg/kubelet/volumemanager/reconciler/reconstruct.go). The file system stays mounted for good, and
the volume is detached under it.
"""

import re
from collections import Counter
from collections.abc import Sequence

from provisioner.decide.mount_table import Mount

# Source: Kubernetes 1.36 pkg/volume/csi/csi_attacher.go, makeDeviceMountPath
_STAGE = re.compile(r"[0-9a-f]{64}/globalmount")


def candidates(table: Sequence[Mount], stages: str) -> tuple[Mount, ...]:
    """Return staged file systems that are shown to no pod: on their way in, out, or forgotten.

    Args:
        table: all mounts.
        stages: the folder in which the kubelet has our volumes staged.
    """
    mounted = Counter(mount.number for mount in table)
    return tuple(
        mount
        for mount in table
        if mount.path.startswith(f"{stages}/")
        and _STAGE.fullmatch(mount.path.removeprefix(f"{stages}/"))
        and mounted[mount.number] == 1
    )
