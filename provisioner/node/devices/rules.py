"""Which device of the machine is a volume's, and which one only looks like it.

On Nitro instances volumes are NVMe disks in any order; each says its volume id as its serial. A
device of that kind is used only if its serial can be read and is the volume's: links and names may
be stale, serials are not. On Xen instances the name that EC2 attached it under is the device's, and
the device itself says nothing: so that name counts only on the instance that it was given on.

Source: EC2 user guide "Map Amazon EBS volumes to NVMe device names" and "Device names", read
2026-11-21; udev's 60-persistent-storage.rules; a stale link seen in the field:
aws-ebs-csi-driver issue 1224.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.model.errors import Reason

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
    """A block device that may be the volume's.

    Attributes:
        path: the device's own name, links resolved.
        via: how it was found: the name of a link or of a device, or "serial".
        is_nvme: by its name, or because it has a serial as NVMe disks have.
        serial: what it says itself; None if that cannot be read.
        is_named_by_attachment: whether EC2's own name of the attachment led to it.
    """

    path: str
    via: str
    is_nvme: bool
    serial: str | None
    is_named_by_attachment: bool


@dataclass(frozen=True, slots=True)
class Unfit:
    """No device can be used now; the reason and the sentence if it stays so."""

    reason: Reason
    message: str


def link_name(volume_id: str) -> str:
    """The link that udev makes in ``/dev/disk/by-id``.

    Raises:
        ValueError: one sentence, it is no volume id.
    """
    return f"nvme-Amazon_Elastic_Block_Store_{_serial(volume_id)}"


def volume_of_link(name: str) -> str | None:
    """The volume id that a link in ``/dev/disk/by-id`` names; None for partitions and others."""
    named = _LINK.fullmatch(name)
    return f"vol-{named[1]}" if named else None


def volume_of_serial(serial: str | None) -> str | None:
    """The volume id that a serial says; None for other disks than EBS volumes."""
    said = _SERIAL.fullmatch(serial or "")
    return f"vol-{said[1]}" if said else None


def is_nvme_name(name: str) -> bool:
    """Whether the kernel calls an NVMe disk or a partition of one so."""
    return _NVME.fullmatch(name) is not None


def is_nvme_disk_name(name: str) -> bool:
    """Whether the kernel calls a whole NVMe disk so."""
    return _NVME_DISK.fullmatch(name) is not None


def names_of_attachment(device_path: str) -> tuple[str, ...]:
    """The names in ``/dev`` that a kernel may give a Xen device attached as ``device_path``.

    "" has none. Kernels with the Xen block driver say xvd for sd.

    Raises:
        ValueError: one sentence, it is no device name.
    """
    if not device_path:
        return ()
    named = _DEVICE_PATH.fullmatch(device_path)
    if named is None:
        raise ValueError(
            f"the attachment's device path {device_path[:100]!r} is no name right under /dev"
        )
    name = named[1]
    return (name, f"xvd{name[2:]}") if re.fullmatch("sd[a-z]{1,2}[0-9]*", name) else (name,)


def partition_number(text: str) -> str:
    """The partition that ``volumeAttributes.partition`` asks for; "" for the whole disk.

    Raises:
        ValueError: one sentence, it is no number of a partition.
    """
    if text in ("", "0"):
        return ""
    if _PARTITION.fullmatch(text) is None:
        raise ValueError(
            f"volume attribute partition is {text[:100]!r}, not a number from 1 to 999"
        )
    return text


def partition_name(disk: str, number: str) -> str:
    """What the kernel calls a partition: a ``p`` parts it from a disk that ends in a digit."""
    return f"{disk}p{number}" if disk[-1:].isdigit() else f"{disk}{number}"


def choose(
    volume_id: str, candidates: Sequence[Candidate], *, has_nvme_volumes: bool
) -> Candidate | Unfit:
    """The volume's device, or why none of the candidates is.

    A device that says the volume's id wins over one that only has the right name. A name counts
    only for a disk of Xen (whose kernels call none sd), and only where no EBS volume is an NVMe
    disk: the machine's other disks, such as those of a SAN, may have any name.

    Args:
        volume_id: the volume.
        candidates: what was found.
        has_nvme_volumes: whether the machine has an EBS volume, any one, as an NVMe disk.
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
    """The sentence for a device that has not come."""
    by_name = f", no {device_path}" if device_path else ""
    return (
        f"volume {volume_id} has no device on this node: in {waited_s:.0f} s no link "
        f"{link_name(volume_id)} came in /dev/disk/by-id{by_name}, and no NVMe disk with its id as "
        "serial; it is tried again; if it stays so, see whether EC2 says that it is attached to "
        "this instance"
    )


def attached_to_another(volume_id: str, path: str, recorded: str, own: str) -> str:
    """The sentence for a name that was given on another instance than this one."""
    return (
        f"volume {volume_id} was attached to instance {recorded}, says its VolumeAttachment, and "
        f"this node is {own} now: {path}, which does not say itself which volume it is, may be "
        "another one's; delete that VolumeAttachment, and Kubernetes attaches the volume here"
    )


def has_another(volume_id: str, path: str, other: str, at: str) -> str:
    """The sentence for a device by name that kubelet has mounted as another volume."""
    return (
        f"volume {volume_id} was looked for and {path}, which does not say itself which volume it "
        f"is, is mounted at {at} as volume {other}; see what EC2 says is attached there, and "
        f"delete the VolumeAttachment of the one that is not"
    )


def _serial(volume_id: str) -> str:
    if _VOLUME_ID.fullmatch(volume_id) is None:
        raise ValueError(f"{volume_id[:100]!r} is no EBS volume id (vol- and hexadecimal digits)")
    return volume_id.replace("-", "", 1)


def _is_of_xen(candidate: Candidate) -> bool:
    name = candidate.path.rpartition("/")[2]
    is_named = candidate.is_named_by_attachment and not candidate.is_nvme
    return is_named and _XEN.fullmatch(name) is not None


def _what_is_wrong(volume_id: str, wrong: Candidate) -> str:
    if wrong.serial is not None:
        found = f"has the serial {wrong.serial[:40]!r}"
        helps = "the name is stale or names another disk; it is tried again"
    elif wrong.is_nvme:
        found = "does not say which volume it is (its serial cannot be read)"
        helps = "the node plugin needs the machine's /sys, or to be privileged"
    elif _is_of_xen(wrong):
        found = "is no NVMe disk, as the volumes of this machine are"
        helps = "another disk has that name, and the volume's own has not come; it is tried again"
    elif wrong.is_named_by_attachment:
        found = "is neither an NVMe disk nor one of Xen's (xvd)"
        helps = "another disk has that name, and the volume's own has not come; it is tried again"
    else:
        found = "is no NVMe disk, and its name is not the one that EC2 attached the volume under"
        helps = "something else made that link; it is tried again"
    return f"volume {volume_id} was looked for and {wrong.path} (by {wrong.via}) {found}: {helps}"
