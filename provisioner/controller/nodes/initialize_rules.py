"""Decide what a Node lacks that only EC2 knows, where no cloud controller fills it in.

A kubelet with ``--cloud-provider=external`` registers its node with a taint that keeps pods away
until a cloud controller has found the node's instance. Nothing is written unless the instance is
certain, and nothing is overwritten: a wrong zone would bring a pod's volume where the pod is not.
Source: k8s.io/cloud-provider controllers/node; cloud-provider-aws pkg/providers/v1/instances.go.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address

from provisioner.controller.shared.node_patch_rules import (
    Operation,
    labelled,
    with_provider_id,
    without_taints,
)
from provisioner.model.node import TYPE_LABEL, Node
from provisioner.model.tags import cluster_key
from provisioner.model.volume import Instance
from provisioner.model.zone import ZONE_LABEL

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
REGION_LABEL = "topology.kubernetes.io/region"
LABELS = (ZONE_LABEL, REGION_LABEL, TYPE_LABEL)
# An existing cloud controller needs seconds; this is for clusters without one.
MIN_AGE_S = 60.0
RUNNING = "running"
# A kubelet has one address of each type, two at most, and few names. Each costs a lookup in EC2,
# and a Node may claim any number of them.
MOST_NAMES = 4
MOST_ADDRESSES = 8

_NAMES = frozenset({"Hostname", "InternalDNS"})
_UNKNOWN = "Unknown"  # condition Ready of a node whose kubelet does not report
_SAGEMAKER = "ml."  # HyperPod's instance types have this before EC2's
_PROVIDER_ID = re.compile(r"aws:///?(?:([^/]*)/)?(i-[0-9a-z]{1,32})")
# These names go into EC2's filters, where * and ? are wild, and a value has 255 characters at most.
_MOST_OF_NAME = 253
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})+")
_SILENT = (
    "its kubelet does not answer (condition Ready is Unknown), so it may be gone, and another "
    "machine may have its address: if it is gone, delete the Node"
)


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
    if node.ready == _UNKNOWN:
        return Refusal(_SILENT)
    provider_id = node.spec.provider_id
    if provider_id:
        found = _PROVIDER_ID.fullmatch(provider_id)
        if found is None:
            return Refusal(
                f"spec.providerID is {provider_id[:80]}, which names no EC2 instance: nothing is "
                "filled in; providerID cannot be changed, so delete the Node and restart kubelet"
            )
        return Question(instance_id=found[2])
    asked = Question(names=tuple(sorted(_names(node))), addresses=tuple(sorted(_addresses(node))))
    if len(asked.names) > MOST_NAMES or len(asked.addresses) > MOST_ADDRESSES:
        return Refusal(
            f"the Node has {len(asked.names)} names and {len(asked.addresses)} addresses, but at "
            f"most {MOST_NAMES} and {MOST_ADDRESSES} are looked up: start kubelet with "
            "--provider-id=aws:///ZONE/INSTANCE-ID"
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
    what = f"the private name or primary address {', '.join((*asked.names, *asked.addresses))}"
    tag = f"tag {cluster_key(cluster_id)} (owned or shared)"
    if found:
        ids = ", ".join(sorted(found))
        return Refusal(f"{len(found)} running instances with the {tag} have {what}: {ids}")
    return Refusal(
        f"EC2 has no running instance with the {tag} and {what}: tag the instance, or start "
        "kubelet with --provider-id=aws:///ZONE/INSTANCE-ID"
    )


def contradiction(
    node: Node,
    instance: Instance,
    region: str,
    others: Iterable[Node],
    registered: Mapping[str, str],
) -> Refusal | None:
    """What contradicts that this is the node's instance, or what the Node already says.

    Args:
        node: as it is now.
        instance: what was found for it.
        region: of the instance.
        others: the nodes that name this instance, or none; an instance is one node.
        registered: as which instance plugins are registered (CSINode), by their nodes' names: the
            node's own, and all that are as this instance.
    """
    if node.ready == _UNKNOWN:
        return Refusal(_SILENT)
    who = f"instance {instance.instance_id}"
    if instance.state != RUNNING:
        return Refusal(f"EC2 says that {who} is {instance.state}, so it cannot be this node")
    if not instance.zone or not instance.instance_type:
        return Refusal(f"EC2 does not report the zone and type of {who}")
    return (
        _addressed_otherwise(node, instance)
        or _claimed(node, instance, others, registered)
        or _written_otherwise(node, instance, region)
    )


def _addressed_otherwise(node: Node, instance: Instance) -> Refusal | None:
    """Whether only a name has found it: an image keeps the name of the machine it was made from.

    Not checked if the Node names its instance: on an overlay network its address is not EC2's.
    """
    shown = frozenset[str]() if node.spec.provider_id else _addresses(node)
    if not shown or shown & set(instance.private_addresses):
        return None
    return Refusal(
        f"the Node shows InternalIP {', '.join(sorted(shown))}, but instance "
        f"{instance.instance_id} has {', '.join(instance.private_addresses) or 'none'} as primary "
        "private addresses, so its name alone is not enough: start kubelet with "
        "--provider-id=aws:///ZONE/INSTANCE-ID, or with --node-ip"
    )


def _written_otherwise(node: Node, instance: Instance, region: str) -> Refusal | None:
    """Which label, or the providerID, already says something else."""
    who = f"instance {instance.instance_id}"
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


def _claimed(
    node: Node, instance: Instance, others: Iterable[Node], registered: Mapping[str, str]
) -> Refusal | None:
    """Which other node the instance may be, or which other instance this node is.

    Neither of two nodes is certain if they show the same address, or two addresses of the instance.
    A node plugin that reaches the metadata service knows better than an address, which EC2 assigns
    again. Nodes that are known to be another instance may have old addresses.
    """
    who, own = f"instance {instance.instance_id}", registered.get(node.name, "")
    if own not in {"", instance.instance_id}:
        return Refusal(f"its node plugin is registered as {own} (CSINode), but EC2 has found {who}")
    shown = frozenset[str]()
    if not node.spec.provider_id:
        shown = _names(node) | _addresses(node) | {instance.private_dns_name.lower()}
        shown |= set(instance.private_addresses)
    for other in others:
        if other.name == node.name:
            continue
        if other.instance_id == instance.instance_id:
            return Refusal(f"{who} is already node {other.name}, by its spec.providerID")
        if other.instance_id or not shown:
            continue
        if same := shown & (_names(other) | _addresses(other)):
            return Refusal(
                f"node {other.name} may be {who} too (it has {min(same)}), and neither names its "
                "instance: delete the Node that is gone, or start kubelet with "
                "--provider-id=aws:///ZONE/INSTANCE-ID"
            )
    for name, told in registered.items():
        if name != node.name and told == instance.instance_id:
            return Refusal(f"{who} is already node {name}, by its node plugin (CSINode)")
    return None


def operations(node: Node, instance: Instance, region: str) -> list[Operation]:
    """Fill in what is missing and remove the taint, in one change."""
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


def _names(node: Node) -> frozenset[str]:
    """Its private DNS names, in lower case; other names are left out."""
    given = [each.address for each in node.status.addresses or () if each.type in _NAMES]
    names = (name.lower() for name in (node.name, *given) if len(name) <= _MOST_OF_NAME)
    return frozenset(name for name in names if _DNS_NAME.fullmatch(name))


def _addresses(node: Node) -> frozenset[str]:
    """Its private IPv4 addresses."""
    given = (each.address for each in node.status.addresses or () if each.type == "InternalIP")
    return frozenset(address for address in given if _is_ipv4(address))


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
