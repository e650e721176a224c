"""What is wrong with a node, as far as its volumes go."""

from collections.abc import Iterator

from provisioner.controller.nodes import startup_taint_rules
from provisioner.ec2 import account_rules
from provisioner.inspect.explain import controller_rules, reason_rules
from provisioner.inspect.explain.attachment_rules import InEc2, stuck
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.controller_rules import Task
from provisioner.inspect.explain.nodes import plugin_rules
from provisioner.inspect.explain.pods.elsewhere_rules import out_of_service
from provisioner.inspect.explain.view_rules import NodeView, View
from provisioner.inspect.reading.node_kind_rules import takes_the_driver
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.inspect.shell_words import shell
from provisioner.model.errors import Reason
from provisioner.model.node import CsiNodeDriver, Node
from provisioner.model.volume import Instance
from provisioner.model.zone import ZONE_LABEL, zone_of

_RUNNING, _TERMINATED, _ENDING = "running", "terminated", "shutting-down"
_STARTING, _STOPPED = "pending", "stopped"
_READY = "True"
_VOLUMES = "DescribeVolumes"


def chains(view: View, about: NodeView) -> list[Chain]:
    """What is wrong with a node that is asked about."""
    if about.node is None:
        link = Link(
            Cause.OBJECT_MISSING,
            f"There is no node {about.name}.",
            Proof(f"node {about.name}", "not found"),
            remedy="Check the name.",
            command="kubectl get nodes",
        )
        return [Chain((link,))]
    found = [*ill(view, about), *_full(view, about, about.node)]
    return [*found, *_attachments(view, about)]


def ill(view: View, about: NodeView) -> list[Chain]:
    """Why no volume can be attached to a node, or used there."""
    node = about.node
    if node is None:
        if not view.read("nodes"):
            return []
        link = Link(
            Cause.NODE_GONE,
            f"Node {about.name} no longer exists.",
            Proof(f"node {about.name}", "not found"),
            next="Kubernetes, which deletes the node's pods within minutes",
            remedy="Delete the pod, if its controller does not.",
        )
        return [Chain((link,))]
    if view.target.kind == "node" and not _is_instance(view, about, node):
        return [each for each in (_not_ready(about, node),) if each is not None]
    strange = elsewhere(about)
    starts = about.instance is not None and about.instance.state == _STARTING
    machine = [Chain((each,), waits=starts) for each in _machine(about, node)]
    if strange is None and machine:
        return machine
    unheard = _not_ready(about, node)
    registered = _registration(view, about, node)
    chains_ = [each for each in (strange, unheard, registered) if each is not None]
    return [*chains_, *(Chain((each,)) for each in _labels(about, node))]


def _is_instance(view: View, about: NodeView, node: Node) -> bool:
    """Whether the driver belongs on the node, or is there in any case."""
    return registration(view, about) is not None or takes_the_driver(
        node.labels, _instance_id(about, node) if about.instance else node.instance_id
    )


def registration(view: View, about: NodeView) -> CsiNodeDriver | None:
    """The driver's entry in the CSINode, of this very node."""
    if about.csi_node is None:
        return None
    return about.csi_node.driver(view.driver)


def elsewhere(about: NodeView) -> Chain | None:
    """The node is in another region or account than the one that was asked.

    An instance of which EC2 knows nothing is no proof that it is gone: EC2 answers the same about
    the instances of other regions and accounts, and this node's kubelet reports from it.
    """
    node = about.node
    if node is None or not about.asked or about.instance is not None:
        return None
    told = account_rules.regions_of([node])
    if told and about.region not in told:
        sentence = f"EC2 was asked in {about.region}, but node {about.name} is in {min(told)}."
        proof = Proof(f"node {about.name}", next(iter(told.values())))
        remedy = "Correct --region or AWS_REGION, here and for the controller."
    elif node.ready == _READY:
        sentence = (
            f"EC2 in {about.region} does not know the instance of node {about.name}, but the "
            "node's kubelet reports: the instance is in another account or region."
        )
        proof = Proof(
            f"EC2 DescribeInstances in {about.region}; node {about.name}, condition Ready",
            f"nothing for {_instance_id(about, node)}; {node.ready}",
        )
        remedy = (
            "Use AWS credentials of the account that the cluster's instances are in, and their "
            "region, here and for the controller."
        )
    else:
        return None
    command = "aws sts get-caller-identity"
    return Chain((Link(Reason.WRONG_CLOUD, sentence, proof, "you", remedy, command),))


def _instance_id(about: NodeView, node: Node) -> str:
    return about.instance.instance_id if about.instance else node.instance_id or "its instance"


def _machine(about: NodeView, node: Node) -> Iterator[Link]:
    if not about.asked:
        return
    instance, instance_id = about.instance, _instance_id(about, node)
    if instance is None:
        yield Link(
            Reason.INSTANCE_NOT_FOUND,
            f"EC2 in {about.region or 'this region'} does not know instance {instance_id} of node "
            f"{about.name}, and the node is not ready: most likely the instance is gone.",
            Proof("EC2 DescribeInstances", f"nothing for {instance_id}"),
            next="the cloud controller, which deletes the Node; without one, you",
            remedy="Check that region and account are those of the cluster. If they are, delete "
            "the Node; its volumes are then released.",
            command=shell("kubectl get node {} -o {}", about.name, "jsonpath={.spec.providerID}"),
        )
    elif instance.state in {_TERMINATED, _ENDING}:
        yield _ended(about, instance)
    elif instance.state != _RUNNING:
        yield _not_running(about, instance)


def _not_running(about: NodeView, instance: Instance) -> Link:
    """EC2 starts only an instance that is stopped."""
    is_stopped = instance.state == _STOPPED
    return Link(
        Reason.INSTANCE_STATE,
        f"Instance {instance.instance_id} of node {about.name} is not running: {instance.state}.",
        Proof("EC2 DescribeInstances, State", instance.state),
        next="you; EC2 attaches nothing to it" if is_stopped else "EC2, within minutes",
        remedy=reason_rules.remedy(Reason.INSTANCE_STATE)
        if is_stopped
        else "Nothing: wait until it runs."
        if instance.state == _STARTING
        else "Wait until it is stopped; then start it, or delete the Node.",
        command=shell("aws ec2 start-instances --instance-ids {}", instance.instance_id)
        if is_stopped
        else shell("aws ec2 describe-instances --instance-ids {}", instance.instance_id),
    )


def _ended(about: NodeView, instance: Instance) -> Link:
    is_over = instance.state == _TERMINATED
    return Link(
        Reason.INSTANCE_NOT_FOUND,
        f"Instance {instance.instance_id} of node {about.name} is "
        + ("gone: terminated." if is_over else "being terminated."),
        Proof("EC2 DescribeInstances, State", f"{instance.instance_id}: {instance.state}"),
        next="the cloud controller, which deletes the Node; without one, you"
        if is_over
        else "EC2, which ends the instance",
        remedy="Delete the Node, or taint it out-of-service; its volumes are then released."
        if is_over
        else "Wait until its state is terminated; before that, the machine may still write.",
        command=out_of_service(about.name)
        if is_over
        else shell("aws ec2 describe-instances --instance-ids {}", instance.instance_id),
    )


def _not_ready(about: NodeView, node: Node) -> Chain | None:
    if node.ready in {_READY, ""}:
        return None
    link = Link(
        Cause.NODE_NOT_READY,
        f"Node {about.name} is not ready: its kubelet "
        + ("has stopped reporting." if node.ready == "Unknown" else "reports a problem."),
        Proof(f"node {about.name}, condition Ready", node.ready),
        next="kubelet; Kubernetes evicts the node's pods after five minutes",
        remedy="Look at the machine. Only if it is gone for good: delete the Node, or taint it "
        "out-of-service.",
        command=shell("kubectl describe node {}", about.name),
    )
    return Chain((link,))


def _registration(view: View, about: NodeView, node: Node) -> Chain | None:
    """The driver, its plugin, and the taint that waits for both."""
    if not view.read("csinodes"):
        return None
    registered = registration(view, about)
    tainted = startup_taint_rules.is_waiting(node, view.driver)
    links: list[Link] = []
    is_chosen = False
    if registered is None:
        absent = plugin_rules.absence(about, node)
        links += [*plugin_rules.failure(about), *([absent.link] if absent else ())]
        links.append(plugin_rules.unregistered(view, about, is_explained=bool(links)))
        is_chosen = absent is not None and absent.is_chosen
    elif not registered.is_complete:
        links.append(_no_limit(view, about))
    if tainted:
        return _taint(view, about, links)
    # Somebody has left the node out, which harms only pods that need volumes there.
    waits = is_chosen and view.target.kind == "node"
    return Chain(tuple(links), waits=waits) if links else None


def _no_limit(view: View, about: NodeView) -> Link:
    return Link(
        Cause.LIMIT_UNKNOWN,
        f"The driver is registered on node {about.name} without a limit: the scheduler may send "
        "more pods than the instance takes volumes.",
        Proof(f"csinode {about.name}, allocatable.count of {view.driver}", "none"),
        next="kubelet, which asks the node plugin",
        remedy="Restart the node plugin on that node.",
    )


def _taint(view: View, about: NodeView, links: list[Link]) -> Chain:
    key = startup_taint_rules.taint_key(view.driver)
    absent = controller_rules.absence(view, Task.ATTACH)
    left = Link(
        Cause.STARTUP_TAINT,
        f"Node {about.name} has taint {key}, so no pods come to it.",
        Proof(f"node {about.name}, spec.taints", key),
        next="the controller, which removes the taint once the driver is registered with its limit",
        remedy=""
        if links or absent
        else "Look at the controller's log. The driver is registered, so it does no harm to remove "
        f"the taint by hand: {shell('kubectl taint node {} {}', about.name, f'{key}-')}",
        command="" if links or absent else controller_rules.log(view, Task.ATTACH),
    )
    if links:
        return Chain((*links, left))
    return absent.then(left) if absent else Chain((left,))


def _labels(about: NodeView, node: Node) -> Iterator[Link]:
    zone = zone_of(node.labels)
    real = about.instance.zone if about.instance else ""
    if not zone:
        yield Link(
            Cause.NO_ZONE_LABEL,
            f"Node {about.name} has no zone label, so no volume is created for its pods.",
            Proof(f"node {about.name}, metadata.labels", f"no {ZONE_LABEL}"),
            next="the cloud controller, or our controller with --initialize-nodes",
            remedy="Run one of these, or set the label to the instance's zone.",
            command=shell("kubectl label node {} {}", about.name, f"{ZONE_LABEL}={real or 'ZONE'}"),
        )
    elif real and zone != real:
        yield Link(
            Cause.WRONG_ZONE_LABEL,
            f"Node {about.name} is labelled {zone}, but its instance is in {real}.",
            Proof(
                f"node {about.name}, label {ZONE_LABEL}; EC2 DescribeInstances", f"{zone}; {real}"
            ),
            next="you; volumes for its pods would be made in the wrong zone",
            remedy="Correct the label; kubelet's --node-labels may set it.",
            command=shell(
                "kubectl label --overwrite node {} {}", about.name, f"{ZONE_LABEL}={real}"
            ),
        )


def _full(view: View, about: NodeView, node: Node) -> Iterator[Chain]:
    registered = registration(view, about)
    if registered is None or registered.allocatable is None or registered.allocatable.count is None:
        return
    limit = registered.allocatable.count
    used = sum(1 for each in about.attachments if not each.deleting)
    if used < limit:
        return
    link = Link(
        Cause.NODE_LIMIT,
        f"Node {about.name} takes no more volumes: {used} of {limit} are attached.",
        Proof(
            f"csinode {about.name}, allocatable.count; VolumeAttachments",
            f"limit {limit}, attached {used}",
        ),
        next="the scheduler: it sends pods with further volumes to other nodes; a pod that must "
        "run on this node waits until one of its volumes is detached",
        remedy="Nothing, unless a pod must run on this node: then end another pod with a volume "
        "there, or use an instance type that takes more volumes.",
        command=shell("kubectl get pods -A -o wide --field-selector spec.nodeName={}", node.name),
    )
    yield Chain((link,), waits=used == limit)


def _attachments(view: View, about: NodeView) -> Iterator[Chain]:
    """Those that are stuck, or that EC2 does not have."""
    instance_id = about.instance.instance_id if about.instance else ""
    for each in about.attachments:
        since = deleted_at(each)
        if since is not None and (view.now - since).total_seconds() > 60:  # noqa: PLR2004 -- s
            absent = controller_rules.absence(view, Task.ATTACH)
            link = stuck(view, each, _in_ec2(view, about, each.name))
            yield absent.then(link) if absent else Chain((link,))
            continue
        volume_id = about.volume_of.get(each.name, "")
        unknown = instance_id and volume_id and each.attached and not each.deleting
        if unknown and _knows_volumes(view, about) and volume_id not in about.attached:
            yield Chain((_unknown(about, each.name, volume_id, instance_id),))


def _knows_volumes(view: View, about: NodeView) -> bool:
    return about.asked and _VOLUMES not in view.unread


def _in_ec2(view: View, about: NodeView, attachment: str) -> InEc2 | None:
    """What EC2 shows on the node's instance; None if it does not tell."""
    volume_id = about.volume_of.get(attachment, "")
    if about.instance is None or not volume_id or not _knows_volumes(view, about):
        return None
    there = volume_id in about.attached
    seen = f"{volume_id} is {'' if there else 'not '}attached to {about.instance.instance_id}"
    return InEc2(seen, is_detached=not there)


def _unknown(about: NodeView, attachment: str, volume_id: str, instance_id: str) -> Link:
    return Link(
        Cause.ATTACHMENT_UNKNOWN,
        f"Kubernetes has volume {volume_id} attached to node {about.name}, but EC2 has not.",
        Proof(
            f"volumeattachment {attachment}; EC2 DescribeVolumes",
            f"attached: true; not on {instance_id}",
        ),
        next="you; somebody has detached or deleted the volume",
        remedy="Delete the pods that use it, so that it is attached again.",
        command=shell("kubectl get volumeattachment {} -o yaml", attachment),
    )
