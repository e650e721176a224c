"""What could never run is refused before it is stored."""

from __future__ import annotations

from provisioner.sandbox.chapters.by_hand import manifest
from provisioner.sandbox.stage import CLAIMS, Stage

TITLE = "What can never run is refused"

_CLAIMS_BY_HAND = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: films
spec:
  storageClassName: by-hand
  volumeName: films
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: music
spec:
  storageClassName: by-hand
  volumeName: music
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Gi}}
"""

_PLAYER = """\
apiVersion: v1
kind: Pod
metadata:
  name: player
spec:
  containers:
  - name: player
    image: player
  volumes:
  - name: films
    persistentVolumeClaim: {claimName: films}
  - name: music
    persistentVolumeClaim: {claimName: music}
"""


async def tell(stage: Stage) -> None:
    """Tell it, after the chapter in which a volume was made by hand.

    Raises:
        SandboxError: a step was not seen.
    """
    teller, volume = stage.teller, stage.to_delete["films"]
    here, there = stage.sandbox.zones[:2]
    wrong = manifest("films-again", volume, there)
    teller.manifest(wrong)
    what = "a persistent volume in the wrong zone"
    await teller.refused(what, volume, here, there, text=wrong)

    mistyped = volume[:-1] + ("1" if volume.endswith("0") else "0")
    what = "a persistent volume of a volume that does not exist"
    await teller.refused(what, mistyped, text=manifest("films-again", mistyped))

    other = await stage.volume_made_by_hand("music", there)
    stage.leave("persistentvolume", "music")
    await teller.kubectl("create", "-f", "-", text=manifest("music", other))
    await teller.kubectl("create", "-f", "-", text=_CLAIMS_BY_HAND)

    async def bound() -> bool:
        claims = [await stage.api.get(f"{CLAIMS}/{name}") for name in ("films", "music")]
        return all(claim["status"].get("phase") == "Bound" for claim in claims)

    await teller.until("both claims are Bound", bound)
    teller.manifest(_PLAYER)
    what = "a pod whose volumes are in two zones"
    await teller.refused(what, "films", "music", here, there, text=_PLAYER)
