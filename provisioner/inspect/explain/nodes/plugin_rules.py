"""Why a driver is not registered on a node: its plugin fails there, or is not there at all."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from provisioner.inspect.explain.chain_rules import Cause, Link, Proof
from provisioner.inspect.explain.view_rules import NodeView, View
from provisioner.inspect.reading.node_plugin_rules import KeptAway, kept_away
from provisioner.inspect.reading.setup_kind_rules import Workload
from provisioner.inspect.shell_words import shell
from provisioner.model.node import Node

# What manifests/node/daemonset.yaml has, and the chart of aws-ebs-csi-driver unless it is changed.
_TOLERATE_ALL = json.dumps(
    {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}
)
_ELSE = "or keep pods with EBS volumes off the node"


@dataclass(frozen=True, slots=True)
class Absence:
    """Why no plugin is on a node.

    Attributes:
        link: says so.
        is_chosen: whether the DaemonSet leaves the node out by its labels.
    """

    link: Link
    is_chosen: bool = False


def failure(about: NodeView) -> Iterator[Link]:
    """A plugin that is there and does not work."""
    broken = [each for each in about.plugins or () if not each.is_ready]
    for pod in broken[:1]:
        waiting = pod.waiting
        yield Link(
            Cause.NODE_PLUGIN_FAILS,
            f"The node plugin on node {about.name} does not work: pod {pod.key} is not ready.",
            Proof(
                f"pod {pod.key}, status",
                f"{waiting.reason}: {waiting.message}" if waiting else pod.status.phase,
            ),
            next="kubelet, which restarts the plugin",
            remedy="Look at the plugin's log and events.",
            command=shell("kubectl -n {} logs {}", pod.metadata.namespace, pod.name),
        )


def absence(about: NodeView, node: Node) -> Absence | None:
    """Why no DaemonSet has a plugin there; None if one has, should have, or nobody has looked."""
    if about.plugins or about.plugins is None or about.daemon_sets is None:
        return None
    if not about.daemon_sets:
        link = Link(
            Cause.NODE_PLUGIN_ABSENT,
            "There is no DaemonSet of a node plugin, ebs-provisioner's or aws-ebs-csi-driver's.",
            Proof("daemonsets of all namespaces", "none of a node plugin"),
            next="you",
            remedy="Install the node plugin (docs/nodes.md), or that of aws-ebs-csi-driver.",
            command="kubectl get daemonsets -A",
        )
        return Absence(link)
    reason = kept_away(about.daemon_sets, node)
    return Absence(_kept_away(reason, node), reason.is_chosen) if reason else None


def _kept_away(reason: KeptAway, node: Node) -> Link:
    plugin = reason.plugin
    if reason.taint is not None:
        return Link(
            Cause.NODE_PLUGIN_ABSENT,
            f"DaemonSet {plugin.key} does not tolerate taint {reason.taint.words} of node "
            f"{node.name}, so no node plugin runs there.",
            Proof(f"node {node.name}, spec.taints", reason.taint.words),
            next="you",
            remedy="Let the DaemonSet tolerate all taints (in the chart of aws-ebs-csi-driver: "
            f"node.tolerateAllTaints), {_ELSE}.",
            command=shell(
                "kubectl -n {} patch daemonset {} --type merge -p {}",
                *_named(plugin),
                _TOLERATE_ALL,
            ),
        )
    wanted = ", ".join(f"{key}={value}" for key, value in sorted(reason.labels.items()))
    field = "nodeSelector" if wanted else "affinity"
    return Link(
        Cause.NODE_PLUGIN_ABSENT,
        f"DaemonSet {plugin.key} does not select node {node.name}, so no node plugin runs there.",
        Proof(
            f"daemonset {plugin.key}, {field}; node {node.name}, metadata.labels",
            f"wants {wanted or reason.affinity}; {_has(reason, node)}",
        ),
        next="you",
        remedy=f"If the node is one for it: give the node these labels, or change the {field}. "
        "Else let pods with EBS volumes run elsewhere.",
        command=_show(plugin),
    )


def _has(reason: KeptAway, node: Node) -> str:
    if not reason.labels:
        return "not matched"
    found = [f"{key}={node.labels[key]}" for key in sorted(reason.labels) if key in node.labels]
    return f"has {', '.join(found)}" if found else "has none of these"


def unregistered(view: View, about: NodeView, *, is_explained: bool) -> Link:
    """The driver's absence from the CSINode; ``is_explained``: a link before it says why."""
    drivers = (about.csi_node.spec.drivers or ()) if about.csi_node else ()
    has = ", ".join(each.name for each in drivers) or "none"
    plugins = ", ".join(each.key for each in about.plugins or ()) or "none"
    looked = about.plugins is not None
    remedy, command = ("", "") if is_explained else _remedy(view, about)
    return Link(
        Cause.DRIVER_NOT_REGISTERED,
        f"Driver {view.driver} is not registered on node {about.name}"
        + (": no node plugin runs there." if looked and not about.plugins else "."),
        Proof(
            f"csinode {about.name}, spec.drivers" + ("; pods of a node plugin" if looked else ""),
            has + (f"; {plugins}" if looked else ""),
        ),
        next="the node plugin and kubelet, which register it"
        if about.plugins
        else "the DaemonSet's controller, which starts the node plugin",
        remedy=remedy,
        command=command,
    )


def _remedy(view: View, about: NodeView) -> tuple[str, str]:
    """What would help, and a command, if nothing else is known to be wrong."""
    pods = shell("kubectl get pods -A --field-selector {}", f"spec.nodeName={about.name}")
    if about.plugins:
        return "Check that the plugin uses kubelet's own --root-dir, and look at its log.", pods
    if about.plugins is None and view.read("pods"):
        text = "Explain the node, which says what its node plugin lacks."
        return text, shell("kubectl ebs explain node {}", about.name)
    if not about.daemon_sets:
        text = (
            "Check that the DaemonSet of the node plugin exists, tolerates the node's taints and "
            "selects its labels."
        )
        return text, pods
    plugin = about.daemon_sets[0]
    text = (
        f"Nothing for a minute on a new node. If it stays: DaemonSet {plugin.key} should run "
        "there, and its events say what keeps it away."
    )
    return text, shell("kubectl -n {} describe daemonset {}", *_named(plugin))


def _show(plugin: Workload) -> str:
    return shell(
        "kubectl -n {} get daemonset {} -o {}",
        *_named(plugin),
        "jsonpath={.spec.template.spec['nodeSelector','affinity']}",
    )


def _named(plugin: Workload) -> tuple[str, str]:
    return plugin.metadata.namespace, plugin.name
