"""A claim gets another VolumeAttributesClass and another size: one modification does both."""

from __future__ import annotations

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.stage import CLAIMS, Json, Stage

TITLE = "A raw device changes its type and its size, in one modification"

_LEDGER = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: of-old
provisioner: ebs.csi.aws.com
parameters:
  type: gp2
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: ledger
spec:
  storageClassName: of-old
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Gi}}
"""

_BUSY = """\
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata:
  name: busy
driverName: ebs.csi.aws.com
parameters:
  type: gp3
  iops: "4000"
  throughput: "250"
  tagSpecification_1: load=high
"""

_WITH_CLASS = (
    '{"spec": {"volumeAttributesClassName": "busy", '
    '"resources": {"requests": {"storage": "20Gi"}}}}'
)

_WANTED = {"VolumeType": "gp3", "Size": 20, "Iops": 4000, "Throughput": 250}


async def tell(stage: Stage) -> None:
    """Tell it.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    if not await stage.serves("storage.k8s.io/v1", "volumeattributesclasses"):
        teller.aside("This Kubernetes has no VolumeAttributesClasses; 1.34 and later have them.")
        return
    teller.manifest(_LEDGER)
    stage.leave("storageclass", "of-old")
    await teller.kubectl("apply", "-f", "-", text=_LEDGER)
    claim = await teller.until("the claim is Bound", lambda: stage.bound("ledger"))
    teller.manifest(_BUSY)
    stage.leave("volumeattributesclass", "busy")
    await teller.kubectl("apply", "-f", "-", text=_BUSY)
    before = await stage.calls("ModifyVolume")
    await teller.kubectl("patch", "pvc", "ledger", f"--patch={_WITH_CLASS}")
    volume = await _changed(stage, claim["spec"]["volumeName"])
    sent = await stage.calls("ModifyVolume") - before
    if sent != 1:
        raise SandboxError(f"expected one ModifyVolume, but {sent} were sent")
    teller.seen("EC2 got one ModifyVolume")
    await teller.kubectl("get", "pvc", "ledger")
    stage.show_tags(volume)


async def _changed(stage: Stage, name: str) -> Json:
    """Look until EC2 and the claim have it all; the volume."""

    async def changed() -> Json | None:
        volume = await stage.volume(name)
        return volume if {key: volume.get(key) for key in _WANTED} == _WANTED else None

    await stage.teller.until("EC2 has a gp3 of 20 GiB with 4,000 IOPS", changed)

    async def told() -> bool:
        status = (await stage.api.get(f"{CLAIMS}/ledger"))["status"]
        known = status.get("currentVolumeAttributesClassName")
        capacity: str = status["capacity"]["storage"]
        return (capacity, known) == ("20Gi", "busy")

    await stage.teller.until(
        "the claim shows it too: there is no file system that must grow first", told
    )
    # Tags are written after the modification, and before the claim shows the class.
    volume = await stage.volume(name)
    if {"Key": "load", "Value": "high"} not in volume["Tags"]:
        raise SandboxError(f"volume {volume['VolumeId']} has no tag load=high")
    return volume
