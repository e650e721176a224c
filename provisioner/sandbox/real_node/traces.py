"""What a file system's maker leaves in it, and what volumes leave behind on nodes: nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from pathlib import Path
from typing import Final

from provisioner.sandbox.real_node.disks import Disks

_PATIENCE_S: Final = 15.0
_LOOK_EVERY_S: Final = 0.1
# Where UUID and magic are: Linux' fs/ext4/ext4.h and fs/xfs/libxfs/xfs_format.h.
_UUID_AT: Final = {"ext4": 1024 + 0x68, "ext3": 1024 + 0x68, "xfs": 32}
_MAGIC: Final = {
    "ext4": (1024 + 0x38, b"\x53\xef"),
    "ext3": (1024 + 0x38, b"\x53\xef"),
    "xfs": (0, b"XFSB"),
}
_UUID_BYTES: Final = 16
_RECORD: Final = "vol_data.json"
"""Kubelet's record of a staged volume. Source: Kubernetes 1.36, pkg/volume/csi/csi_plugin.go."""

_FORGOTTEN: Final = "unmounting a volume that the kubelet does not know any more"
"""What ``provisioner.node.mounting.leaked_mounts`` says."""

_UNSTAGED: Final = '"event": "unstaged"'
"""What ``provisioner.node.mounting.stage`` says."""

_UNPUBLISH: Final = '"method": "NodeUnpublishVolume"'
"""What ``provisioner.node.csi.server`` says, whether it has answered or not."""


def file_system_identity(content: Path, file_system: str) -> str:
    """Return the UUID of the file system on a volume, which its mkfs has made up.

    Raises:
        AssertionError: there is no such file system.
    """
    at, magic = _MAGIC[file_system]
    with content.open("rb") as opened:
        opened.seek(at)
        found = opened.read(len(magic))
        assert found == magic, f"{content.name} holds no {file_system}"
        opened.seek(_UUID_AT[file_system])
        return opened.read(_UUID_BYTES).hex()


async def left(
    disks: Disks,
    roots: Mapping[str, Path],
    volumes: Mapping[str, str],
    forgotten: Collection[str] = (),
) -> list[str]:
    """Return what deleted volumes have left behind, in words.

    Kubelet and the kernel may take a moment; what is there after that stays.

    Args:
        disks: of the sandbox.
        roots: of its machines, by their names: ``/proc/<process of it>/root``.
        volumes: names of persistent volumes, by the ids of their volumes.
        forgotten: ids of the volumes that a killed kubelet has forgotten. Its record of them stays:
            nobody but the kubelet may remove it (docs/nodes.md).
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _PATIENCE_S
    while found := _look(disks, roots, volumes, forgotten):
        if loop.time() > until_s:
            break
        await asyncio.sleep(_LOOK_EVERY_S)
    return found


def _look(
    disks: Disks,
    roots: Mapping[str, Path],
    volumes: Mapping[str, str],
    forgotten: Collection[str],
) -> list[str]:
    found = [f"loop device of {each}" for each in volumes.keys() & disks.in_use]
    found += [f"content of {each}" for each in volumes if disks.content_of(each).exists()]
    names = {*volumes.values()}
    for volume_id in volumes:
        # Kubelet names a stage after this digest, udev a device after the serial.
        names |= {_digest(volume_id), volume_id.replace("-", "")}
    records = {_digest(volume_id) for volume_id in forgotten}
    for name, root in roots.items():
        found += [f"{each} on {name}" for each in left_on(root, names, records)]
    return found


def forgotten_by_kubelet(log: Path) -> set[str]:
    """Return the ids of volumes that a node plugin has unmounted as its kubelet had forgotten them.

    Args:
        log: of the plugin, in JSON.
    """
    with log.open() as lines:
        return {json.loads(line)["volume"] for line in lines if _FORGOTTEN in line}


def unstaged(log: Path) -> list[tuple[str, float]]:
    """Return which volumes a node plugin has unmounted for its kubelet, and when.

    Args:
        log: of the plugin, in JSON.

    Returns:
        Ids, and seconds since the epoch.
    """
    with log.open() as lines:
        said = [json.loads(line) for line in lines if _UNSTAGED in line]
    return [
        (each["volume"], datetime.fromisoformat(each["timestamp"]).timestamp()) for each in said
    ]


def unpublishes(log: Path, volume_id: str) -> list[float]:
    """Return when a node plugin was asked to unmount a volume from a pod.

    Args:
        log: of the plugin, in JSON; a call that ended with the plugin is not in it.
        volume_id: whose.

    Returns:
        Seconds since the epoch.
    """
    with log.open() as lines:
        said = [json.loads(line) for line in lines if _UNPUBLISH in line]
    return [
        datetime.fromisoformat(each["timestamp"]).timestamp() - each["seconds"]
        for each in said
        if each.get("volume") == volume_id  # an unexpected error names none
    ]


def _digest(volume_id: str) -> str:
    return hashlib.sha256(volume_id.encode()).hexdigest()


def left_on(
    root: Path, names: AbstractSet[str], records: AbstractSet[str] = frozenset()
) -> list[str]:
    """Return links, mounts and kubelet's folders on a machine that bear one of these names.

    Args:
        root: ``/proc/<process of it>/root``.
        names: parts of what is looked for.
        records: names of folders that may be left with kubelet's record in them, or with nothing.
    """
    by_id = root / "dev" / "disk" / "by-id"
    links = [f"link {each.name}" for each in by_id.glob("*") if _bears(each.name, names)]
    mounts = [
        f"mount {line.split()[4]}"
        for line in (root.parent / "mountinfo").read_text().splitlines()
        if _bears(line, names)
    ]
    kubelet = root / "var" / "lib" / "kubelet"
    folders = [
        f"folder {each.relative_to(root)}"
        for pattern in ("plugins/kubernetes.io/csi/*/*", "pods/*/volume*/*/*")
        for each in kubelet.glob(pattern)
        if _bears(each.name, names) and not (each.name in records and _is_record(each))
    ]
    return [*links, *mounts, *folders]


def _is_record(folder: Path) -> bool:
    # Empty: the kubelet was killed between the record's end and that of its folder.
    return {each.name for each in folder.iterdir()} <= {_RECORD}


def _bears(text: str, names: AbstractSet[str]) -> bool:
    return any(name in text for name in names)
