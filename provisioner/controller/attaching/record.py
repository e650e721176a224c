"""What is written of an attachment: what holds its objects, and what its status tells."""

from datetime import UTC, datetime
from typing import Any

import structlog

from provisioner.controller.attaching.rules import Attached, Target
from provisioner.controller.shared.caches import Caches
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import ATTACHMENTS, PERSISTENT_VOLUMES
from provisioner.model.attachment import NODE_ID, Attachment, attachment_metadata
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Reason, StorageError
from provisioner.model.names import VOLUME_ID
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher

# gRPC codes, which kubelet and the volume controller read in attachError.errorCode.
_NOT_FOUND, _RESOURCE_EXHAUSTED, _INTERNAL = 5, 8, 13
_CODES = {
    Reason.INSTANCE_FULL: _RESOURCE_EXHAUSTED,
    Reason.VOLUME_NOT_FOUND: _NOT_FOUND,
    Reason.INSTANCE_NOT_FOUND: _NOT_FOUND,
    Reason.OBJECT_NOT_FOUND: _NOT_FOUND,
}

log = structlog.get_logger(__name__)


class AttachmentRecord:
    """Writes to VolumeAttachments, and to PersistentVolumes what holds them meanwhile."""

    def __init__(self, *, driver: str, client: KubeClient, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._finalizer = finalizer_of_attacher(driver)

    async def hold(self, persistent_volume: PersistentVolume) -> PersistentVolume:
        """Keep a persistent volume for as long as it may be attached."""
        patch = {"metadata": {"uid": persistent_volume.uid, "finalizers": [self._finalizer]}}
        held = await self._client.patch(
            PERSISTENT_VOLUMES, persistent_volume.name, patch, kind=Patch.STRATEGIC
        )
        self._caches.persistent_volumes.observe(held)
        return held

    async def prepare(self, attachment: Attachment, target: Target) -> Attachment:
        """Keep an attachment, and note what goes where, before EC2 hears of it."""
        patch = {
            "metadata": {
                "uid": attachment.uid,
                "finalizers": [self._finalizer],
                "annotations": {NODE_ID: target.instance_id, VOLUME_ID: target.volume_id},
            }
        }
        prepared = await self._client.patch(
            ATTACHMENTS, attachment.name, patch, kind=Patch.STRATEGIC
        )
        self._caches.attachments.observe(prepared)
        return prepared

    async def attached(self, attachment: Attachment, found: Attached) -> None:
        """Tell that the volume is there, and by which name."""
        metadata = attachment_metadata(
            found.device, found.target.instance_id, found.made_from, multi_attach=found.multi_attach
        )
        status = {"attached": True, "attachmentMetadata": metadata, "attachError": None}
        await self._patch_status(attachment, status)

    async def let_go(self, attachment: Attachment) -> None:
        """Let go: the finalizer first, or the status update would start another detach."""
        remove = {"$deleteFromPrimitiveList/finalizers": [self._finalizer]}
        patch = {"metadata": {"uid": attachment.uid, **remove}}
        try:
            left = await self._client.patch(
                ATTACHMENTS, attachment.name, patch, kind=Patch.STRATEGIC
            )
            self._caches.attachments.observe(left)
            if left.finalizers:  # somebody else still holds the object
                gone = {"attached": False, "detachError": None, "attachmentMetadata": None}
                await self._patch_status(left, gone)
        except KubeError as error:
            if error.reason not in CHANGED_MEANWHILE:
                raise

    async def tell(self, attachment: Attachment, error: StorageError | None) -> None:
        """Write the error where the volume controller shows it to the pod's user, once.

        Not that another replica goes on: the volume controller would give up its try for it.
        """
        if error is None or error.reason is Reason.NOT_LEADING:
            return
        field = "detachError" if attachment.deleting else "attachError"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status: dict[str, Any] = {field: {"message": error.message, "time": now}}
        if field == "attachError":
            status[field]["errorCode"] = _CODES.get(error.reason, _INTERNAL)
        before = attachment.status
        known = before and (before.detach_error if attachment.deleting else before.attach_error)
        if known and known.message == error.message:
            return
        try:
            await self._patch_status(attachment, status)
        except KubeError as failure:
            log.warning("cannot record", attachment=attachment.name, error=failure.message)

    async def _patch_status(self, attachment: Attachment, status: dict[str, Any]) -> None:
        """Merge into ``status`` of this very attachment."""
        patch = {"metadata": {"uid": attachment.uid}, "status": status}
        changed = await self._client.patch(
            ATTACHMENTS, attachment.name, patch, kind=Patch.MERGE, subresource="status"
        )
        self._caches.attachments.observe(changed)
