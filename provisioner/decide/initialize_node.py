"""Decide what a Node lacks that only EC2 knows, where no cloud controller fills it in.

A kubelet with ``--cloud-provider=external`` registers its node with a taint that keeps pods away
until a cloud controller has found the node's instance. Nothing is written unless the instance is
certain, and nothing is overwritten: a wrong zone would bring a pod's volume where the pod is not.
Source: k8s.io/cloud-provider controllers/node; cloud-provider-aws pkg/providers/v1/instances.go.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address

from provisioner.decide.instance_identity import TYPE_LABEL
from provisioner.decide.node_patch import Operation, labelled, with_provider_id, without_taints
from provisioner.model.node import Node
from provisioner.model.tags import cluster_key
from provisioner.model.volume import Instance
from provisioner.model.zone import ZONE_LABEL

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
REGION_LABEL = "topology.kubernetes.io/region"
LABELS = (ZONE_LABEL, REGION_LABEL, TYPE_LABEL)
# A cloud controller that is there needs seconds; we are for clusters that have none.
MIN_AGE_S = 60.0
RUNNING = "running"

_NAMES = frozenset({"Hostname", "InternalDNS"})
_SAGEMAKER = "ml."  # HyperPod's instance types have this before EC2's
_PROVIDER_ID = re.compile(r"aws:///?(?:([^/]*)/)?(i-[0-9a-z]+)")


@dataclass(frozen=True, slots=True)
class Question:
    """How to find a node's instance: by its id, or by any of its names and addresses."""

    instance_id: str = ""
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is done, for the node's event."""

    message: str


def is_lacking(node: Node) -> bool:
    """Whether the node waits for a cloud controller, or lacks what one writes."""
    waits = any(taint.key == TAINT for taint in node.spec.taints or ())
    lacks = not node.spec.provider_id or not all(node.labels.get(key) for key in LABELS)
    return not node.deleting and (waits or lacks)


def wait_s(node: Node, now: datetime) -> float:
    """Seconds until the node has waited long enough; at most 0 once it has."""
    since = [_time(each.time_added) for each in node.spec.taints or () if each.key == TAINT]
    known = [each for each in since if each is not None]
    begun = max(known, default=node.metadata.creation_timestamp)
    return MIN_AGE_S if begun is None else MIN_AGE_S - (now - begun).total_seconds()


def question(node: Node) -> Question | Refusal:
    """How to find the node's instance."""
    provider_id = node.spec.provider_id
    if provider_id:
        found = _PROVIDER_ID.fullmatch(provider_id)
        if found is None:
            return Refusal(
                f"spec.providerID is {provider_id[:80]}, which names no EC2 instance: nothing is "
                "filled in; a providerID cannot be changed, only the Node deleted and made anew"
            )
        return Question(instance_id=found[2])
    addresses = [each for each in node.status.addresses or () if each.address]
    names = [node.name, *(each.address for each in addresses if each.type in _NAMES)]
    ips = [each.address for each in addresses if each.type == "InternalIP"]
    asked = Question(
        names=tuple(sorted({name.lower() for name in names if "." in name})),
        addresses=tuple(sorted({each for each in ips if _is_ipv4(each)})),
    )
    if not asked.names and not asked.addresses:
        return Refusal(
            "the Node has neither a private DNS name nor an InternalIP (IPv4) by which its "
            "instance could be found: start kubelet with --provider-id=aws:///ZONE/INSTANCE-ID, "
            "or with --node-ip"
        )
    return asked


def the_only(
    candidates: Iterable[Instance], asked: Question, cluster_id: str
) -> Instance | Refusal:
    """The node's instance, if exactly one was found by its names and addresses."""
    found = {each.instance_id: each for each in candidates}
    if len(found) == 1:
        return next(iter(found.values()))
    what = f"the private name or address {', '.join((*asked.names, *asked.addresses))}"
    tag = f"tag {cluster_key(cluster_id)} (owned or shared)"
    if found:
        ids = ", ".join(sorted(found))
        return Refusal(f"{len(found)} running instances with the {tag} have {what}: {ids}")
    return Refusal(
        f"EC2 has no running instance with the {tag} and {what}: tag the instance, or start "
        "kubelet with --provider-id=aws:///ZONE/INSTANCE-ID"
    )


def contradiction(
    node: Node, instance: Instance, region: str, others: Iterable[Node]
) -> Refusal | None:
    """What speaks against this instance being the node's, or against what stands on the Node.

    Args:
        node: as it is now.
        instance: what was found for it.
        region: of the instance.
        others: all nodes; an instance is one node.
    """
    who = f"instance {instance.instance_id}"
    if instance.state != RUNNING:
        return Refusal(f"EC2 says that {who} is {instance.state}, so it cannot be this node")
    if not instance.zone or not instance.instance_type:
        return Refusal(f"EC2 does not tell zone and type of {who}")
    for other in others:
        if other.name != node.name and other.instance_id == instance.instance_id:
            return Refusal(f"{who} is node {other.name} already, by its spec.providerID")
    for key, value in _facts(instance, region).items():
        has = node.labels.get(key, "")
        if has and has.removeprefix(_SAGEMAKER if key == TYPE_LABEL else "") != value:
            return Refusal(
                f"the label {key} is {has}, but EC2 says {value} of {who}: nothing is changed; "
                "correct the label or remove it"
            )
    named = _PROVIDER_ID.fullmatch(node.spec.provider_id)
    if named is not None and (named[1] or instance.zone, named[2]) != (
        instance.zone,
        instance.instance_id,
    ):
        return Refusal(
            f"spec.providerID is {node.spec.provider_id}, but EC2 has {who} in {instance.zone}: "
            "nothing is changed"
        )
    return None


def operations(node: Node, instance: Instance, region: str) -> list[Operation]:
    """Fill in what is missing and remove the taint, as one change: nobody sees one alone."""
    missing = {k: v for k, v in _facts(instance, region).items() if not node.labels.get(k)}
    provider_id = f"aws:///{instance.zone}/{instance.instance_id}"
    return [
        *labelled(node, missing),
        *(() if node.spec.provider_id else with_provider_id(provider_id)),
        *without_taints(node, TAINT),
    ]


def _facts(instance: Instance, region: str) -> dict[str, str]:
    return {
        ZONE_LABEL: instance.zone,
        REGION_LABEL: region,
        TYPE_LABEL: instance.instance_type,
    }


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None
