"""Whether a device that is known only by its name may be a volume's; on Xen instances.

All instances use the same device names. An attachment made for a machine that had this Node's name
before may still exist, and its device name may be another volume's on this machine. So a name
counts only if the attachment was made for this instance. NVMe disks report their volume themselves.
"""

from collections.abc import Mapping
from functools import partial

import structlog

from provisioner.model.errors import NodeError, Reason
from provisioner.model.names import INSTANCE_ID
from provisioner.node.devices import rules
from provisioner.node.devices.lookup import Device
from provisioner.node.instance.kube import NodeKube
from provisioner.node.instance.metadata import Metadata
from provisioner.node.mounting.mounts import Mounts
from provisioner.node.runtime import mount_table_rules
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.paths import noted_volume

log = structlog.get_logger(__name__)


class AttachedHere:
    """Refuses names that were given on another instance.

    Args:
        attachments: read if the kubelet passes no instance.
        instance: this one.
        mounts: what is mounted.
        blocking: reads files beside mounts, which may be on anything, also on a dead NFS.
    """

    def __init__(
        self, attachments: NodeKube, instance: Metadata, mounts: Mounts, blocking: BlockingCalls
    ) -> None:
        self._attachments = attachments
        self._instance = instance
        self._mounts = mounts
        self._blocking = blocking

    async def check(self, device: Device, publish_context: Mapping[str, str]) -> None:
        """Check that a device may be the volume's; NVMe disks have been checked by their serial.

        Our controller records the instance with the device. If that is missing (another controller,
        or an older version of ours, attached it; or the call has no publish context), it is read
        from the VolumeAttachment. If that has none either, the name is trusted, as
        aws-ebs-csi-driver does.

        Args:
            device: as it was found.
            publish_context: what the kubelet passes on from the attachment; may be empty.

        Raises:
            NodeError: WRONG_DEVICE; METADATA_UNAVAILABLE, it is unknown which instance this is;
                TIMED_OUT, reading the kubelet's vol_data.json beside a mount hangs.
            KubeError: the attachment cannot be read.
        """
        if device.is_nvme:
            return
        volume_id, path = device.volume_id, str(device.path)
        recorded = publish_context.get(INSTANCE_ID, "") or await self._recorded(volume_id)
        if not recorded:
            log.warning("trusting a device by its name alone", volume=volume_id, device=path)
        elif recorded != (own := await self._instance.instance_id()):
            message = rules.attached_to_another(volume_id, path, recorded, own)
            raise NodeError(Reason.WRONG_DEVICE, message)
        for mount in mount_table_rules.of_device(device.number, self._mounts.table()):
            what = f"reading vol_data.json beside {mount.path}"
            other = await self._blocking.call(what, partial(noted_volume, mount), what=what)
            if other not in {"", volume_id}:
                message = rules.has_another(volume_id, path, other, mount.path)
                raise NodeError(Reason.WRONG_DEVICE, message)

    async def device_name(self, volume_id: str) -> str:
        """The name under which the volume was attached to this Node; "" if unknown.

        Raises:
            KubeError: the attachment cannot be read.
        """
        found = await self._attachments.attachment(volume_id)
        return found.device_path if found is not None else ""

    async def _recorded(self, volume_id: str) -> str:
        found = await self._attachments.attachment(volume_id)
        return found.instance_id if found is not None else ""
