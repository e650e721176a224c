"""Decide whether files have to be copied, as no snapshot leads to the volume that is asked for.

A volume made from a snapshot is never smaller than it, and has the snapshot's file system.
"""

from typing import Any

from provisioner.classes.storage_class_rules import attributes_for
from provisioner.model.document import Document
from provisioner.model.file_systems import DEFAULT_FILE_SYSTEM, FILE_SYSTEMS
from provisioner.model.quantity import parse_bytes
from provisioner.model.sentences import listed
from provisioner.model.volume import GIB, Volume
from provisioner.model.volume_move import Shape, VolumeMove

Json = dict[str, Any]
# Mount options that each file system takes; see mount(8), "Filesystem-independent mount options".
_OF_ALL = (
    "defaults ro rw async sync dirsync atime noatime diratime nodiratime relatime norelatime "
    "strictatime nostrictatime lazytime nolazytime dev nodev suid nosuid exec noexec discard "
    "nodiscard"
)
OF_ALL = frozenset(_OF_ALL.split())
NO_IMAGE = (
    "a smaller size or another file system means that a pod copies the files, and this controller "
    "does not know the pod's image, as it runs in no pod: set its option --copy-image"
)
NO_IMAGE_TO_CHECK = (
    "check means that a pod reads the new volume, and this controller does not know the pod's "
    "image, as it runs in no pod: set its option --copy-image"
)


def file_system_of(old: Document) -> str:
    """The file system that a PersistentVolume in either form names, "" if it names none."""
    source = old.spec.get("csi") or old.spec.get("awsElasticBlockStore") or {}
    return str(source.get("fsType") or "")


def is_asked(move: VolumeMove, volume: Volume, old: Document) -> bool:
    """Whether files have to be copied; a size that cannot be read asks for nothing."""
    size, wanted = move.spec.to.size, move.spec.to.fs_type
    try:
        is_smaller = bool(size) and -(-parse_bytes(size) // GIB) < volume.size_gib
    except ValueError:
        is_smaller = False
    return is_smaller or bool(wanted and wanted != file_system_of(old))


def refused(
    move: VolumeMove, old: Document, before: Shape, target: Shape, why_not: str
) -> str | None:
    """Why files cannot be copied, in one sentence; None if they can.

    Args:
        move: the wish.
        old: the old PersistentVolume.
        before: its volume.
        target: the new one.
        why_not: why the API server would not let the pod be created, "" if it would.
    """
    if old.spec.get("volumeMode") == "Block":
        return (
            f"claim {move.claim_key} has a raw block volume (volumeMode Block), which has no files "
            "to copy: it gets neither a smaller size nor another file system"
        )
    present = file_system_of(old)
    if present and present not in FILE_SYSTEMS:
        return (
            f"claim {move.claim_key} has the file system {present}; files are copied from "
            f"{listed(FILE_SYSTEMS)} only"
        )
    if target.zone != before.zone:
        return (
            f"files are copied within zone {before.zone} only, as one pod has both volumes: do it "
            "in two moves, first the size or the file system, then the zone"
        )
    options = old.spec.get("mountOptions") or ()
    foreign = [each for each in options if each not in OF_ALL]
    if move.spec.to.fs_type and foreign and not move.spec.to.storage_class_name:
        return (
            f"PersistentVolume {old.name} has the mount option {foreign[0]}, which "
            f"{move.spec.to.fs_type} may not know: name a class with other mount options "
            "(storageClassName)"
        )
    return why_not or None


def notes(namespace: str) -> list[str]:
    """What a human should know of a copy first."""
    return [
        (
            f"files are copied by a pod in namespace {namespace}, while the claim's pods are "
            "stopped; if they do not fit into the new volume, the move is undone"
        ),
        (
            "hard links, ACLs, extended attributes, owners and times of change are kept; times of "
            "access, flags of chattr, project quotas, trusted.* attributes and shared blocks "
            "(reflinks) are not"
        ),
    ]


def not_checked(move: VolumeMove, old: Document, why_not: str) -> str | None:
    """Why no pod can check the new volume, in one sentence; None if one can.

    Args:
        move: the wish.
        old: the old PersistentVolume, whose file system the new volume has.
        why_not: why the API server would not let the pod be created, "" if it would.
    """
    if old.spec.get("volumeMode") == "Block":
        return (
            f"claim {move.claim_key} has a raw block volume (volumeMode Block), which has no file "
            "system to check: leave check out"
        )
    present = file_system_of(old)
    if present and present not in FILE_SYSTEMS:
        return (
            f"claim {move.claim_key} has the file system {present}; volumes are checked with "
            f"{listed(FILE_SYSTEMS)} only: leave check out"
        )
    return why_not or None


def check_notes(move: VolumeMove, *, checks: bool, copies_files: bool) -> list[str]:
    """What becomes of ``check``, if it is asked for."""
    if not move.spec.check:
        return []
    if checks:
        return [
            (
                f"a pod in namespace {move.metadata.namespace} mounts the new volume read-only "
                "before the claim gets it; the claim's pods are stopped meanwhile"
            )
        ]
    if copies_files:
        return ["check says nothing more here: the pod that copies files mounts the new volume"]
    return ["check says nothing here: no new volume is made"]


def of_new_file_system(body: Json, wanted: str) -> Json:
    """The new PersistentVolume of an empty volume, on which a node makes a file system.

    A partition of the old volume and what only its file system could be told are left out.
    """
    spec = body["spec"]
    csi = dict(spec["csi"])
    file_system = wanted or csi.get("fsType") or DEFAULT_FILE_SYSTEM
    attributes = attributes_for(csi.get("volumeAttributes") or {}, file_system)
    attributes.pop("partition", None)
    csi |= {"fsType": file_system, "volumeAttributes": attributes}
    return body | {"spec": spec | {"csi": csi}}
