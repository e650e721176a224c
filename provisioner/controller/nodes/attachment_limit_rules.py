"""How many of our volumes fit on an instance, and what EC2's data on instance types is worth."""

import re
from collections.abc import Iterable, Mapping

from provisioner.controller.shared.node_patch_rules import Operation, annotated
from provisioner.model.attachment_limit import (
    AttachmentLimit,
    DescribedType,
    NotedLimit,
    known_limit,
)
from provisioner.model.names import ATTACHMENT_LIMIT
from provisioner.model.node import TYPE_LABEL, CsiNode, Node

# Linux on Xen takes 40 with the root volume, and more only by luck. EC2 tells 39 of some types and
# 40 of others; the lower holds for all, as in aws-ebs-csi-driver v1.64.
XEN_LIMIT = 39

_SAGEMAKER = "ml."  # HyperPod's names of instance types have this before EC2's
_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")  # goes into a filter, where * and ? are wild


def limits_of(described: Iterable[DescribedType]) -> dict[str, AttachmentLimit]:
    """What these instance types take, with two things put right that EC2 tells wrongly.

    - Xen types are told as shared, but there network interfaces are no NVMe devices and take none
      of the places.
    - Some metal sizes are told as shared although all other sizes of their family have a dedicated
      limit; the whole family moved to dedicated limits together. Source: EC2 user guide (limits
      are told by family, "metal-48xl: 79 dedicated"), aws-ebs-csi-driver v1.64, which has a list
      of such types by hand.

    Args:
        described: whole families: the second rule looks at the other sizes.
    """
    types = list(described)
    shared = {each.family for each in types if each.is_shared and not each.is_metal}
    dedicated = {each.family for each in types if not each.is_shared and not each.is_metal}
    return {
        each.instance_type: _corrected(each, others_are_dedicated=each.family in dedicated - shared)
        for each in types
    }


def _corrected(each: DescribedType, *, others_are_dedicated: bool) -> AttachmentLimit:
    if each.is_xen:
        return AttachmentLimit(min(each.max_attachments, XEN_LIMIT), is_shared=False)
    is_shared = each.is_shared and not (each.is_metal and others_are_dedicated)
    return AttachmentLimit(each.max_attachments, is_shared)


def unknown_type(node: Node, csi_node: CsiNode | None, driver: str) -> str:
    """The instance type of a node of ours that is not in the table; "" if there is nothing to ask.

    A node is one of ours if the driver is registered there, or if it names an EC2 instance.
    """
    instance_type = type_of(node)
    registered = csi_node is not None and csi_node.driver(driver) is not None
    is_ours = registered or bool(node.instance_id)
    if node.deleting or not is_ours or not _TYPE.fullmatch(instance_type):
        return ""
    return "" if known_limit(instance_type) is not None else instance_type


def type_of(node: Node) -> str:
    """The EC2 instance type that a node's label tells, "" for none."""
    return node.labels.get(TYPE_LABEL, "").removeprefix(_SAGEMAKER)


def noted(node: Node, instance_type: str, limit: AttachmentLimit) -> list[Operation]:
    """Note on a node what its instance takes, if it still is of that type."""
    if type_of(node) != instance_type:
        return []
    return annotated(node, {ATTACHMENT_LIMIT: str(NotedLimit(instance_type, limit))})


def table_of(limits: Mapping[str, AttachmentLimit]) -> list[str]:
    """The lines of the table that ``model.attachment_limit`` reads, sorted."""
    sizes: dict[tuple[str, str], list[str]] = {}
    for instance_type, limit in sorted(limits.items()):
        family, _, size = instance_type.partition(".")
        sizes.setdefault((family, str(limit)), []).append(size)
    return [f"{family} {limit}: {' '.join(names)}" for (family, limit), names in sizes.items()]
