"""Everything that the chapters before have left is deleted; nothing stays in EC2."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node.traces import left_on
from provisioner.sandbox.stage import ATTACHMENTS, CONTENTS, PVS, Stage

TITLE = "Everything is deleted"

# As they are named by udev, and by the kubelet where it has a CSI driver stage and publish.
_OF_A_VOLUME = frozenset(
    ("nvme-Amazon_Elastic_Block_Store", "plugins/kubernetes.io/csi", "kubernetes.io~csi")
)


async def tell(stage: Stage) -> None:
    """Tell it.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    await teller.kubectl("delete", "statefulset,pod", "--all", "--wait=false")
    await teller.kubectl("delete", "pvc", "--all", "--wait=false")
    for kind, names in stage.left.items():
        await teller.kubectl("delete", kind, *names, "--wait=false")

    async def detached() -> bool:
        return not await stage.items(ATTACHMENTS)

    await teller.until("nothing is attached any more", detached)
    for volume in stage.to_delete.values():
        await stage.aws("delete_volume", VolumeId=volume)

    async def gone() -> bool:
        return not await stage.items(PVS) and not await stage.volumes_of_the_cluster()

    await teller.until("no volume with this cluster's tag is left in EC2", gone)

    async def no_snapshot() -> bool:
        return not await stage.items(CONTENTS) and not await stage.snapshots_of_the_cluster()

    await teller.until("and no snapshot", no_snapshot)
    if stage.sandbox.real_nodes:
        await _nothing_on_real_nodes(stage)


async def _nothing_on_real_nodes(stage: Stage) -> None:
    disks, nodes = stage.sandbox.disks, stage.sandbox.real_nodes

    async def clear() -> bool:
        disks.check()
        left = [each for node in nodes for each in left_on(node.root, _OF_A_VOLUME)]
        return not left and not disks.in_use

    await stage.teller.until("no device, link or mount of a volume is left on a node", clear)
    if disks.torn:
        raise SandboxError("; ".join(str(each) for each in disks.torn))
    stage.teller.seen(
        "no volume was detached while a real node used it, except as the cycles report"
    )
