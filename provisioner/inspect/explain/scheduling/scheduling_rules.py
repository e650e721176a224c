"""Why the scheduler finds no node for a pod: by its own words, and by the controller's rules."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from provisioner.controller.nodes import startup_taint_rules
from provisioner.controller.placement import consumer_rules
from provisioner.inspect.explain import node_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.scheduling import full_rules
from provisioner.inspect.explain.view_rules import NodeView, View, VolumeView
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.shell_words import shell
from provisioner.model.claim import Condition
from provisioner.model.errors import Reason
from provisioner.model.node import Node
from provisioner.model.node_affinity import expressions_of, matches
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.sentences import listed
from provisioner.model.taint import CORDONED, keeps_away
from provisioner.model.zone import allow_node, allowed_zones, zone_of

_AGE = timedelta(seconds=30)
# Of the scheduler's words (Kubernetes 1.36), those that are about volumes.
_VOLUMES = ("volume", "persistentvolume", "pvc")
_ONE_POD = "same name and ReadWriteOncePod access mode"


def chains(view: View, pod: WatchedPod) -> list[Chain]:
    """Why a pod has no node, whose claims are not to blame."""
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status == "True":
        return [_unseen(view, pod)]
    if condition.reason == "SchedulingGated":
        return [Chain((_symptom(pod, condition),), waits=True)]
    symptom = _symptom(pod, condition)
    apart = _zones_apart(view)
    if apart is not None:
        return [Chain((apart, symptom))]
    if not view.nodes:
        return [Chain((_by_words(pod, condition),))]
    nowhere = _class_allows_none(view)
    if nowhere is not None:
        return [Chain((nowhere, symptom))]
    volumes = _persistent_volumes(view)
    near = [node for node in view.nodes if _can_use_all(volumes, node)]
    if not near:
        return [Chain((_unlabelled(view, volumes) or _no_node(volumes), symptom))]
    return [_among(view, pod, condition, volumes, near)]


def full_nodes(view: View, pod: WatchedPod) -> list[str]:
    """The nodes that are named because they take no more volumes; none if that is not the cause."""
    condition = pod.condition("PodScheduled")
    if condition is None or full_rules.FULL not in condition.message:
        return []
    volumes = _persistent_volumes(view)
    near = [node for node in view.nodes if _can_use_all(volumes, node)]
    found = full_rules.rooms(view, _tolerated(pod, [n for n in near if _is_selected(pod, n)]))
    return [each.node.name for each in found[: full_rules.MOST_NAMED]]


def _among(
    view: View, pod: WatchedPod, condition: Condition, volumes: list[VolumeView], near: list[Node]
) -> Chain:
    """Nodes could use the volumes; why none of them takes the pod."""
    symptom = _symptom(pod, condition)
    chosen = [node for node in near if _is_selected(pod, node)]
    if not chosen:
        return Chain((_excluded(pod, volumes, near), symptom))
    free = _tolerated(pod, chosen)
    if not free:
        return _tainted(view, pod, chosen).then(symptom)
    is_full = full_rules.FULL in condition.message and full_rules.are_known(view, free)
    if is_full or full_rules.refuses(condition, len(free)):
        others = _tolerated(pod, [node for node in near if node not in chosen])
        selection = _fields(pod, is_tainted=len(free) < len(chosen))
        link = full_rules.link(view, pod, free, others, selection)
        if link.cause is Cause.NODES_FULL:
            return Chain((link, symptom))
        return Chain((replace(link, proof=symptom.proof),))
    return Chain((_by_words(pod, condition, volumes),))


def _unseen(view: View, pod: WatchedPod) -> Chain:
    made = pod.metadata.creation_timestamp
    link = Link(
        Cause.NOT_SCHEDULED,
        f"The scheduler has not looked at pod {pod.key} yet.",
        Proof(f"pod {pod.key}, status.conditions", "no PodScheduled"),
        next="kube-scheduler, or the scheduler that spec.schedulerName names",
        remedy="If it stays: check that this scheduler runs.",
        command="kubectl -n kube-system get pods -l component=kube-scheduler",
    )
    return Chain((link,), waits=made is not None and view.now - made < _AGE)


def _symptom(pod: WatchedPod, condition: Condition) -> Link:
    return Link(
        Cause.UNSCHEDULABLE,
        f"So pod {pod.key} is not scheduled.",
        Proof(f"pod {pod.key}, condition PodScheduled", condition.message or condition.reason),
        next="the scheduler, which tries again when nodes or volumes change",
    )


def _volumes(view: View) -> list[VolumeView]:
    return [each.volume for each in view.claims if each.volume is not None]


def _zones_apart(view: View) -> Link | None:
    """No zone has all of the pod's volumes."""
    known = [each for each in _volumes(view) if each.zones]
    for index, each in enumerate(known):
        for other in known[:index]:
            if not each.zones & other.zones:
                return Link(
                    Cause.ZONES_DIFFER,
                    f"The pod's volumes are in different zones: {other.name} in "
                    f"{listed(other.zones)}, {each.name} in {listed(each.zones)}.",
                    Proof(
                        f"pv {other.name} and pv {each.name}, spec.nodeAffinity",
                        f"{listed(other.zones)}; {listed(each.zones)}",
                    ),
                    next="you; no node can use both",
                    remedy="Restore a snapshot of one of them into a new claim in the other's "
                    "zone, and use that.",
                )
    return None


def _class_allows_none(view: View) -> Link | None:
    """A class whose allowedTopologies no node meets."""
    for each in view.claims:
        found = each.storage_class
        terms = (found.allowed_topologies or ()) if found else ()
        is_open = each.claim is not None and not each.claim.spec.volume_name
        if found is None or not terms or not is_open:
            continue
        if not any(allow_node(terms, node.labels) for node in view.nodes):
            named = allowed_zones(terms)
            where = f": it allows {listed(named)}" if named else ""
            return Link(
                Reason.NO_ZONE,
                f"No node is where class {found.name} allows volumes{where}.",
                Proof(
                    f"storageclass {found.name}, allowedTopologies; all Nodes", "no node matches"
                ),
                next="the autoscaler, if one may add nodes there; else you",
                remedy="Add a node there, or use a class that allows a zone with nodes. "
                "allowedTopologies cannot be changed: delete the class and create it again.",
                command="kubectl get nodes -L topology.kubernetes.io/zone",
            )
    return None


def _persistent_volumes(view: View) -> list[VolumeView]:
    return [each for each in _volumes(view) if each.persistent_volume is not None]


def _tolerated(pod: WatchedPod, nodes: Iterable[Node]) -> list[Node]:
    """Those without a taint that keeps the pod away."""
    return [node for node in nodes if keeps_away(node.taints, pod.tolerations) is None]


def _can_use_all(volumes: Iterable[VolumeView], node: Node) -> bool:
    found: list[PlacedVolume] = [
        each.persistent_volume for each in volumes if each.persistent_volume is not None
    ]
    return all(consumer_rules.can_use(each, node) for each in found)


def _is_selected(pod: WatchedPod, node: Node) -> bool:
    return all(matches(terms, node.labels, node.name) for terms in pod.spec.selections)


def _where(volumes: Sequence[VolumeView]) -> str:
    zones = frozenset().union(*(each.zones for each in volumes)) if volumes else frozenset()
    return f" in {listed(zones)}" if zones else ""


def _no_node(volumes: list[VolumeView]) -> Link:
    names = listed([each.name for each in volumes], "and")
    return Link(
        Cause.NO_NODE_IN_ZONE,
        f"No node is where the pod's volume is{_where(volumes)}.",
        Proof(f"pv {names}, spec.nodeAffinity; all Nodes", "no node matches"),
        next="the autoscaler, if one may add nodes there; else you",
        remedy=f"Add a node{_where(volumes)}, or restore a snapshot of the volume into a claim in "
        "a zone that has nodes.",
        command="kubectl get nodes -L topology.kubernetes.io/zone",
    )


def _unlabelled(view: View, volumes: list[VolumeView]) -> Link | None:
    """A node that is in the zone of a volume, without a label that the volume asks for."""
    for each in volumes:
        affinity = each.persistent_volume.spec.node_affinity if each.persistent_volume else None
        required = affinity.required if affinity else None
        terms = (required.node_selector_terms or ()) if required else ()
        keys = {str(e.get("key")) for term in terms for e in expressions_of(term)}
        for node in view.nodes:
            missing = sorted(keys - node.labels.keys())
            if missing and zone_of(node.labels) in each.zones:
                return _without_label(each, node, missing[0])
    return None


def _without_label(volume: VolumeView, node: Node, key: str) -> Link:
    return Link(
        Cause.NO_ZONE_LABEL,
        f"Node {node.name} is in the zone of the pod's volume, but has no label {key}, which the "
        "volume asks for.",
        Proof(f"pv {volume.name}, spec.nodeAffinity; node {node.name}, metadata.labels", key),
        next="kubelet, which writes the labels that the node plugin names when it registers",
        remedy="Look at the node plugin's pod on that node, or label the node.",
        command=shell("kubectl ebs explain node {}", node.name),
    )


def _excluded(pod: WatchedPod, volumes: list[VolumeView], near: list[Node]) -> Link:
    if not volumes:
        return Link(
            Cause.UNSCHEDULABLE,
            "No node matches the pod's nodeSelector or required affinity.",
            Proof(f"pod {pod.key}, spec", _selection(pod) or "none"),
            next="you, or the autoscaler",
            remedy="Correct nodeSelector or affinity, or add such a node.",
        )
    return Link(
        Cause.POD_EXCLUDES_ZONE,
        f"The pod's volume is{_where(volumes)}, but the pod's nodeSelector or required affinity "
        f"excludes all nodes there ({len(near)}).",
        Proof(f"pod {pod.key}, spec", _selection(pod) or "none"),
        next="you",
        remedy=f"Let the pod run{_where(volumes)}, or restore a snapshot of the volume into a "
        "claim in a zone that it allows.",
        command="kubectl get nodes -L topology.kubernetes.io/zone",
    )


def _selection(pod: WatchedPod) -> str:
    chosen = [f"{key}={value}" for key, value in (pod.spec.node_selector or {}).items()]
    for term in pod.spec.required_terms:
        for each in term.match_expressions or ():
            values = ", ".join(each.values or ())
            chosen.append(f"{each.key} {each.operator} [{values}]")
    return "; ".join(chosen)


def _fields(pod: WatchedPod, *, is_tainted: bool) -> full_rules.Selection | None:
    """The fields of a pod that choose its nodes; None if it takes any, as far as they are shown."""
    text = _selection(pod)
    said = {
        "nodeSelector": bool(pod.spec.node_selector),
        "required affinity": bool(pod.spec.required_terms),
        full_rules.TOLERATIONS: is_tainted,
    }
    fields = tuple(name for name, is_said in said.items() if is_said)
    return full_rules.Selection(fields, text) if text else None


def _tainted(view: View, pod: WatchedPod, chosen: list[Node]) -> Chain:
    """All nodes that would do have taints; our own one has causes of its own."""
    key = startup_taint_rules.taint_key(view.driver)
    waiting = [node for node in chosen if startup_taint_rules.is_waiting(node, view.driver)]
    if waiting:
        node = waiting[0]
        about = NodeView(node.name, node, view.csi_nodes.get(node.name))
        ill = node_rules.ill(view, about)
        if ill:
            return ill[0]
    # By keys: the taint of a cordoned node comes late, and has a time then.
    taints = (keeps_away(node.taints, pod.tolerations) for node in chosen)
    names = sorted({each.key for each in taints if each is not None})
    cordoned = names == [CORDONED.key]
    link = Link(
        Cause.TAINTED,
        f"The {len(chosen)} node(s) that could take the pod and its volumes "
        + (
            "are cordoned."
            if cordoned
            else f"have a taint that it does not tolerate: {listed(names, 'and')}."
        ),
        Proof(f"node {chosen[0].name}, spec.taints", ", ".join(names)),
        next="you, or what has added the taint" if key not in names else "the controller",
        remedy="Uncordon a node, unless somebody drains or repairs it."
        if cordoned
        else "Remove the taint, or add a toleration.",
        command=shell(
            "kubectl uncordon {}" if cordoned else "kubectl describe node {}", chosen[0].name
        ),
    )
    return Chain((link,))


def _by_words(pod: WatchedPod, condition: Condition, volumes: Sequence[VolumeView] = ()) -> Link:
    """What else the scheduler says."""
    text = condition.message
    if not volumes and full_rules.refuses(condition, 0):
        return full_rules.by_words(pod, condition)
    about_volumes = any(word in text.lower() for word in _VOLUMES)
    return Link(
        Cause.UNSCHEDULABLE,
        f"The scheduler finds no node for the pod{_where(volumes)}"
        + ("." if about_volumes or volumes else ", for reasons other than its volumes."),
        Proof(f"pod {pod.key}, condition PodScheduled", text or condition.reason),
        next="the scheduler, which tries again when nodes or volumes change",
        remedy="Another pod uses a claim with ReadWriteOncePod: delete that pod, or wait for it."
        if _ONE_POD in text
        else f"Free what it names, or add a node{_where(volumes)}.",
    )
