"""Which device of the machine is a volume's, and which only looks like it.

On Nitro instances volumes are NVMe disks in any order, and each reports its volume id as its
serial. Such a disk is used only if its serial can be read and is the volume's: links and names may
be stale, serials are not. On Xen instances the device has the name under which EC2 attached it, and
reports nothing itself, so the name counts only on the instance for which it was given.

Source: EC2 user guide "Map Amazon EBS volumes to NVMe device names" and "Device names", read
2026-11-21; udev's 60-persistent-storage.rules; a stale link seen in the field:
aws-ebs-csi-driver issue 1224.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.model.errors import Reason
from provisioner.model.volume import serial_of

MODEL = "Amazon Elastic Block Store"
_LINK = re.compile(r"nvme-Amazon_Elastic_Block_Store_vol([0-9a-f]{8,17})")
_VOLUME_ID = re.compile(r"vol-[0-9a-f]{8,17}")
_SERIAL = re.compile(r"vol-?([0-9a-f]{8,17})")
_DEVICE_PATH = re.compile(r"/dev/([A-Za-z0-9]{1,32})")
_NVME_DISK = re.compile(r"nvme[0-9]+n[0-9]+")
_NVME = re.compile(r"nvme[0-9]+n[0-9]+(p[0-9]+)?")
_XEN = re.compile(r"xvd[a-z]{1,3}[0-9]*")
_PARTITION = re.compile(r"[1-9][0-9]{0,2}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A block device that might be the volume's.

    Attributes:
        path: the device's own name, links resolved.
        via: how it was found: the name of a link or of a device, or "serial".
        is_nvme: by its name, or because it has a serial as NVMe disks have.
        serial: as the device reports it; None if it cannot be read.
        is_named_by_attachment: whether it was found by EC2's name for the attachment.
    """

    path: str
    via: str
    is_nvme: bool
    serial: str | None
    is_named_by_attachment: bool


@dataclass(frozen=True, slots=True)
class Unfit:
    """No device can be used now; the reason and the message if that persists."""

    reason: Reason
    message: str


def link_name(volume_id: str) -> str:
    """The link that udev creates in ``/dev/disk/by-id``.

    Raises:
        ValueError: one sentence, it is no volume id.
    """
    return f"nvme-Amazon_Elastic_Block_Store_{_serial(volume_id)}"


def volume_of_link(name: str) -> str | None:
    """The volume id that a link in ``/dev/disk/by-id`` names; None for partitions and others."""
    named = _LINK.fullmatch(name)
    return f"vol-{named[1]}" if named else None


def volume_of_serial(serial: str | None) -> str | None:
    """The volume id in a serial; None if the disk is no EBS volume."""
    said = _SERIAL.fullmatch(serial or "")
    return f"vol-{said[1]}" if said else None


def is_nvme_name(name: str) -> bool:
    """Whether this is a kernel name of an NVMe disk or of one's partition."""
    return _NVME.fullmatch(name) is not None


def is_nvme_disk_name(name: str) -> bool:
    """Whether this is a kernel name of a whole NVMe disk."""
    return _NVME_DISK.fullmatch(name) is not None


def names_of_attachment(device_path: str) -> tuple[str, ...]:
    """The names in ``/dev`` that a Xen device attached as ``device_path`` may have.

    None for "". The kernel's Xen block driver uses xvd for sd.

    Raises:
        ValueError: one sentence, it is no device name.
    """
    if not device_path:
        return ()
    named = _DEVICE_PATH.fullmatch(device_path)
    if named is None:
        raise ValueError(
            f"the attachment's device path {device_path[:100]!r} is not a name directly in /dev"
        )
    name = named[1]
    return (name, f"xvd{name[2:]}") if re.fullmatch("sd[a-z]{1,2}[0-9]*", name) else (name,)


def partition_number(text: str) -> str:
    """The partition in ``volumeAttributes.partition``; "" for the whole disk.

    Raises:
        ValueError: one sentence, it is no partition number.
    """
    if text in ("", "0"):
        return ""
    if _PARTITION.fullmatch(text) is None:
        raise ValueError(
            f"volume attribute partition is {text[:100]!r}, not a number from 1 to 999"
        )
    return text


def partition_name(disk: str, number: str) -> str:
    """The kernel's name of a partition, with a ``p`` after a disk name that ends in a digit."""
    return f"{disk}p{number}" if disk[-1:].isdigit() else f"{disk}{number}"


def choose(
    volume_id: str, candidates: Sequence[Candidate], *, has_nvme_volumes: bool
) -> Candidate | Unfit:
    """The volume's device, or why none of the candidates is.

    A device that reports the volume's id wins over one that only has the right name. A name counts
    only for a Xen disk (which is never called sd), and only if no EBS volume is an NVMe disk: other
    disks of the machine, such as those of a SAN, may have any name.

    Args:
        volume_id: the volume.
        candidates: what was found.
        has_nvme_volumes: whether any EBS volume is an NVMe disk on this machine.
    """
    for candidate in candidates:
        if volume_of_serial(candidate.serial) == volume_id:
            return candidate
    by_name = [one for one in candidates if _is_of_xen(one) and not has_nvme_volumes]
    wrong = [one for one in candidates if one not in by_name]
    if by_name and not wrong:
        return by_name[0]
    if wrong:
        return Unfit(Reason.WRONG_DEVICE, _what_is_wrong(volume_id, wrong[0]))
    return Unfit(
        Reason.DEVICE_NOT_FOUND,
        f"volume {volume_id} has no device on this node",
    )


def missing(volume_id: str, device_path: str, waited_s: float) -> str:
    """The message for a device that has not appeared."""
    by_name = f", no {device_path}" if device_path else ""
    return (
        f"volume {volume_id} has no device on this node: within {waited_s:.0f} s there was no link "
        f"{link_name(volume_id)} in /dev/disk/by-id{by_name}, and no NVMe disk with its id as "
        "serial; this is retried; if it persists, check in EC2 whether the volume is attached to "
        "this instance"
    )


def attached_to_another(volume_id: str, path: str, recorded: str, own: str) -> str:
    """The message for a device name that was given on another instance."""
    return (
        f"according to its VolumeAttachment, volume {volume_id} was attached to instance "
        f"{recorded}, but this node is {own}: {path}, which does not report its volume id, may be "
        "another volume; delete that VolumeAttachment, then Kubernetes attaches the volume here"
    )


def has_another(volume_id: str, path: str, other: str, at: str) -> str:
    """The message for a device found by name that kubelet has mounted as another volume."""
    return (
        f"{path} was found for volume {volume_id}, but is mounted at {at} as volume {other}, and "
        "does not report its volume id itself; check in EC2 which of them is attached under that "
        "name, and delete the VolumeAttachment of the other"
    )


def _serial(volume_id: str) -> str:
    if _VOLUME_ID.fullmatch(volume_id) is None:
        raise ValueError(
            f"{volume_id[:100]!r} is not an EBS volume id (vol- and hexadecimal digits)"
        )
    return serial_of(volume_id)


def _is_of_xen(candidate: Candidate) -> bool:
    name = candidate.path.rpartition("/")[2]
    is_named = candidate.is_named_by_attachment and not candidate.is_nvme
    return is_named and _XEN.fullmatch(name) is not None


def _what_is_wrong(volume_id: str, wrong: Candidate) -> str:
    if wrong.serial is not None:
        found = f"has the serial {wrong.serial[:40]!r}"
        helps = "the name is stale or belongs to another disk; this is retried"
    elif wrong.is_nvme:
        found = "does not report its volume id (its serial cannot be read)"
        helps = "the node plugin needs the host's /sys, or has to be privileged"
    elif _is_of_xen(wrong):
        found = "is not an NVMe disk, as the volumes of this node are"
        helps = "another disk has that name, and the volume has not appeared; this is retried"
    elif wrong.is_named_by_attachment:
        found = "is neither an NVMe disk nor a Xen disk (xvd)"
        helps = "another disk has that name, and the volume has not appeared; this is retried"
    else:
        found = "is not an NVMe disk, and EC2 did not attach the volume under its name"
        helps = "something else created that link; this is retried"
    return f"{wrong.path} (found by {wrong.via}) is not volume {volume_id}: it {found}; {helps}"
