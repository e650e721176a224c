"""A persistent volume of a volume that somebody made by hand is told its zone."""

from __future__ import annotations

from typing import Any

from provisioner.sandbox.stage import PVS, REGION_LABEL, ZONE_LABEL, Json, Stage

TITLE = "A volume that was created by hand"

_BY_HAND = """\
apiVersion: v1
kind: PersistentVolume
metadata:
  name: {name}
spec:
  capacity: {{storage: 8Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  csi:
    driver: ebs.csi.aws.com
    volumeHandle: {volume}
"""

_IN_ZONE = """\
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - {{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}
"""


async def tell(stage: Stage) -> None:
    """Tell it.

    Raises:
        SandboxError: a step was not seen.
    """
    teller, here = stage.teller, stage.sandbox.zones[0]
    volume = await stage.volume_made_by_hand("films", here)
    text = manifest("films", volume)
    teller.manifest(text)
    stage.leave("persistentvolume", "films")
    await teller.kubectl("create", "-f", "-", text=text)

    async def pinned() -> Json | None:
        found: Json = await stage.api.get(f"{PVS}/films")
        labels = found["metadata"].get("labels", {})
        right = found["spec"].get("nodeAffinity") == _affinity(here)
        return found if right and labels.get(ZONE_LABEL) == here else None

    await teller.until("the persistent volume says where its volume is", pinned)
    columns = (f"--label-columns={ZONE_LABEL}", f"--label-columns={REGION_LABEL}")
    await teller.kubectl("get", "pv", "films", *columns)


def manifest(name: str, volume: str, zone: str = "") -> str:
    """A persistent volume for a volume that is there, with a zone if its user believes in one."""
    return _BY_HAND.format(name=name, volume=volume) + (_IN_ZONE.format(zone=zone) if zone else "")


def _affinity(zone: str) -> dict[str, Any]:
    """``spec.nodeAffinity`` of a volume in a zone."""
    within = {"key": ZONE_LABEL, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [within]}]}}
