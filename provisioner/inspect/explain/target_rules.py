"""Which rules answer for an object, and what is told of a healthy one."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from provisioner.inspect.explain import (
    claim_rules,
    node_rules,
    pod_rules,
    snapshot_rules,
    volume_rules,
)
from provisioner.inspect.explain.chain_rules import (
    Cause,
    Chain,
    Explanation,
    Link,
    Proof,
    at,
    merged,
)
from provisioner.inspect.explain.view_rules import View, VolumeView, newest, object_of
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.inspect.shell_words import with_cluster, with_region

_LEAVES_IN = timedelta(seconds=60)
_RECENT = timedelta(minutes=10)


def explain(view: View, flags: str = "") -> Explanation:
    """What is wrong with the object that is asked about.

    Args:
        view: all that is known.
        flags: that name its cluster to kubectl; "" for the current one.
    """
    chains = merged(_chains(view)) or _leaving(view)
    found = tuple(_to_paste(each, view.region, flags) for each in chains)
    return Explanation(str(view.target), found, tuple(_facts(view)), tuple(sorted(view.unread)))


def _leaving(view: View) -> tuple[Chain, ...]:
    """What is being deleted is never called healthy."""
    found = object_of(view)
    if found is None or not found.deleting:
        return ()
    finalizers = ", ".join(found.metadata.finalizers or ()) or "none"
    since = deleted_at(found)
    link = Link(
        Cause.FINALIZER_STUCK,
        f"{view.target} is being deleted, and is still there.",
        Proof(f"{view.target}, metadata.finalizers", finalizers),
        next="the controllers that write these finalizers",
        remedy="If it stays: look at the log of the one whose finalizer is left.",
    )
    return (Chain((link,), waits=since is not None and view.now - since < _LEAVES_IN),)


def _to_paste(chain: Chain, region: str, flags: str) -> Chain:
    """With commands that ask the Region and the cluster that this command has asked."""
    links = (
        replace(
            each,
            next=with_cluster(each.next, flags),
            remedy=with_cluster(each.remedy, flags),
            command=with_cluster(with_region(each.command, region), flags),
        )
        for each in chain.links
    )
    return replace(chain, links=tuple(links))


def _chains(view: View) -> list[Chain]:
    match view.target.kind:
        case "pod":
            return pod_rules.chains(view)
        case "pvc":
            return claim_rules.chains(view, view.claims[0])
        case "pv" if view.volume is not None:
            ills = {name: node_rules.ill(view, each) for name, each in view.other_nodes.items()}
            return volume_rules.chains(view, view.volume, ills)
        case "node" if view.node is not None:
            return node_rules.chains(view, view.node)
        case "snapshot" if view.snapshot is not None:
            return snapshot_rules.chains(view, view.snapshot)
    raise AssertionError(f"nothing was read of {view.target}")


def _facts(view: View) -> Iterator[tuple[str, str]]:
    """What somebody wants to know first of an object with which all is well."""
    if view.pod is not None:
        yield "phase", view.pod.status.phase or "Pending"
        if view.pod.node_name:
            yield "node", view.pod.node_name
        if not view.claims:
            yield "claims", "none"
        last = newest(view.pod_said, warning=True)
        if last is not None and last.at is not None and view.now - last.at < _RECENT:
            yield "last warning", f"{at(last.at)} {last.event}: {last.text}"
    for each in view.claims:
        if each.claim is not None and each.volume is not None:
            yield f"volume of {each.claim.name}", _of_volume(each.volume)
    if view.volume is not None and view.volume.persistent_volume is not None:
        yield "phase", view.volume.persistent_volume.phase or "unknown"
        yield "volume", _of_volume(view.volume)
    yield from _of_node(view)
    if view.snapshot is not None and view.snapshot.content is not None:
        yield "snapshot", view.snapshot.content.snapshot_id or "none yet"
        if view.snapshot.ebs is not None:
            yield "state", str(view.snapshot.ebs.state)


def _of_volume(about: VolumeView) -> str:
    if about.ebs is None:
        return f"{about.name}" + ("" if about.asked else ", EC2 was not asked")
    volume = about.ebs
    return f"{volume.volume_id} in {volume.zone}, {volume.state}, {volume.size_gib} GiB"


def _of_node(view: View) -> Iterator[tuple[str, str]]:
    node = view.node
    if view.target.kind != "node" or node is None or node.node is None:
        return
    if node.instance is not None:
        yield "instance", f"{node.instance.instance_id} in {node.instance.zone}"
    registered = node_rules.registration(view, node)
    if registered is not None and registered.allocatable is not None:
        yield "volumes", f"{len(node.attachments)} of {registered.allocatable.count}"
