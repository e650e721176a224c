"""How many of our volumes fit on an instance, and which of EC2's data on types are wrong."""

import re
from collections.abc import Iterable, Mapping

from provisioner.controller.shared.node_patch_rules import Operation, annotated
from provisioner.model.instance_type_limit import (
    AttachmentLimit,
    DescribedType,
    NotedLimit,
    known_limit,
)
from provisioner.model.names import ATTACHMENT_LIMIT
from provisioner.model.node import TYPE_LABEL, CsiNode, Node

# Linux on Xen supports 40 with the root volume, and more only by luck. EC2 reports 39 for some
# types and 40 for others; the lower one is right for all, as in aws-ebs-csi-driver v1.64.
XEN_LIMIT = 39

_SAGEMAKER = "ml."  # HyperPod's names of instance types have this before EC2's
_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")  # goes into a filter, where * and ? are wild


def limits_of(described: Iterable[DescribedType]) -> dict[str, AttachmentLimit]:
    """The limits of these instance types, with two corrections of what EC2 reports.

    - Xen types are reported as shared, but their network interfaces are not NVMe devices and do not
      count.
    - Some metal sizes are reported as shared although all other sizes of their family have a
      dedicated limit; the whole family moved to dedicated limits together. Source: EC2 user guide
      (limits are given by family, "metal-48xl: 79 dedicated"), aws-ebs-csi-driver v1.64, which has
      a manual list of such types.

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
    """The instance type of a node of ours, if it is not in the table, else "".

    A node is one of ours if the driver is registered there, or if it names an EC2 instance.
    """
    instance_type = type_of(node)
    registered = csi_node is not None and csi_node.driver(driver) is not None
    is_ours = registered or bool(node.instance_id)
    if node.deleting or not is_ours or not _TYPE.fullmatch(instance_type):
        return ""
    return "" if known_limit(instance_type) is not None else instance_type


def type_of(node: Node) -> str:
    """The EC2 instance type in a node's label, "" for none."""
    return node.labels.get(TYPE_LABEL, "").removeprefix(_SAGEMAKER)


def noted(node: Node, instance_type: str, limit: AttachmentLimit) -> list[Operation]:
    """Write to a node the limit of its instance, if it still is of that type."""
    if type_of(node) != instance_type:
        return []
    return annotated(node, {ATTACHMENT_LIMIT: str(NotedLimit(instance_type, limit))})


def table_of(limits: Mapping[str, AttachmentLimit]) -> list[str]:
    """The lines of the table that ``model.instance_type_limit`` reads, sorted."""
    sizes: dict[tuple[str, str], list[str]] = {}
    for instance_type, limit in sorted(limits.items()):
        family, _, size = instance_type.partition(".")
        sizes.setdefault((family, str(limit)), []).append(size)
    return [f"{family} {limit}: {' '.join(names)}" for (family, limit), names in sizes.items()]
