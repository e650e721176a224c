"""Whether a device that is known by its name only may be taken for a volume's; on Xen instances.

Each instance gives out the same names. An attachment that was made for the machine which had this
Node's name before may still be there, and its name be that of another volume on this one. So a name
counts only if the attachment was made for this very instance. NVMe disks say themselves which
volume they are.
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
    """Refuses names that are not this instance's.

    Args:
        attachments: asked where the kubelet hands on no instance.
        instance: this one.
        mounts: what is mounted.
        blocking: reads beside mounts, which may be anywhere, below a dead NFS too.
    """

    def __init__(
        self, attachments: NodeKube, instance: Metadata, mounts: Mounts, blocking: BlockingCalls
    ) -> None:
        self._attachments = attachments
        self._instance = instance
        self._mounts = mounts
        self._blocking = blocking

    async def check(self, device: Device, publish_context: Mapping[str, str]) -> None:
        """See whether a device may be the volume's; of NVMe disks that is known already.

        Our controller records the instance with the device. Where that is missing (another
        controller attached it, or an older one of ours; a call without a publish context), it is
        read from the VolumeAttachment. Where that says nothing either, the name is believed, as
        aws-ebs-csi-driver does.

        Args:
            device: as it was found.
            publish_context: what the kubelet hands on from the attachment; may be empty.

        Raises:
            NodeError: WRONG_DEVICE; METADATA_UNAVAILABLE, nobody tells which instance this is;
                TIMED_OUT, the kubelet's note beside a mount of the device does not come back.
            KubeError: the attachment cannot be read.
        """
        if device.is_nvme:
            return
        volume_id, path = device.volume_id, str(device.path)
        recorded = publish_context.get(INSTANCE_ID, "") or await self._recorded(volume_id)
        if not recorded:
            log.warning("a device is taken by its name alone", volume=volume_id, device=path)
        elif recorded != (own := await self._instance.instance_id()):
            message = rules.attached_to_another(volume_id, path, recorded, own)
            raise NodeError(Reason.WRONG_DEVICE, message)
        for mount in mount_table_rules.of_device(device.number, self._mounts.table()):
            what = f"reading the kubelet's note beside {mount.path}"
            other = await self._blocking.call(what, partial(noted_volume, mount), what=what)
            if other not in {"", volume_id}:
                message = rules.has_another(volume_id, path, other, mount.path)
                raise NodeError(Reason.WRONG_DEVICE, message)

    async def _recorded(self, volume_id: str) -> str:
        found = await self._attachments.attachment(volume_id)
        return found.instance_id if found is not None else ""
