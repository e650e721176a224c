"""Finds the block device of a volume, waits for it, and checks that it is the volume's.

udev and the kernel create links, names and serials at any time, so they are polled several times a
second. Everything that touches a disk or sysfs runs in a thread: a dead disk can block for long.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from provisioner import clock
from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices import nvme, rules
from provisioner.node.devices.rules import Candidate, Unfit
from provisioner.node.runtime import sysfs
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.sysfs import SystemDirs

T = TypeVar("T")
POLL_EVERY_S = 0.15


@dataclass(frozen=True, slots=True)
class Device:
    """A volume's device, after the check.

    Attributes:
        path: what is formatted and mounted: the disk or a partition.
        disk: the whole disk.
        volume_id: the volume.
        size_bytes: of ``path``.
        is_nvme: whether its serial identifies it; else only its name does.
        number: the kernel's number of ``path``, "major:minor", as in mountinfo.
    """

    path: Path
    disk: Path
    volume_id: str
    size_bytes: int
    is_nvme: bool
    number: str

    @property
    def resource(self) -> str:
        """Its name for ``BlockingCalls``, which run one call at a time for each device."""
        return f"device {self.number}"


class Devices:
    """Finds the devices of volumes.

    Args:
        dirs: where devices and sysfs are.
        blocking: for calls that may hang.
        poll_every_s: the pause between two polls, in seconds.
    """

    def __init__(
        self, dirs: SystemDirs, blocking: BlockingCalls, *, poll_every_s: float = POLL_EVERY_S
    ) -> None:
        self._dirs = dirs
        self._blocking = blocking
        self._poll_every_s = poll_every_s

    async def find(
        self, volume_id: str, device_path: str, partition: str, *, wait_s: float
    ) -> Device:
        """The volume's device; waits until it is there.

        Args:
            volume_id: the volume.
            device_path: the name under which EC2 attached it, "" if unknown.
            partition: ``volumeAttributes.partition``: "" or "0" for the whole disk.
            wait_s: how long to wait at most, in seconds.

        Raises:
            NodeError: DEVICE_NOT_FOUND or WRONG_DEVICE when the time is over; INVALID_REQUEST;
                TIMED_OUT, a disk hangs.
        """
        try:
            names = (rules.link_name(volume_id), *rules.names_of_attachment(device_path))
            number = rules.partition_number(partition)
        except ValueError as error:
            raise NodeError(Reason.INVALID_REQUEST, str(error)) from error
        look = partial(self._look, volume_id, names, number)
        found = await self._awaited(volume_id, look, wait_s)
        if isinstance(found, Device):
            return found
        if found.reason is Reason.DEVICE_NOT_FOUND and not number:
            raise NodeError(found.reason, rules.missing(volume_id, device_path, wait_s))
        raise NodeError(found.reason, f"{found.message} (waited {wait_s:.0f} s)")

    async def _awaited(
        self, volume_id: str, look: Callable[[], Device | Unfit], wait_s: float
    ) -> Device | Unfit:
        """The device once it is found, or the last failure when the time is over."""
        until_s = clock.now_s() + wait_s
        while True:
            found = await self._looked(volume_id, look)
            remaining_s = until_s - clock.now_s()
            if isinstance(found, Device) or remaining_s <= 0:
                return found
            await asyncio.sleep(min(remaining_s, self._poll_every_s))

    async def _looked(self, volume_id: str, look: Callable[[], T]) -> T:
        what = f"the search for the device of volume {volume_id}"
        return await self._blocking.call(f"the device of {volume_id}", look, what=what)

    async def of_path(self, volume_id: str, path: Path) -> Device:
        """The device at a path, checked as in ``find``, except for the attachment's name.

        Raises:
            NodeError: DEVICE_NOT_FOUND or WRONG_DEVICE.
        """
        found = await self._looked(volume_id, lambda: self._at(volume_id, path))
        if isinstance(found, Device):
            return found
        raise NodeError(found.reason, found.message)

    async def verify(self, device: Device) -> None:
        """Check again, right before something is written, that it is still that device.

        Raises:
            NodeError: DEVICE_NOT_FOUND or WRONG_DEVICE, the name belongs to another device now.
        """
        now = await self.of_path(device.volume_id, device.path)
        if (now.number, now.size_bytes) != (device.number, device.size_bytes):
            raise NodeError(
                Reason.WRONG_DEVICE,
                f"{device.path} of volume {device.volume_id} was device {device.number} of "
                f"{device.size_bytes} bytes, and is now {now.number} of {now.size_bytes}; this is "
                "retried",
            )

    def is_live(self, device: Device) -> bool:
        """Whether its file system is mounted in any mount namespace."""
        return sysfs.is_live(self._dirs, device.number)

    def errors(self, device: Device) -> int:
        """How many errors the kernel has found in its ext file system since e2fsck repaired it."""
        return sysfs.errors(self._dirs, device.number)

    async def volumes(self) -> frozenset[str]:
        """The EBS volumes that this machine sees, by links and serials; NVMe only.

        Raises:
            NodeError: TIMED_OUT, a disk hangs.
        """
        return await self._blocking.call(
            "the disks", self._volumes, what="listing the node's disks"
        )

    def _volumes(self) -> frozenset[str]:
        found = {rules.volume_of_serial(self._serial(disk)) for disk in self._nvme_disks()}
        for link in _entries(self._dirs.dev / "disk" / "by-id"):
            if (named := rules.volume_of_link(link.name)) is None:
                continue
            disk = Path(os.path.realpath(link))
            if (number := _number(disk)) is not None and sysfs.serial(self._dirs, number) is None:
                found.add(named)
        return frozenset(volume_id for volume_id in found if volume_id is not None)

    def _look(self, volume_id: str, names: tuple[str, ...], number: str) -> Device | Unfit:
        candidates = list(self._candidates(volume_id, names))
        chosen = self._chosen(volume_id, candidates)
        if isinstance(chosen, Unfit):
            return chosen
        disk = Path(chosen.path)
        if not number:
            return self._device(volume_id, disk, disk, is_nvme=chosen.is_nvme)
        path = disk.with_name(rules.partition_name(disk.name, number))
        here, whole = _number(path), _number(disk)
        if here is None or whole is None:
            return Unfit(
                Reason.DEVICE_NOT_FOUND,
                f"volume {volume_id} has no partition {number}: {disk} exists, {path} does not; "
                "correct volumeAttributes.partition, or the disk's partition table",
            )
        if not sysfs.is_partition_of(self._dirs, here, whole):
            return Unfit(
                Reason.WRONG_DEVICE,
                f"volume {volume_id}: {path} is not a partition of {disk}",
            )
        return self._device(volume_id, path, disk, is_nvme=chosen.is_nvme)

    def _chosen(self, volume_id: str, candidates: list[Candidate]) -> Candidate | Unfit:
        has_nvme_volumes = any(not one.is_nvme for one in candidates) and any(
            rules.volume_of_serial(self._serial(disk)) for disk in self._nvme_disks()
        )
        return rules.choose(volume_id, candidates, has_nvme_volumes=has_nvme_volumes)

    def _candidates(self, volume_id: str, names: tuple[str, ...]) -> list[Candidate]:
        link, *attached_as = names
        dev = self._dirs.dev
        found = [
            self._candidate(dev / "disk" / "by-id" / link, link),
            *(self._candidate(dev / name, name, by_attachment=True) for name in attached_as),
        ]
        named = [one for one in found if one is not None]
        if any(_is_of(one, volume_id) for one in named):
            return named
        # Without udev there are no links, but the serial identifies the disk. Tried last, because
        # it reads the serials of all disks.
        by_serial = [self._candidate(disk, "serial") for disk in self._nvme_disks()]
        return [*named, *(one for one in by_serial if one and _is_of(one, volume_id))]

    def _candidate(self, path: Path, via: str, *, by_attachment: bool = False) -> Candidate | None:
        own = Path(os.path.realpath(path))
        if _number(own) is None or not own.is_relative_to(os.path.realpath(self._dirs.dev)):
            return None
        serial = self._serial(own)
        return Candidate(
            path=str(own),
            via=via,
            is_nvme=rules.is_nvme_name(own.name) or serial is not None,
            serial=serial,
            is_named_by_attachment=by_attachment,
        )

    def _serial(self, path: Path) -> str | None:
        number = _number(path)
        said = sysfs.serial(self._dirs, number) if number is not None else None
        if said is not None or not rules.is_nvme_name(path.name):
            return said
        try:
            who = nvme.identify(path)
        except NodeError:
            return None
        is_ebs = who is not None and (who.vendor, who.model) == (nvme.AMAZON, rules.MODEL)
        return who.serial if who is not None and is_ebs else None

    def _nvme_disks(self) -> list[Path]:
        return [one for one in _entries(self._dirs.dev) if rules.is_nvme_disk_name(one.name)]

    def _at(self, volume_id: str, path: Path) -> Device | Unfit:
        candidate = self._candidate(path, str(path), by_attachment=True)
        if candidate is None:
            return Unfit(
                Reason.DEVICE_NOT_FOUND,
                f"volume {volume_id}: {path} is not a block device (any more); this is retried",
            )
        chosen = self._chosen(volume_id, [candidate])
        if isinstance(chosen, Unfit):
            return chosen
        own = Path(chosen.path)
        return self._device(volume_id, own, self._disk_of(own), is_nvme=chosen.is_nvme)

    def _disk_of(self, path: Path) -> Path:
        number = _number(path)
        if number is None or not sysfs.is_partition(self._dirs, number):
            return path
        here = os.path.realpath(self._dirs.sys / "dev" / "block" / number)
        return path.with_name(Path(here).parent.name)

    def _device(self, volume_id: str, path: Path, disk: Path, *, is_nvme: bool) -> Device | Unfit:
        number = _number(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return Unfit(
                Reason.DEVICE_NOT_FOUND,
                f"volume {volume_id}: {path} cannot be opened: {error.strerror}",
            )
        try:
            size_bytes = os.lseek(fd, 0, os.SEEK_END)
        finally:
            os.close(fd)
        if number is None or not size_bytes:  # it is being removed, or is not set up yet
            return Unfit(Reason.DEVICE_NOT_FOUND, f"volume {volume_id}: {path} has no size (yet)")
        return Device(path, disk, volume_id, size_bytes, is_nvme, number)


def _is_of(candidate: Candidate, volume_id: str) -> bool:
    return rules.volume_of_serial(candidate.serial) == volume_id


def _number(path: Path) -> str | None:
    """The number of a block device, "major:minor"; None for anything else."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
