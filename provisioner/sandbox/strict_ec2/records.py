"""The life of one volume, kept beside moto's Volume object.

creating → available ⇄ in-use → (gone), or creating → error / vanished. An attachment goes
attaching → attached → detaching (or busy) → gone. moto's own code reads ``Volume.status``,
``Volume.attachment`` and the instance's block devices, so those are kept in step.
"""

from dataclasses import dataclass, field
from typing import Any

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.errors import instance_not_found, volumes_not_found
from provisioner.sandbox.strict_ec2.modification import Modification


@dataclass(frozen=True, slots=True)
class Initialization:
    """One initialization; seconds are of the world's clock.

    ``kind``: ``default``, ``provisioned-rate`` or ``volume-copy``, as DescribeVolumeStatus has it.
    """

    kind: str
    begun_s: float
    completed_from_s: float
    rate_mibps: int | None = None
    fast_restored: bool = False

    def is_running(self, now_s: float) -> bool:
        """Tell whether blocks are still missing."""
        return now_s < self.completed_from_s

    def progress_percent(self, seen_s: float) -> int:
        """Return how much has arrived, in step with time."""
        if not self.is_running(seen_s):
            return 100
        whole_s = self.completed_from_s - self.begun_s
        return min(99, int(100 * (seen_s - self.begun_s) / whole_s))


@dataclass(slots=True)
class Record:
    """What we know of a volume beyond moto; volumes that moto makes itself start available."""

    state: str = "available"
    visible_at_s: float = 0.0
    outpost_arn: str = ""
    attachments: dict[str, Any] = field(default_factory=dict)  # instance id -> VolumeAttachment
    source_volume_id: str = ""  # of a copy
    initialization: Initialization | None = None  # of a restored or copied volume
    modification: Modification | None = None
    # what readers still see while the latest is not visible
    former_modification: Modification | None = None
    modified_at_s: list[float] = field(default_factory=list)
    snapshot_at_s: float | None = None  # when the last one was taken
    xml: str | None = None


def record_of(volume: Any) -> Record:
    """Return a volume's record, made on first sight."""
    record: Record | None = volume.__dict__.get("strict")
    if record is None:
        record = volume.__dict__["strict"] = Record()
    return record


def status_of(volume: Any) -> str:
    """Return the state as DescribeVolumes words it."""
    record = record_of(volume)
    return "in-use" if record.attachments else record.state


def usable_gib(volume: Any) -> int:
    """Return the size that an instance sees, which DescribeVolumes may not show yet."""
    latest = record_of(volume).modification
    if latest is not None and latest.state in ("optimizing", "completed"):
        return latest.target.size_gib
    return int(volume.size)


def is_fast_restored(volume: Any) -> bool:
    """Tell whether a volume was made of a snapshot with fast restore in its zone."""
    initialization = record_of(volume).initialization
    return initialization is not None and initialization.fast_restored


def visible(volume: Any, now_s: float) -> bool:
    """Tell whether EC2's readers know the volume already."""
    return record_of(volume).visible_at_s <= now_s


def find_volume(backend: Any, volume_id: str, now_s: float) -> Any:
    """Return moto's volume.

    Raises: ``InvalidVolume.NotFound``, also for one that is not yet visible.
    """
    volume = backend.volumes.get(volume_id)
    if volume is None or not visible(volume, now_s):
        raise volumes_not_found([volume_id])
    return volume


def find_instance(backend: Any, instance_id: str) -> Any:
    """Return moto's instance.

    Raises: ``InvalidInstanceID.NotFound``.
    """
    instance = backend.get_instance_by_id(instance_id)
    if instance is None:
        raise instance_not_found(instance_id)
    return instance


def touch(volume: Any) -> None:
    """Forget the rendered form after a change."""
    record_of(volume).xml = None


def put_attachment(
    volume: Any, instance: Any, device: str, *, state: str, delete_on_termination: bool = False
) -> Any:
    """Attach on both sides, volume and instance; returns moto's VolumeAttachment."""
    attachment = motos.VolumeAttachment(volume, instance, device, state)
    attachment.delete_on_termination = delete_on_termination
    record_of(volume).attachments[instance.id] = attachment
    instance.block_device_mapping[device] = motos.BlockDeviceType(
        volume_id=volume.id,
        status=state,
        size=volume.size,
        attach_time=attachment.attach_time,
        delete_on_termination=delete_on_termination,
    )
    touch(volume)
    return attachment


def set_attachment_state(attachment: Any, state: str) -> None:
    """Move an attachment on, as the volume and the instance show it."""
    attachment.status = state
    block = attachment.instance.block_device_mapping.get(attachment.device)
    if block is not None and block.volume_id == attachment.volume.id:
        block.status = state
    touch(attachment.volume)


def is_current(attachment: Any) -> bool:
    """Tell whether an attachment still stands: a late transition must not touch a later one."""
    return record_of(attachment.volume).attachments.get(attachment.instance.id) is attachment


def drop_attachment(attachment: Any) -> None:
    """End an attachment on both sides; nothing happens when it has ended already."""
    if not is_current(attachment):
        return
    attachment.status = "detached"
    del record_of(attachment.volume).attachments[attachment.instance.id]
    block = attachment.instance.block_device_mapping.get(attachment.device)
    if block is not None and block.volume_id == attachment.volume.id:
        del attachment.instance.block_device_mapping[attachment.device]
    touch(attachment.volume)


def remove_volume(volume: Any) -> None:
    """Take a volume and its tags out of moto; its client token is burned by its absence."""
    backend = volume.ec2_backend
    if backend.volumes.get(volume.id) is volume:
        del backend.volumes[volume.id]
        backend.tags.pop(volume.id, None)
