"""A claim is cloned: EC2 copies the volume within its zone, without a snapshot."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.stage import CLAIMS, Stage

TITLE = "The claim is cloned at the same time"

_CLONE = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: website-to-try
spec:
  storageClassName: fast
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 50Gi}}
  dataSource:
    kind: PersistentVolumeClaim
    name: website
"""


async def tell(stage: Stage) -> None:
    """Tell it, after the chapter of the claim ``website``.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.manifest(_CLONE)
    before = await stage.calls("CopyVolumes")
    await teller.kubectl("apply", "-f", "-", text=_CLONE)
    claim = await teller.until("the clone is Bound", lambda: stage.bound("website-to-try"))
    source = await stage.api.get(f"{CLAIMS}/website")
    copy = await stage.volume(claim["spec"]["volumeName"])
    original = await stage.volume(source["spec"]["volumeName"])
    sent = await stage.calls("CopyVolumes") - before
    if sent != 1:
        raise SandboxError(f"expected one CopyVolumes, but {sent} were sent")
    if copy["AvailabilityZone"] != original["AvailabilityZone"]:
        raise SandboxError(f"{copy['VolumeId']} is in another zone than {original['VolumeId']}")
    if copy["VolumeId"] == original["VolumeId"]:
        raise SandboxError(f"{copy['VolumeId']} is its own clone")
    teller.seen(
        f"{copy['VolumeId']} is a copy of {original['VolumeId']}, in {copy['AvailabilityZone']} "
        "as that is: one CopyVolumes, no snapshot"
    )
    await teller.kubectl("get", "pvc", "website", "website-to-try")
