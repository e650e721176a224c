"""Nodes that take no more volumes: which, what they have, and whether others have room."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.inspect.explain.chain_rules import Cause, Link, Proof
from provisioner.inspect.explain.view_rules import View
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.shell_words import shell
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Condition
from provisioner.model.node import TYPE_LABEL, Node
from provisioner.model.sentences import listed
from provisioner.model.zone import zone_of

FULL = "exceed max volume count"  # the scheduler's words (Kubernetes 1.36)
_COUNT = re.compile(r"(\d+) node\(s\) exceed max volume count")
_ALL = re.compile(r"^0/(\d+) nodes are available")
MOST_NAMED = 3
TOLERATIONS = "tolerations"
# A shell would look for files of this name: it is quoted.
_LIMITS = "custom-columns=NODE:.metadata.name,LIMIT:.spec.drivers[*].allocatable.count"


@dataclass(frozen=True, slots=True)
class Room:
    """How many volumes a node has and may have; None for what is not known."""

    node: Node
    limit: int | None
    used: int | None
    claims: tuple[str, ...] = ()

    def takes(self, number: int) -> bool:
        """Whether so many more are known to fit."""
        return None not in (self.limit, self.used) and self.left >= number

    @property
    def left(self) -> int:
        """How many more fit; 0 if that is not known."""
        return max(0, (self.limit or 0) - (self.used or 0))

    @property
    def seen(self) -> str:
        """How many it has and may have, and of which claims."""
        if self.limit is None:
            return "limit unknown"
        if self.used is None:
            return f"limit {self.limit}"
        of = f", of {'claim' if len(self.claims) == 1 else 'claims'} {listed(self.claims, 'and')}"
        return f"{self.used} of {self.limit}{of if self.claims else ''}"

    def __str__(self) -> str:
        return f"{self.node.name} ({self.seen})"


def on_node(view: View) -> Mapping[str, list[Attachment]]:
    """The VolumeAttachments of the driver by node; those that end still count (1.36)."""
    found: dict[str, list[Attachment]] = defaultdict(list)
    for each in view.attachments:
        found[each.spec.node_name].append(each)
    return found


def refuses(condition: Condition, number: int) -> bool:
    """Whether the scheduler refuses so many nodes because they take no more volumes; 0 for all."""
    counted, every = _COUNT.search(condition.message), _ALL.search(condition.message)
    least = number or (int(every[1]) if every else 0)
    return FULL in condition.message and (counted is None or int(counted[1]) >= least)


def are_known(view: View, nodes: Sequence[Node]) -> bool:
    """Whether one of the nodes is full by its own limit, and not only in the scheduler's words."""
    return any(None not in (e.limit, e.used) and not e.left for e in rooms(view, nodes))


def rooms(view: View, nodes: Sequence[Node]) -> list[Room]:
    """What these nodes have, the least room first."""
    attached = on_node(view)
    is_known = view.asked_attachments and view.read("volumeattachments")
    found = []
    for node in nodes:
        csi_node = view.csi_nodes.get(node.name)
        driver = csi_node.driver(view.driver) if csi_node else None
        here = attached.get(node.name, [])
        sources = (each.spec.source.persistent_volume_name or "" for each in here)
        claims = tuple(view.claim_of[name] for name in sources if name in view.claim_of)
        limit = driver.allocatable.count if driver and driver.allocatable else None
        found.append(Room(node, limit, len(here) if is_known else None, claims))
    return sorted(found, key=lambda each: (each.left, each.node.name))


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a pod chooses its nodes.

    Attributes:
        fields: "nodeSelector", "required affinity", "tolerations": those that exclude nodes.
        text: what the first two say.
    """

    fields: tuple[str, ...]
    text: str

    @property
    def chosen(self) -> str:
        """Those fields that choose, without the tolerations."""
        return listed([each for each in self.fields if each != TOLERATIONS], "and")

    def __str__(self) -> str:
        also = f" and {TOLERATIONS}" if TOLERATIONS in self.fields else ""
        verb = "allows" if len(self.fields) == 1 else "allow"
        return f"that the pod's {self.chosen} ({self.text}){also} {verb}"


def link(
    view: View,
    pod: WatchedPod,
    free: Sequence[Node],
    excluded: Sequence[Node],
    selection: Selection | None,
) -> Link:
    """The nodes that could take the pod have no room for its volumes.

    Args:
        view: all that is known.
        pod: without a node.
        free: nodes that can use its volumes, and that it selects and tolerates.
        excluded: nodes that can use its volumes, and that it does not select.
        selection: what excludes them; None for nothing.
    """
    number = max(1, len(pod.claim_keys))
    every = rooms(view, free)
    # Where the driver has no limit, the scheduler does not count.
    full = [e for e in every if e.limit is not None and not e.takes(number)] or every
    others = [each for each in rooms(view, excluded) if each.takes(number)] if selection else []
    odd, check = _low(view, full)
    sentence = _sentence(full, selection, is_all=len(every) == len(full))
    return Link(
        Cause.NODES_FULL if len(every) == len(full) else Cause.UNSCHEDULABLE,
        sentence + odd + _roomy(len(every) - len(full), others),
        _proof(full),
        next=f"you; an autoscaler helps only if it can add a node {selection}"
        if others
        else "the autoscaler, if one may add nodes there; else you",
        remedy=(
            _elsewhere(pod, full, selection) if selection and others else _more(full, selection)
        )
        + check,
        command=_command(full),
    )


def _sentence(full: Sequence[Room], selection: Selection | None, *, is_all: bool) -> str:
    where, seen = _zones(full), _named(full)
    if selection is None:
        which, take = ("node", "takes") if len(full) == 1 else ("nodes", "take")
        return f"The {which} in {where} that could take the pod {take} no more volumes: {seen}."
    if len(full) > 1:
        return f"{len(full)} nodes in {where} {selection} take no more volumes: {seen}."
    (only,) = full
    one = "the only one" if is_all else "one of those"
    return (
        f"Node {only.node.name}, {one} in {where} {selection}, takes no more volumes ({only.seen})."
    )


def _roomy(number: int, others: Sequence[Room]) -> str:
    """The nodes with room: so many that the pod allows, and the others."""
    told = ""
    if number:
        told += f" {number} more would have room; the scheduler names another reason against them."
    if others:
        told += f" Other nodes in {_zones(others)} have room: {_named(others)}."
    return told


def by_words(pod: WatchedPod, condition: Condition) -> Link:
    """The same, if no node could be read."""
    return Link(
        Cause.NODES_FULL,
        "The nodes that could take the pod take no more volumes.",
        Proof(f"pod {pod.key}, condition PodScheduled", condition.message),
        next="you, or the autoscaler, if it may add nodes",
        remedy="Delete pods with volumes on these nodes, let the pod run on other nodes of its "
        "volumes' zone, or add a node there.",
        command=shell("kubectl get csinodes -o {}", _LIMITS),
    )


def _named(found: Sequence[Room]) -> str:
    more = len(found) - MOST_NAMED
    names = ", ".join(str(each) for each in found[:MOST_NAMED])
    return f"{names} and {more} more" if more > 0 else names


def _zones(found: Sequence[Room]) -> str:
    return listed({zone_of(each.node.labels) or "an unknown zone" for each in found})


def _proof(full: Sequence[Room]) -> Proof:
    told = [
        f"{each.node.name}: limit {'unknown' if each.limit is None else each.limit}, "
        f"attached {'not read' if each.used is None else each.used}"
        for each in full[:MOST_NAMED]
    ]
    return Proof("CSINodes, allocatable.count; VolumeAttachments", "; ".join(told))


def _low(view: View, full: Sequence[Room]) -> tuple[str, str]:
    """That a limit is below that of other nodes of the type, and what to check; "" for neither."""
    most: dict[str, int] = {}
    for each in rooms(view, view.nodes):
        kind = each.node.labels.get(TYPE_LABEL, "")
        most[kind] = max(most.get(kind, 0), each.limit or 0)
    for each in full[:MOST_NAMED]:
        kind, name = each.node.labels.get(TYPE_LABEL, ""), each.node.name
        if kind and each.limit is not None and each.limit < most[kind]:
            return (
                (
                    f" The limit of {name} ({each.limit}) is below that of another {kind} "
                    f"({most[kind]})."
                ),
                (
                    f" If the limit of {name} is not intended, check --volume-attach-limit and "
                    "--reserved-volume-attachments of the node plugin there."
                ),
            )
    return "", ""


def _freed(full: Sequence[Room]) -> str:
    which = f"node {full[0].node.name}" if len(full) == 1 else "one of these nodes"
    return f"delete a pod that uses a volume on {which} and is not needed there"


def _elsewhere(pod: WatchedPod, full: Sequence[Room], selection: Selection) -> str:
    """What helps if nodes have room that the pod does not select."""
    if pod.owner is None:
        change = f"Delete the pod and create it without that {selection.chosen}"
    else:
        owner = f"{pod.owner.kind} {pod.owner.name}"
        if pod.deployment:
            owner = f"Deployment {pod.deployment}"
        change = f"Change the {selection.chosen} in {owner}, so that it allows a node with room"
    return f"{change}; or {_freed(full)}. No further node is needed."


def _more(full: Sequence[Room], selection: Selection | None) -> str:
    """What helps if no other node has room either."""
    free = _freed(full)
    selected = " that the pod selects" if selection else ""
    return (
        f"{free[0].upper()}{free[1:]}; or add a node in {_zones(full)}{selected}, or one of an "
        "instance type that takes more volumes."
    )


def _command(full: Sequence[Room]) -> str:
    if len(full) > 1:
        return shell("kubectl get csinodes -o {}", _LIMITS)
    only = full[0].node.name
    return shell("kubectl get pods -A -o wide --field-selector spec.nodeName={}", only)
