"""Which EC2 instance this node is: read from its identity document, or from its Node object."""

import msgspec

from provisioner.model.node_view import InstanceIdentity, NodeView
from provisioner.model.zone import (
    EBS_ZONE_LABEL,
    ZONE_LABEL,
    outpost_arn_of,
    outpost_segments,
)

TYPE_LABEL = "node.kubernetes.io/instance-type"
OS_LABEL = "kubernetes.io/os"
# SageMaker HyperPod's names of instance types have this before EC2's.
_SAGEMAKER = "ml."


class Document(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The instance identity document, as far as it is used (EC2 user guide)."""

    instance_id: str = ""
    instance_type: str = ""
    availability_zone: str = ""


def of_document(data: bytes, outpost_arn: str) -> InstanceIdentity:
    """Read the instance identity document.

    Args:
        data: JSON.
        outpost_arn: what ``meta-data/outpost-arn`` says, "" for none.

    Raises:
        ValueError: it is no such document, or a field that is needed is missing.
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
    """Read a Node object as a cloud controller fills it.

    An Outpost is known only from the labels that kubelet has written when an earlier run of the
    plugin learned it from the instance.

    Raises:
        ValueError: something is missing yet; the text says what.
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
    """The topology that kubelet writes on the Node: where volumes for it can be.

    The zone is also told by the label that aws-ebs-csi-driver used before v1.33, which older
    persistent volumes ask for. On an Outpost there are all of its four keys, else none of them.
    """
    return {
        ZONE_LABEL: identity.zone,
        EBS_ZONE_LABEL: identity.zone,
        OS_LABEL: "linux",
        **outpost_segments(identity.outpost_arn),
    }
