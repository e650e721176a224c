"""A claim of a class of ours is Bound, and its volume is tagged."""

from __future__ import annotations

from provisioner.sandbox.stage import CLAIMS, Json, Stage, is_owned

TITLE = "A claim gets a volume"

_CLAIM = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: fast
provisioner: ebs.csi.aws.com
parameters:
  type: gp3
reclaimPolicy: Delete
allowVolumeExpansion: true
volumeBindingMode: Immediate
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: website
spec:
  storageClassName: fast
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 30Gi
"""


async def tell(stage: Stage) -> None:
    """Tell it.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    teller.manifest(_CLAIM)
    stage.leave("storageclass", "fast")
    await teller.kubectl("apply", "-f", "-", text=_CLAIM)

    async def bound() -> Json | None:
        claim: Json = await stage.api.get(f"{CLAIMS}/website")
        return claim if claim["status"].get("phase") == "Bound" else None

    claim = await teller.until("the claim is Bound", bound)
    await teller.kubectl("get", "pvc", "website")

    async def owned() -> Json | None:
        volume = await stage.volume(claim["spec"]["volumeName"])
        return volume if is_owned(volume) else None

    stage.show_tags(await teller.until("the tag unclaimed is removed from its volume", owned))
