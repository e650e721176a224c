"""Everything that the chapters before have left is deleted; nothing stays in EC2."""

from __future__ import annotations

from provisioner.sandbox.stage import ATTACHMENTS, CONTENTS, PVS, Stage

TITLE = "Everything is deleted"


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
