"""A snapshot is taken of a claim; the snapshot-controller is the one that every cluster runs."""

from __future__ import annotations

from provisioner.sandbox.stage import Json, Stage

TITLE = "A snapshot is started"

_SNAPSHOT = """\
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata:
  name: nightly
driver: ebs.csi.aws.com
deletionPolicy: Delete
parameters:
  tagSpecification_1: "taken-for={{ .VolumeSnapshotName }}"
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata:
  name: before-the-release
spec:
  volumeSnapshotClassName: nightly
  source:
    persistentVolumeClaimName: website
"""


async def tell(stage: Stage) -> None:
    """Tell it, after the chapter of the claim ``website``.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.manifest(_SNAPSHOT)
    # In this order: of a snapshot without its class nobody would know the rules.
    stage.leave("volumesnapshot", "before-the-release")
    stage.leave("volumesnapshotclass", "nightly")
    await teller.kubectl("apply", "-f", "-", text=_SNAPSHOT)

    async def begun() -> Json | None:
        return next(iter(await stage.snapshots_of_the_cluster()), None)

    made = await teller.until("EC2 has started it, and the volume may be written to again", begun)
    title = (
        f"EC2: {made['SnapshotId']} of {made['VolumeId']}, {made['VolumeSize']} GiB, "
        f"{made['State']}"
    )
    stage.show_tags(made, title)
    teller.aside(
        "It takes EC2 minutes to hours, and here some seconds. The demo continues during that time."
    )
