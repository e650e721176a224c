"""A volume with data that is no file system is not formatted, and the pod's events say why."""

from __future__ import annotations

import asyncio
from pathlib import Path

from provisioner.sandbox.chapters.by_hand import manifest
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.stage import Stage

TITLE = "A volume with data is not formatted"

_MIB = 2**20
_DATA = b"grandmother's recipes, in a format of her own\n"
_AT = 3 * _MIB
_LOOKED_AT = 64 * _MIB
"""Where every mkfs would have written something."""

_CLAIM_AND_POD = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: recipes
spec:
  storageClassName: by-hand
  volumeName: recipes
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Gi}}
---
apiVersion: v1
kind: Pod
metadata:
  name: cook
spec:
  nodeSelector: {ebs-provisioner.io/sandbox-node: real}
  hostNetwork: true
  containers:
  - name: cook
    image: busybox:1
    command: [sleep, "3600"]
    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: recipes}
"""

_EVENTS = "/api/v1/namespaces/default/events"
_OF_POD = "involvedObject.name=cook,reason=FailedMount"
_CONSENT = "kubectl annotate persistentvolume recipes"


async def tell(stage: Stage) -> None:
    """Tell it, after a chapter in which real nodes were uncordoned.

    Raises:
        SandboxError: a step was not seen.
    """
    teller, zone = stage.teller, stage.sandbox.real_nodes[0].instance.zone
    volume = await stage.volume_made_by_hand("recipes", zone)
    content = stage.sandbox.disks.content_of(volume)
    await asyncio.to_thread(_write, content)
    teller.aside(
        f"Another machine has used it; at byte {_AT}, the sandbox writes: {_DATA.decode().strip()}"
    )
    text = f"{manifest('recipes', volume, zone)}---\n{_CLAIM_AND_POD}"
    teller.manifest(text)
    stage.leave("persistentvolume", "recipes")
    await teller.kubectl("create", "-f", "-", text=text)

    async def refused() -> bool:
        events = await stage.items(f"{_EVENTS}?fieldSelector={_OF_POD}")
        return any(_CONSENT in each["message"] for each in events)

    await teller.until("kubelet gets an error with the reason and what would help", refused)
    columns = "--output=custom-columns=REASON:.reason,MESSAGE:.message"
    await teller.kubectl("get", "events", f"--field-selector={_OF_POD}", columns)
    if await asyncio.to_thread(_read, content) != _expected():
        raise SandboxError(f"{volume} was changed")
    teller.seen(f"the first {_LOOKED_AT // _MIB} MiB of {volume} are unchanged, byte by byte")
    await teller.kubectl("delete", "pod", "cook", "--wait=false")


def _write(content: Path) -> None:
    with content.open("wb") as disk:
        disk.seek(_AT)
        disk.write(_DATA)


def _read(content: Path) -> bytes:
    with content.open("rb") as disk:
        return disk.read(_LOOKED_AT)


def _expected() -> bytes:
    return (bytes(_AT) + _DATA).ljust(_LOOKED_AT, b"\0")
