"""Pods, what they are bound to, and what a webhook knows of both."""

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.model.cluster_view import ClaimView, ClassView, ClusterView, NodeView, VolumeView
from webhook.model.review import Json

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
ELSEWHERE = "us-west-2a"
SHOP = "shop"
ZONE = "topology.kubernetes.io/zone"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"


def claimed(*names: str) -> list[Json]:
    """Volumes of a pod: a claim each."""
    return [{"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}} for name in names]


def ephemeral(name: str = "scratch", class_name: str | None = "zonal") -> Json:
    """A volume whose claim is made with the pod."""
    spec: Json = {"storageClassName": class_name} if class_name else {}
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def inline(handle: str) -> Json:
    """An EBS volume that is named in the pod."""
    return {"name": "raw", "awsElasticBlockStore": {"volumeID": handle}}


def a_pod(
    *volumes: Json,
    name: str | None = "web",
    node: str | None = None,
    selector: Mapping[str, str] | None = None,
    terms: list[Any] | None = None,
) -> Json:
    """A pod; ``terms``: of its required node affinity."""
    spec: Json = {"volumes": list(volumes), "containers": [{"name": "app", "image": "app"}]}
    if node is not None:
        spec["nodeName"] = node
    if selector is not None:
        spec["nodeSelector"] = dict(selector)
    if terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    meta = {"generateName": "web-"} if name is None else {"name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def term(key: str, operator: str, *values: str) -> Json:
    """A term of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def a_node_view(zone: str | None, *, schedulable: bool = True, has_driver: bool = True) -> NodeView:
    """A node of a zone."""
    labels = ((ZONE, zone),) if zone else ()
    return NodeView(labels, zone, schedulable=schedulable, has_driver=has_driver)


def known(
    bound: Mapping[str, Iterable[str] | None] | None = None,
    *,
    unbound: Mapping[str, str] | None = None,
    classes: Mapping[str, ClassView] | None = None,
    nodes: Mapping[str, NodeView | None] | None = None,
    zones: Mapping[str, str] | None = None,
) -> ClusterView:
    """What is known: claims of ``shop``.

    ``bound``: claim to the zones of ``pv-<claim>``, which is volume ``vol-<claim>``; ``unbound``:
    claim to its class. There is a node in each of three zones unless ``nodes`` are given.
    """
    bound, unbound = bound or {}, unbound or {}
    claims = {f"{SHOP}/{name}": ClaimView(f"pv-{name}", "fast", f"uid-{name}") for name in bound}
    claims |= {f"{SHOP}/{name}": ClaimView("", of) for name, of in unbound.items()}
    if nodes is None:
        nodes = {f"node-{zone[-1]}": a_node_view(zone) for zone in (A, B, C)}
    return ClusterView(
        claims=claims,
        volumes={
            f"pv-{name}": VolumeView(
                f"vol-{name}", None if at is None else frozenset(at), SHOP, f"uid-{name}"
            )
            for name, at in bound.items()
        },
        classes=dict(classes or {}),
        nodes=dict(nodes),
        node_views=frozenset(node for node in nodes.values() if node is not None),
        zones=dict(zones or {}),
    )
