"""The driver's objects, who leads, which programs run, and in which versions."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from provisioner.inspect.doctor.check_rules import (
    Check,
    Finding,
    Rule,
    Verdict,
    counted,
    judged,
    ok,
    skipped,
    some,
    unknown,
)
from provisioner.inspect.doctor.evidence_rules import LEASES_ELSEWHERE, Evidence
from provisioner.inspect.reading.controller_rules import (
    OUR_HOLDER,
    at_work,
    ours,
    stock_controllers,
)
from provisioner.inspect.reading.node_kind_rules import takes_the_driver
from provisioner.inspect.reading.node_plugin_rules import kept_away, node_plugins
from provisioner.inspect.reading.setup_kind_rules import SeenLease, SystemNode, Workload
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.leadership import lease_names

_USUAL_LEASE_S = 15
_LATE = timedelta(seconds=15)  # a renewal that is under way, and clocks that differ a little
_NEW = timedelta(minutes=5)  # a node whose driver may still be starting
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_MOST_SKEW = 3  # minors; Kubernetes "Version Skew Policy" (read 2026-11-23)
_OLDEST_MINOR = 33  # docs/kubernetes-versions.md
_SNAPSHOT_LEASE = "external-snapshotter-leader-"


def _driver_object(seen: Evidence) -> Finding:
    found, name = seen.cluster.csi_driver, seen.driver
    if found is None:
        return Finding(
            Verdict.FAILED,
            f"there is no CSIDriver {name}",
            "apply manifests/csi-driver.yaml; uninstalling aws-ebs-csi-driver's chart deletes it",
        )
    spec = found.spec
    wrong = []
    if spec.attach_required is False:
        wrong.append("spec.attachRequired is false, so volumes are never attached")
    if "Persistent" not in (spec.volume_lifecycle_modes or ("Persistent",)):
        wrong.append("spec.volumeLifecycleModes has no Persistent, so PersistentVolumes fail")
    remedy = f"delete CSIDriver {name} and apply manifests/csi-driver.yaml (it is immutable)"
    if wrong:
        return Finding(Verdict.FAILED, some(wrong), remedy)
    if spec.fs_group_policy == "None":
        text = "spec.fsGroupPolicy is None: fsGroup of pods has no effect on their volumes"
        patch = """'{"spec":{"fsGroupPolicy":"File"}}'"""
        remedy = f"kubectl patch csidriver {name} --type merge -p {patch}"
        return Finding(Verdict.WARNING, text, remedy)
    return ok(f"CSIDriver {name}: attachRequired, fsGroupPolicy {spec.fs_group_policy or 'unset'}")


def _driver_on_nodes(seen: Evidence) -> Finding:
    registered = {each.name for each in seen.cluster.csi_nodes if each.driver(seen.driver)}
    expected = [node for node in seen.cluster.nodes if node.ready == "True" and _wants(seen, node)]
    if not expected:
        return skipped("no ready Node is one that the node plugin is for")
    absent = [node for node in expected if node.name not in registered]
    problems = [
        f"CSINode {node.name} does not have {seen.driver}{_taint(seen, node)}"
        for node in absent
        if _is_old(seen, node.metadata.creation_timestamp)
    ]
    remedy = (
        "look at the node plugin's pod on that node (kubectl get pods -A --field-selector "
        "spec.nodeName=NODE), and let its DaemonSet tolerate the node's taints; no pod with EBS "
        "volumes can start there"
    )
    good = f"registered on {len(expected) - len(absent)} of {counted(len(expected), 'ready node')}"
    if absent:
        good += f"; {len(absent)} without it are younger than 5 minutes"
    return judged(problems, good, remedy)


def _wants(seen: Evidence, node: SystemNode) -> bool:
    """Whether the driver belongs on a node: a DaemonSet's choice; without one, as ours chooses."""
    plugins = node_plugins(seen.cluster.daemon_sets)
    if plugins:
        reason = kept_away(plugins, node)
        return reason is None or not reason.is_chosen
    return takes_the_driver(node.labels, node.instance_id)


def _taint(seen: Evidence, node: SystemNode) -> str:
    """The taint that keeps the node plugin away."""
    reason = kept_away(node_plugins(seen.cluster.daemon_sets), node)
    if reason is None or reason.taint is None:
        return ""
    return f": DaemonSet {reason.plugin.key} does not tolerate taint {reason.taint.words}"


def _is_old(seen: Evidence, created: datetime | None) -> bool:
    return created is None or seen.now - created > _NEW


def _lease_held(seen: Evidence) -> Finding:
    leases = seen.cluster.leases
    main, *others = lease_names(seen.driver)
    if not leases:
        return Finding(
            Verdict.FAILED,
            f"none of the leases {main}, {', '.join(others)} exists: no controller has ever "
            "run, or it runs without leader election",
            "install the controller (docs/install.md), or look at the pods of the one there is",
        )
    problems = [
        problem
        for name in (main, *others)
        if (name in leases or not name.startswith(_SNAPSHOT_LEASE))
        and (problem := _why_not_led(name, leases.get(name), seen))
    ]
    namespaces = ", ".join(sorted({each.metadata.namespace for each in leases.values()}))
    holders = sorted({(each.spec.holder_identity or "") for each in leases.values()} - {""})
    working = at_work(seen.cluster.deployments, holders)
    remedy = "nothing is provisioned, attached or resized without it: look at its pods and log"
    if working is not None:
        remedy += f" (kubectl -n {working.metadata.namespace} logs deploy/{working.name})"
    if LEASES_ELSEWHERE in seen.gaps:
        remedy += (
            "; leases of other namespaces could not be listed, so if the controller's are in one "
            "of them, name it with --lease-namespace"
        )
    return judged(problems, f"held by {', '.join(holders)} in {namespaces}", remedy)


def _why_not_led(name: str, lease: SeenLease | None, seen: Evidence) -> str:
    if lease is None:
        return f"Lease {name} does not exist"
    spec = lease.spec
    if not spec.holder_identity:
        return f"Lease {lease.key} has no holder"
    if spec.renew_time is None:
        return f"Lease {lease.key} was never renewed"
    late = seen.now - spec.renew_time - timedelta(seconds=_skew_s(seen))
    if late > timedelta(seconds=spec.lease_duration_seconds or _USUAL_LEASE_S) + _LATE:
        return (
            f"Lease {lease.key} of {spec.holder_identity} was last renewed at "
            f"{spec.renew_time:%Y-%m-%dT%H:%M:%SZ}, {late.total_seconds():.0f} s ago"
        )
    return ""


def _skew_s(seen: Evidence) -> float:
    """How far this machine's clock is ahead of the API server's, at least 0."""
    return max([0.0, *(-each.ahead_s for each in seen.clocks if each.name == "API server")])


def _one_holder(seen: Evidence) -> Finding:
    held = {
        name: each.spec.holder_identity
        for name, each in seen.cluster.leases.items()
        if each.spec.holder_identity
    }
    ours_held = sorted(name for name, holder in held.items() if holder.startswith(OUR_HOLDER))
    if not ours_held:
        return skipped("none of the leases is held by this project's controller")
    others = sorted(f"{name} by {holder}" for name, holder in held.items() if name not in ours_held)
    several = len({held[name] for name in ours_held}) > 1
    if others or several:
        shown = "; ".join(f"{name} by {held[name]}" for name in sorted(held))
        return Finding(
            Verdict.FAILED,
            f"the leases are held by different controllers: {shown}",
            "controllers compete, and none works until one holds all four: scale one of them to "
            "0 (docs/migrate.md)",
        )
    return ok(f"{held[ours_held[0]]} holds all of them")


def _one_controller(seen: Evidence) -> Finding:
    running = [
        f"Deployment {each.key}"
        for each in (*ours(seen.cluster.deployments, "controller"), *_stock(seen))
        if each.spec.replicas != 0
    ]
    if len(running) > 1:
        return Finding(
            Verdict.WARNING,
            f"several controllers for {seen.driver} are switched on: {', '.join(running)}",
            "leases keep them from working at the same time, but which one works is chance: "
            "scale all but one to 0 (docs/migrate.md)",
        )
    return ok(running[0] if running else "no Deployment of a controller; it may run elsewhere")


def _stock(seen: Evidence) -> list[Workload]:
    return stock_controllers(seen.cluster.deployments)


def _controller_ready(seen: Evidence) -> Finding:
    wanted = [*ours(seen.cluster.deployments, "controller"), *_stock(seen)]
    return _ready_replicas(
        [each for each in wanted if each.spec.replicas != 0],
        "no Deployment of a controller is in this cluster",
        "kubectl -n NAMESPACE describe deployment NAME, and the log of its pods",
    )


def _webhook_ready(seen: Evidence) -> Finding:
    return _ready_replicas(
        ours(seen.cluster.deployments, "webhook"),
        "the webhook is not installed",
        "objects are let through unchecked meanwhile: look at its pods and their log",
    )


def _ready_replicas(wanted: Sequence[Workload], none: str, remedy: str) -> Finding:
    if not wanted:
        return skipped(none)
    states = [
        (each, each.status.ready_replicas, 1 if each.spec.replicas is None else each.spec.replicas)
        for each in wanted
    ]
    text = [f"Deployment {each.key}: {ready} of {all_} ready" for each, ready, all_ in states]
    if any(not ready and all_ for _, ready, all_ in states):
        return Finding(Verdict.FAILED, some(text), remedy)
    if any(ready < all_ for _, ready, all_ in states):
        return Finding(Verdict.WARNING, some(text), remedy)
    return ok(some(text))


def _node_plugin_ready(seen: Evidence) -> Finding:
    found = node_plugins(seen.cluster.daemon_sets)
    if not found:
        return skipped("no DaemonSet of a node plugin is in this cluster")
    problems = [
        f"DaemonSet {each.key}: {each.status.number_ready} of "
        f"{each.status.desired_number_scheduled} pods ready"
        for each in found
        if each.status.desired_number_scheduled - each.status.number_ready > _excused(seen, each)
    ]
    remedy = "no volume is mounted on nodes without it: look at its pods that are not ready"
    return judged(problems, some([f"DaemonSet {each.key}" for each in found]), remedy)


def _excused(seen: Evidence, plugin: Workload) -> int:
    """How many of its pods cannot be ready yet: on nodes that are new or not ready themselves."""
    return sum(
        node.ready != "True" or not _is_old(seen, node.metadata.creation_timestamp)
        for node in seen.cluster.nodes
        if kept_away([plugin], node) is None
    )


def _one_version(seen: Evidence) -> Finding:
    found = {
        f"{component} {each.key}": _tag(container.image)
        for component, workloads in (
            ("controller", seen.cluster.deployments),
            ("webhook", seen.cluster.deployments),
            ("node", seen.cluster.daemon_sets),
        )
        for each in ours(workloads, component)
        for container in each.containers
        if "ebs-provisioner" in container.image
    }
    if not found:
        return skipped("no workload of this project is in this cluster")
    text = "; ".join(f"{what}: {tag or 'no tag'}" for what, tag in sorted(found.items()))
    if len(set(found.values())) > 1:
        remedy = "let all three have the same image (docs/upgrading.md)"
        return Finding(Verdict.WARNING, text, remedy)
    return ok(text)


def _tag(image: str) -> str:
    return image.rpartition("/")[2].partition("@")[0].partition(":")[2]


def _kubernetes_versions(seen: Evidence) -> Finding:
    server = _minor(seen.cluster.server_version)
    if server is None:
        return unknown(f"the API server's version is {seen.cluster.server_version!r}")
    problems = list(_version_problems(seen, server))
    remedy = "upgrade the control plane before the nodes, and nodes within three minor versions"
    versions = {node.status.node_info.kubelet_version for node in seen.cluster.nodes} - {""}
    good = f"API server {seen.cluster.server_version}, kubelets {', '.join(sorted(versions))}"
    return judged(problems, good, remedy, worst=Verdict.WARNING)


def _version_problems(seen: Evidence, server: int) -> Iterator[str]:
    if server < _OLDEST_MINOR:
        yield (
            f"API server {seen.cluster.server_version} is older than 1.{_OLDEST_MINOR}, the oldest "
            "that this project is tested with (docs/kubernetes-versions.md)"
        )
    for node in seen.cluster.nodes:
        told = node.status.node_info.kubelet_version
        kubelet = _minor(told)
        if kubelet is not None and kubelet > server:
            yield f"kubelet {told} of Node {node.name} is newer than the API server"
        elif kubelet is not None and server - kubelet > _MOST_SKEW:
            yield f"kubelet {told} of Node {node.name} is more than three minor versions older"


def _minor(version: str) -> int | None:
    found = _VERSION.match(version)
    return int(found[2]) if found else None


def api_server(seen: Evidence) -> Check:
    """Whether there is a cluster to speak of: an API server that does not answer is a failure."""
    title = "the API server answers"
    silent = {"version", "nodes"} <= {*seen.gaps} & {*seen.unanswered}
    if not silent:
        version = seen.cluster.server_version
        return Check("api-server", Verdict.OK, title, version or "it answers other questions")
    remedy = (
        "check --kubeconfig and --context, the address (kubectl cluster-info), the credentials in "
        "it, and the network from this machine"
    )
    return Check("api-server", Verdict.FAILED, title, seen.gaps["version"], remedy)


RULES = (
    Rule(
        "driver-object",
        f"the CSIDriver ({EBS_DRIVER} by default) exists and is set as the driver needs it",
        ("csidrivers",),
        _driver_object,
    ),
    Rule(
        "driver-on-nodes",
        "the driver is registered on every ready node that the node plugin is for",
        ("nodes", "csinodes", "daemonsets"),
        _driver_on_nodes,
    ),
    Rule("leases-held", "a controller holds the leases and renews them", ("leases",), _lease_held),
    Rule("leases-one-holder", "one controller holds all leases", ("leases",), _one_holder),
    Rule("one-controller", "one controller is switched on", ("deployments",), _one_controller),
    Rule("controller-ready", "the controller is ready", ("deployments",), _controller_ready),
    Rule("webhook-ready", "the webhook is ready", ("deployments",), _webhook_ready),
    Rule(
        "node-plugin-ready",
        "the node plugin is ready on its nodes",
        ("daemonsets", "nodes"),
        _node_plugin_ready,
    ),
    Rule(
        "one-version",
        "controller, webhook and node plugin have one version",
        ("deployments", "daemonsets"),
        _one_version,
    ),
    Rule(
        "kubernetes-versions",
        "API server and kubelets have versions that go together",
        ("nodes", "version"),
        _kubernetes_versions,
    ),
)
