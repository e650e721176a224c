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
from provisioner.inspect.reading.controller_rules import ours, stock_controllers
from provisioner.inspect.reading.setup_kind_rules import SystemNode, Workload
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.model.node_affinity import REGION_LABEL, names_zone, region_of
from provisioner.model.taint import Taint
from provisioner.model.zone import ZONE_LABEL, zone_of

_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_SHOULD_BE_GONE = timedelta(minutes=10)
_HOPS = 2  # a pod's packet passes its node; EC2 user guide, "Instance metadata options"

# Without these, the SDK asks the metadata service. Source: AWS SDKs and Tools reference guide,
# "Standardized credential providers" (read 2026-11-23).
_CREDENTIAL_VARIABLES = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    }
)
_POD_IDENTITY = "eks-pod-identity-agent"  # EKS user guide, "EKS Pod Identity agent"


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


def _is_going(node: SystemNode, now: datetime) -> bool:
    """Whether a Node is being deleted: an autoscaler ends its instance, and removes it after."""
    since = deleted_at(node)
    return since is not None and now - since < _SHOULD_BE_GONE


def _nodes_ready(seen: Evidence) -> Finding:
    attached = [each for each in seen.cluster.attachments if each.spec.attacher == seen.driver]
    used = Counter(each.spec.node_name for each in attached)
    problems = [
        f"Node {node.name} is not ready, and {counted(used[node.name], 'volume')} "
        f"{'is' if used[node.name] == 1 else 'are'} attached to it"
        for node in seen.cluster.nodes
        if node.ready != "True" and used[node.name] and not _is_going(node, seen.now)
    ]
    remedy = (
        "kubectl ebs explain node NAME; if the machine is off for good, delete the Node: until "
        "then its pods' volumes go nowhere else (docs/troubleshooting.md)"
    )
    return judged(problems, "every node with a volume is ready", remedy)


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
    problems, going = [], 0
    for instance_id, node in named.items():
        found = seen.cloud.instances.get(instance_id)
        if _is_going(node, seen.now):
            going += 1
            continue
        if found is None or found.state in {"terminated", "shutting-down"}:
            state = found.state if found else "unknown to EC2"
            problems.append(f"Node {node.name} is left of instance {instance_id}, which is {state}")
        elif found.state != "running":
            problems.append(f"instance {instance_id} of Node {node.name} is {found.state}")
    remedy = (
        "delete a Node whose instance is terminated and which is not Ready (kubectl delete node "
        "NAME), so that its volumes are detached; --release-dead-nodes does so. A Ready Node whose "
        "instance EC2 does not show is in another account or Region"
    )
    return judged(problems, f"{counted(len(named) - going, 'instance')} running", remedy)


def _limits(seen: Evidence) -> Finding:
    attached = Counter(
        each.spec.node_name
        for each in seen.cluster.attachments
        if each.spec.attacher == seen.driver
    )
    full_in_ec2 = dict(_full_instances(seen))
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
        if in_use >= most:
            problems.append(f"Node {csi_node.name} is full: {in_use} of {most} volumes")
        elif csi_node.name in full_in_ec2:
            why = full_in_ec2[csi_node.name]
            problems.append(f"Node {csi_node.name} has {in_use} of {most} volumes, but {why}")
    if not checked:
        return skipped("the driver is registered on no node")
    remedy = (
        "nothing, unless a pod waits for such a node: kubectl ebs explain pod NAME says whether "
        "other nodes have room for it; if none has, add nodes, or use larger instance types"
    )
    return judged(problems, f"{counted(checked, 'node')} have room", remedy, worst=Verdict.WARNING)


def _full_instances(seen: Evidence) -> Iterator[tuple[str, str]]:
    """Nodes whose instance has as many volumes as its type can have, network interfaces aside.

    ``allocatable.count`` is without the other volumes that the node plugin saw when it started; of
    those that came later the scheduler knows nothing.
    """
    for node in seen.cluster.nodes:
        instance = seen.cloud.instances.get(node.instance_id)
        most = instance.most_volumes if instance is not None else None
        if instance is not None and most is not None and len(instance.volume_ids) >= most:
            there = f"{len(instance.volume_ids)} attached to {instance.instance_id}"
            yield node.name, f"EC2 has {there}, and {instance.instance_type} takes {most}"


def _hop_limit(seen: Evidence) -> Finding:
    if not seen.cloud.instances:
        return skipped("no instance of a Node is known")
    others = [_other_credentials(seen, each) for each in _controllers(seen)]
    if others and all(others):
        return skipped("; ".join(sorted({*others})))
    problems = [
        f"{each.instance_id} has HttpPutResponseHopLimit {each.hop_limit}"
        for each in seen.cloud.instances.values()
        if each.hop_limit is not None and each.hop_limit < _HOPS and each.state == "running"
    ]
    remedy = (
        "set MetadataOptions.HttpPutResponseHopLimit to 2 in the launch template of the nodes "
        "(kOps: in the InstanceGroup), and for those that run: aws ec2 "
        "modify-instance-metadata-options --instance-id ID --http-put-response-hop-limit 2; or "
        "give the controller a role by its ServiceAccount (docs/install.md)"
    )
    good = f"{counted(len(seen.cloud.instances), 'instance')} with {_HOPS} or more"
    return judged(problems, good, remedy, worst=Verdict.WARNING)


def _controller_credentials(seen: Evidence) -> Finding:
    """Found where nothing that Kubernetes shows could give them; not whether they are valid."""
    found = _controllers(seen)
    if not found:
        return skipped("no Deployment of a controller is in this cluster")
    others = {each.key: _other_credentials(seen, each, of_node=True) for each in found}
    without = sorted(key for key, why in others.items() if not why)
    if not without:
        return skipped("; ".join(sorted({*others.values()})))
    running = [each for each in seen.cloud.instances.values() if each.state == "running"]
    if not running:
        return skipped("no running instance of a Node is known")
    problems = [
        f"Deployment {key} has no AWS credentials in its environment and no role by its "
        f"ServiceAccount, and none of {counted(len(running), 'instance')} has an instance profile"
        for key in without
        if not any(each.has_profile for each in running)
    ]
    having = sum(each.has_profile for each in running)
    remedy = "give the controller a role by its ServiceAccount (docs/install.md)"
    good = f"{having} of {counted(len(running), 'instance')} have an instance profile"
    return judged(problems, good, remedy, worst=Verdict.WARNING)


def _controllers(seen: Evidence) -> list[Workload]:
    """Those that are switched on, ours and the stock driver's; if none is, all."""
    deployments = seen.cluster.deployments
    found = [*ours(deployments, "controller"), *stock_controllers(deployments)]
    return [each for each in found if each.spec.replicas != 0] or found


def _other_credentials(seen: Evidence, controller: Workload, *, of_node: bool = False) -> str:
    """Why a controller needs no metadata service, or may need none; "" if it needs it.

    ``of_node``: why it needs no role of its instance; its pods' network does not matter then.
    """
    pods = controller.spec.template.spec
    if pods.host_network and not of_node:
        return f"the pods of Deployment {controller.key} are in the network of their nodes"
    account = f"{controller.metadata.namespace}/{controller.account_name}"
    annotated = {each.key for each in seen.cluster.accounts if ROLE_ANNOTATION in each.annotations}
    if account in annotated:
        return (
            f"ServiceAccount {account} has {ROLE_ANNOTATION}: the controller needs no credentials "
            "of its instance"
        )
    names = {v.name for each in controller.containers for v in each.env or ()}
    from_secret = any(
        each.secret_ref is not None
        for container in controller.containers
        for each in container.env_from or ()
    )
    if from_secret or names & _CREDENTIAL_VARIABLES:
        return f"Deployment {controller.key} may have credentials in its environment"
    if any(each.name == _POD_IDENTITY for each in seen.cluster.daemon_sets):
        return f"DaemonSet {_POD_IDENTITY} may give Deployment {controller.key} credentials"
    return ""


RULES = (
    Rule("startup-taints", "no node keeps a startup taint", ("nodes",), _startup_taints),
    Rule(
        "nodes-ready",
        "nodes that have volumes are ready",
        ("nodes", "volumeattachments"),
        _nodes_ready,
    ),
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
        ("DescribeInstances", "deployments", "daemonsets", "serviceaccounts"),
        _hop_limit,
    ),
    Rule(
        "controller-credentials",
        "something gives the controller AWS credentials",
        ("DescribeInstances", "deployments", "daemonsets", "serviceaccounts"),
        _controller_credentials,
    ),
)
