"""Nodes: taints that stay, zones, how many volumes fit, and who reaches the metadata service."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from provisioner.inspect.doctor.check_rules import (
    Finding,
    Rule,
    Verdict,
    counted,
    judged,
    skipped,
    unknown,
)
from provisioner.inspect.doctor.evidence_rules import ROLE_ANNOTATION, Evidence
from provisioner.inspect.reading.controller_rules import ours
from provisioner.model.node_affinity import REGION_LABEL, names_zone, region_of
from provisioner.model.taint import Taint
from provisioner.model.zone import ZONE_LABEL, zone_of

_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_SHOULD_BE_GONE = timedelta(minutes=10)
_HOPS = 2  # a pod's packet passes its node; EC2 user guide, "Instance metadata options"


def _startup_taints(seen: Evidence) -> Finding:
    wanted = {f"{seen.driver}/agent-not-ready", _UNINITIALIZED}
    problems = [
        f"Node {node.name} has the taint {taint.key} since {since:%Y-%m-%dT%H:%MZ}"
        for node in seen.cluster.nodes
        for taint in node.spec.taints or ()
        if taint.key in wanted
        and (since := _since(taint, node.metadata.creation_timestamp)) is not None
        and seen.now - since > _SHOULD_BE_GONE
    ]
    remedy = (
        "the controller removes agent-not-ready once CSINode has the driver with its limit (look "
        "at the node plugin there), a cloud controller or --initialize-nodes removes uninitialized"
    )
    return judged(problems, "no node has an old one", remedy)


def _since(taint: Taint, created: datetime | None) -> datetime | None:
    try:
        return datetime.fromisoformat(taint.time_added) if taint.time_added else created
    except ValueError:
        return created


def _out_of_service(seen: Evidence) -> Finding:
    problems = [
        f"Node {node.name} is ready and still has the taint {_OUT_OF_SERVICE}"
        for node in seen.cluster.nodes
        if node.ready == "True"
        and any(taint.key == _OUT_OF_SERVICE for taint in node.spec.taints or ())
    ]
    remedy = (
        f"kubectl taint node NODE {_OUT_OF_SERVICE}- : volumes of its pods are detached by force"
    )
    return judged(problems, "no ready node has it", remedy)


def _zone_labels(seen: Evidence) -> Finding:
    nodes = [node for node in seen.cluster.nodes if node.instance_id]
    if not nodes:
        return skipped("no Node names an EC2 instance in spec.providerID")
    problems = list(_zone_problems(seen))
    remedy = (
        "let the cloud controller set the labels, or start the controller with --initialize-nodes "
        "(docs/zones.md): volumes are created in the zone of the label"
    )
    return judged(problems, f"{counted(len(nodes), 'node')} checked", remedy)


def _zone_problems(seen: Evidence) -> Iterator[str]:
    for node in seen.cluster.nodes:
        if not node.instance_id:
            continue
        zone, region = zone_of(node.labels) or "", node.labels.get(REGION_LABEL, "")
        if not zone:
            yield f"Node {node.name} has no label {ZONE_LABEL}"
            continue
        if names_zone(zone) and region and region != region_of(zone):
            yield f"Node {node.name} is labelled with zone {zone} and region {region}"
        instance = seen.cloud.instances.get(node.instance_id)
        if instance is not None and instance.zone != zone:
            yield (
                f"Node {node.name} is labelled with zone {zone}, but EC2 has {node.instance_id} in "
                f"{instance.zone}"
            )


def _instances(seen: Evidence) -> Finding:
    named = {node.instance_id: node for node in seen.cluster.nodes if node.instance_id}
    if not named:
        return skipped("no Node names an EC2 instance in spec.providerID")
    if not seen.cloud.instances:
        return unknown(
            f"EC2 in {seen.cloud.region} shows none of them: another account or Region is asked",
            "see the checks region and account",
        )
    problems = []
    for instance_id, node in named.items():
        found = seen.cloud.instances.get(instance_id)
        if found is None or found.state in {"terminated", "shutting-down"}:
            state = found.state if found else "unknown to EC2"
            problems.append(f"Node {node.name} is left of instance {instance_id}, which is {state}")
        elif found.state != "running":
            problems.append(f"instance {instance_id} of Node {node.name} is {found.state}")
    remedy = (
        "delete a Node whose instance is gone (kubectl delete node NAME), so that its volumes are "
        "detached; --release-dead-nodes does so for terminated instances"
    )
    return judged(problems, f"{counted(len(named), 'instance')} running", remedy)


def _limits(seen: Evidence) -> Finding:
    attached = Counter(
        each.spec.node_name
        for each in seen.cluster.attachments
        if each.spec.attacher == seen.driver
    )
    strangers = _strangers(seen)
    problems, checked = [], 0
    for csi_node in seen.cluster.csi_nodes:
        driver = csi_node.driver(seen.driver)
        if driver is None:
            continue
        checked += 1
        if driver.allocatable is None or driver.allocatable.count is None:
            problems.append(
                f"CSINode {csi_node.name} has no allocatable.count, so the scheduler sets no limit"
            )
            continue
        most, in_use = driver.allocatable.count, attached[csi_node.name]
        strange = strangers.get(csi_node.name, 0)
        if in_use >= most:
            problems.append(f"Node {csi_node.name} is full: {in_use} of {most} volumes")
        elif strange and in_use + strange > most:
            problems.append(
                f"Node {csi_node.name} has {in_use} of {most} volumes, and {strange} that no "
                "VolumeAttachment names: fewer fit than the scheduler believes"
            )
    if not checked:
        return skipped("the driver is registered on no node")
    remedy = "pods with another volume must go to other nodes: add nodes, or larger instance types"
    return judged(problems, f"{counted(checked, 'node')} have room", remedy, worst=Verdict.WARNING)


def _strangers(seen: Evidence) -> dict[str, int]:
    """Volumes that EC2 has attached to a node, which neither root nor attachments explain."""
    handles = {each.name: each.volume_id(seen.driver) or "" for each in seen.cluster.volumes}
    named: dict[str, set[str]] = {}
    for each in seen.cluster.attachments:
        handle = handles.get(each.spec.source.persistent_volume_name or "", "")
        named.setdefault(each.spec.node_name, set()).add(handle)
    found = {}
    for node in seen.cluster.nodes:
        instance = seen.cloud.instances.get(node.instance_id)
        if instance is not None:
            known = {instance.root_volume_id} | named.get(node.name, set())
            found[node.name] = len(set(instance.volume_ids) - known)
    return found


def _hop_limit(seen: Evidence) -> Finding:
    if not seen.cloud.instances:
        return skipped("no instance of a Node is known")
    account = seen.cluster.account
    if account is not None and ROLE_ANNOTATION in account.annotations:
        return skipped(
            f"ServiceAccount {account.key} has {ROLE_ANNOTATION}: the controller needs no "
            "credentials of its instance"
        )
    controllers = ours(seen.cluster.deployments, "controller")
    if controllers and all(each.spec.template.spec.host_network for each in controllers):
        return skipped("the controller's pods are in the network of their nodes")
    problems = [
        f"{each.instance_id} has HttpPutResponseHopLimit {each.hop_limit}"
        for each in seen.cloud.instances.values()
        if each.hop_limit is not None and each.hop_limit < _HOPS and each.state == "running"
    ]
    remedy = (
        "aws ec2 modify-instance-metadata-options --instance-id ID --http-put-response-hop-limit "
        "2, or give the controller a role by its ServiceAccount (docs/install.md)"
    )
    good = f"{counted(len(seen.cloud.instances), 'instance')} with {_HOPS} or more"
    return judged(problems, good, remedy, worst=Verdict.WARNING)


RULES = (
    Rule("startup-taints", "no node keeps a startup taint", ("nodes",), _startup_taints),
    Rule("out-of-service", "no ready node is declared out of service", ("nodes",), _out_of_service),
    Rule("zone-labels", "nodes have the zone labels that EC2 confirms", ("nodes",), _zone_labels),
    Rule("instances", "the instances of all nodes run", ("nodes", "DescribeInstances"), _instances),
    Rule(
        "node-limits",
        "nodes have room for another volume",
        ("nodes", "csinodes", "volumeattachments", "persistentvolumes"),
        _limits,
    ),
    Rule(
        "hop-limit",
        "pods reach the instance metadata service",
        ("DescribeInstances", "deployments"),
        _hop_limit,
    ),
)
