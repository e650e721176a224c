"""Decide whether a pod may be bound to a node of this zone.

The scheduler has looked at zones already; this is for custom schedulers and bindings made by hand.
A denial tells the scheduler nothing but "try again", so one is only given on proof: the node's zone
and the zones of a bound volume are both known and differ.
Source: what a Binding carries and what becomes of a denied one was measured on Kubernetes 1.36.3.
"""

import msgspec

from provisioner.model.sentences import listed
from webhook.model.cluster_view import ClusterView, Evidence, Verdict
from webhook.model.pod import Pod, volumes_of
from webhook.model.review import Json, allow, deny
from webhook.reviews.pod_rules import placed


class _Target(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    kind: str | None = None
    name: str | None = None


class _Binding(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    target: _Target | None = None


def target_of(binding: Json) -> str:
    """The node that a Binding names, "" for none.

    Its zone is looked up: the labels that the API server puts on a Binding are the caller's own
    when it does not know the node.
    """
    try:
        target = msgspec.convert(binding, _Binding).target
    except msgspec.ValidationError:
        return ""
    if target is None or target.kind not in (None, "", "Node"):
        return ""
    return target.name or ""


def judge(binding: Json, pod: Pod, cluster: ClusterView, *, namespace: str) -> Verdict:
    """Refuse to bind a pod to a node in another zone than one of its volumes.

    ``pod`` is the one that the Binding names; ``pod_rules.references`` says what
    to read. The sentence names no claim: the Binding does not, and its author may not be allowed to
    read the pod.
    """
    node_name = target_of(binding)
    volumes = placed(volumes_of(pod, namespace), cluster, pod_is_there=True)
    if not volumes:
        return Verdict(allow("NothingToDo"))
    zone = cluster.zone_of(node_name)
    volume = next((each for each in volumes if zone and zone not in each.zones), None)
    if volume is None:
        return Verdict(allow("ZonesAgree"))
    zones = listed(volume.zones)
    sentence = (
        f'{pod.title} cannot be bound: one of its volumes is in {zones}, but node "{node_name}" is '
        f"in {zone}; bind it to a node in {zones}; the scheduler does so if the volume's "
        "PersistentVolume has the right nodeAffinity"
    )
    evidence = volume.evidence | Evidence(nodes=frozenset({node_name}))
    return Verdict(deny("NodeElsewhere", sentence, code=403), evidence)
