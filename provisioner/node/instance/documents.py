"""What the API server and the metadata service say about this node, decoded.

The controller caches thousands of Nodes and VolumeAttachments and keeps other fields of their
status. The node plugin reads one Node, now and then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from provisioner.model.attachment import NODE_ID, AttachmentSpec
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.meta import KubeObject
from provisioner.model.names import INSTANCE_ID
from provisioner.model.node import TYPE_LABEL, NodeSpec
from provisioner.model.volume import normalised_handle
from provisioner.model.zone import (
    EBS_ZONE_LABEL,
    ZONE_LABEL,
    outpost_arn_of,
    outpost_segments,
)

OS_LABEL = "kubernetes.io/os"
# SageMaker HyperPod's names of instance types have this before EC2's.
_SAGEMAKER = "ml."
# What kubelet and kube-controller-manager write before a CSI volume's handle.
_CSI = "kubernetes.io/csi/"


class AttachedVolume(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``status.volumesAttached``."""

    name: str = ""


class NodeCondition(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``status.conditions``; ``status`` is True, False or Unknown."""

    type: str = ""
    status: str = ""
    message: str = ""


class NodeStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a node."""

    volumes_attached: list[AttachedVolume] | None = None
    volumes_in_use: list[str] | None = None
    conditions: list[NodeCondition] | None = None


class NodeView(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus | None = None

    @property
    def instance_id(self) -> str:
        """The EC2 instance that ``spec.providerID`` names, "" if it names none."""
        return self.spec.instance_id

    @property
    def ready(self) -> NodeCondition:
        """Its condition Ready; an empty one if it has none."""
        conditions = (self.status.conditions if self.status else None) or ()
        return next((each for each in conditions if each.type == "Ready"), NodeCondition())

    def in_use(self, driver: str = EBS_DRIVER) -> frozenset[str]:
        """The ids of this driver's volumes that the kubelet has staged, or is about to stage."""
        names = (self.status.volumes_in_use if self.status else None) or ()
        return frozenset(normalised_handle(handle) for handle in _handles(names, driver))

    def volumes(self, driver: str = EBS_DRIVER) -> frozenset[str]:
        """The ids of this driver's volumes that are attached or in use, by the Node's status."""
        return frozenset(normalised_handle(handle) for handle in self._all(driver))

    def handles_of(self, volume_id: str, driver: str = EBS_DRIVER) -> frozenset[str]:
        """The handles under which the Node's status lists a volume."""
        handles = self._all(driver)
        return frozenset(each for each in handles if normalised_handle(each) == volume_id)

    def _all(self, driver: str) -> list[str]:
        status = self.status or NodeStatus()
        names = [each.name for each in status.volumes_attached or ()]
        return _handles([*names, *(status.volumes_in_use or ())], driver)


def _handles(names: Iterable[str], driver: str) -> list[str]:
    prefix = f"{_CSI}{driver}^"
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


class AttachmentStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of an attachment."""

    attached: bool = False
    attachment_metadata: dict[str, str] | None = None


class AttachmentView(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeAttachment."""

    spec: AttachmentSpec = AttachmentSpec()
    status: AttachmentStatus | None = None

    @property
    def persistent_volume(self) -> str:
        """The name of its PersistentVolume, "" for an inline volume."""
        return self.spec.source.persistent_volume_name or ""

    @property
    def device_path(self) -> str:
        """The device name given to AttachVolume, for example /dev/xvdba; "" if unknown."""
        return self._metadata.get("devicePath", "")

    @property
    def instance_id(self) -> str:
        """The instance that it was attached to; "" if that is not recorded.

        Our controller writes the first with the device. Our controller and external-attacher write
        the second earlier. Neither changes while the volume is attached.
        """
        return self._metadata.get(INSTANCE_ID, "") or self.annotations.get(NODE_ID, "")

    @property
    def _metadata(self) -> Mapping[str, str]:
        return (self.status.attachment_metadata if self.status is not None else None) or {}


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """What is known of an instance.

    Attributes:
        instance_id: for example "i-0123456789abcdef0".
        instance_type: for example "m5.large".
        zone: its Availability Zone or Local Zone.
        outpost_arn: the Outpost that it runs on; "" for none.
    """

    instance_id: str
    instance_type: str
    zone: str
    outpost_arn: str = ""


class Document(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The fields of the instance identity document that are used (EC2 user guide)."""

    instance_id: str = ""
    instance_type: str = ""
    availability_zone: str = ""


def of_document(data: bytes, outpost_arn: str) -> InstanceIdentity:
    """Read the instance identity document.

    Args:
        data: JSON.
        outpost_arn: of ``meta-data/outpost-arn``; "" for none.

    Raises:
        ValueError: it is malformed, or a field is missing.
    """
    try:
        document = msgspec.json.decode(data, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ValueError(f"the instance identity document cannot be read: {exc}") from exc
    needed = {
        "instanceId": document.instance_id,
        "instanceType": document.instance_type,
        "availabilityZone": document.availability_zone,
    }
    if missing := [name for name, value in needed.items() if not value]:
        raise ValueError(f"the instance identity document lacks {' and '.join(missing)}")
    return InstanceIdentity(
        document.instance_id, document.instance_type, document.availability_zone, outpost_arn
    )


def of_node(node: NodeView) -> InstanceIdentity:
    """Read a Node object, whose labels a cloud controller manager sets.

    An Outpost is known only from the labels that kubelet wrote when an earlier run of the plugin
    had learned it from the instance.

    Raises:
        ValueError: something is still missing.
    """
    labels = node.labels
    instance_type = labels.get(TYPE_LABEL, "").removeprefix(_SAGEMAKER)
    zone = labels.get(ZONE_LABEL, "")
    needed = {
        "spec.providerID of an EC2 instance": node.instance_id,
        f"the label {TYPE_LABEL}": instance_type,
        f"the label {ZONE_LABEL}": zone,
    }
    if missing := [name for name, value in needed.items() if not value]:
        raise ValueError(f"Node {node.name} lacks {' and '.join(missing)}")
    return InstanceIdentity(node.instance_id, instance_type, zone, outpost_arn_of(labels) or "")


def segments_of(identity: InstanceIdentity) -> dict[str, str]:
    """The topology labels that kubelet writes on the Node.

    The zone also gets the label that aws-ebs-csi-driver used before v1.33, which older
    PersistentVolumes require. An Outpost has four keys more.
    """
    return {
        ZONE_LABEL: identity.zone,
        EBS_ZONE_LABEL: identity.zone,
        OS_LABEL: "linux",
        **outpost_segments(identity.outpost_arn),
    }
