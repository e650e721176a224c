"""VolumeAttachments: a volume is requested on a node; the status says what became of it."""

import hashlib

import msgspec

from provisioner.model.meta import UnlabelledMeta, UnlabelledObject
from provisioner.model.names import INSTANCE_ID, MADE_FROM, MULTI_ATTACH, READ_ONLY
from provisioner.model.persistent_volume import PersistentVolumeSpec

# external-attacher 4.12 records the instance here; the kubelet's annotation on Node differs.
NODE_ID = "csi.alpha.kubernetes.io/node-id"
BLANK = "blank"  # in place of what a volume was made from


class AttachmentSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.source``: a persistent volume's name, or an inline volume."""

    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class AttachmentSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class AttachmentError(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status.attachError`` or ``status.detachError``."""

    message: str = ""
    time: str | None = None


class AttachmentMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status.attachmentMetadata``: what of it the controller asks for."""

    device_path: str = ""


class AttachmentStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of an attachment."""

    attached: bool = False
    attachment_metadata: AttachmentMetadata | None = None
    attach_error: AttachmentError | None = None
    detach_error: AttachmentError | None = None


class AttachmentMeta(UnlabelledMeta, frozen=True, rename="camel", gc=False, kw_only=True):
    """``metadata`` of an attachment. No other object names its UID, as one does a claim's."""


class Attachment(UnlabelledObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeAttachment."""

    metadata: AttachmentMeta = AttachmentMeta()
    spec: AttachmentSpec = AttachmentSpec()
    status: AttachmentStatus | None = None

    @property
    def attached(self) -> bool:
        """Whether it is reported as attached."""
        return self.status is not None and self.status.attached

    @property
    def device(self) -> str:
        """The device name that was reported with it, "" if none was."""
        found = self.status.attachment_metadata if self.status is not None else None
        return found.device_path if found is not None else ""


def attachment_name(volume_handle: str, driver: str, node: str) -> str:
    """The name that kube-controller-manager gives an attachment.

    Source: Kubernetes 1.36 pkg/volume/csi/csi_attacher.go ``getAttachmentName``.
    """
    digest = hashlib.sha256(f"{volume_handle}{driver}{node}".encode()).hexdigest()
    return f"csi-{digest}"


def attachment_metadata(
    device: str, instance_id: str, made_from: str, *, multi_attach: bool, read_only: bool = False
) -> dict[str, str]:
    """``status.attachmentMetadata``, which the kubelet hands to the node plugin."""
    more = {MULTI_ATTACH: "true"} if multi_attach else {}
    more |= {READ_ONLY: "true"} if read_only else {}
    return {"devicePath": device, INSTANCE_ID: instance_id, MADE_FROM: made_from} | more
