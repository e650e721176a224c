"""The commands that explanations print: whatever a name is, a shell takes it as one word."""

from __future__ import annotations

import ast
import shlex
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import provisioner.inspect
from provisioner.inspect.explain.view_rules import NodeView, Said, SnapshotView, View
from provisioner.inspect.reading.kind_rules import SnapshotSource, SnapshotSpec, WatchedSnapshot
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.taint import CORDONED
from provisioner.model.volume import Instance, VolumeState
from tests.builders import VOLUME, a_class
from tests.inspect.explain.views import (
    LONG_AGO,
    NODE,
    PV,
    attachment_of,
    chains,
    claim_of,
    claim_view,
    csi_node_of,
    ebs,
    node_of,
    node_view,
    pod_of,
    pv_of,
    refused,
    view,
    volume_of,
)

ODD = "x y';$(z)*\"{q}"
NAMES = (NODE, "web-0", "shop", "csi-", PV, "example.com/hold")


def renamed(value: Any, old: str) -> Any:
    """The same, with an odd name in the place of a plain one."""
    if type(value) is str:
        return value.replace(old, f"{old}{ODD}")
    if isinstance(value, tuple | list | frozenset):
        return type(value)(renamed(each, old) for each in value)
    if isinstance(value, dict):
        return {renamed(key, old): renamed(each, old) for key, each in value.items()}
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        changes = {each: renamed(getattr(value, each), old) for each in names}
        return msgspec.structs.replace(value, **changes)
    if is_dataclass(value) and not isinstance(value, type):
        names = tuple(each.name for each in fields(value))
        return replace(value, **{each: renamed(getattr(value, each), old) for each in names})
    return value


def without_node(node: NodeView) -> View:
    return view("pod", pod=pod_of(phase="Pending"), node=node)


def placed(**volume: Any) -> View:
    """A pod that has a node and does not run."""
    about = claim_view("Bound", volume=volume_of(**volume))
    return view("pod", pod=pod_of(phase="Pending"), claims=(about,), node=node_view())


def snapshot(source: str) -> View:
    found = WatchedSnapshot(
        metadata=ObjectMeta(name="snap", namespace="shop", creation_timestamp=LONG_AGO),
        spec=SnapshotSpec(source=SnapshotSource(persistent_volume_claim_name=source)),
    )
    return view("snapshot", snapshot=SnapshotView("shop/snap", found, versions=("v1",)))


VIEWS = {
    "pod missing": view("pod", pod=None),
    "pod without claim": view("pod", claims=(claim_view(claim=None),), pod=pod_of(node="")),
    "pod quiet": view("pod", pod=pod_of(phase="Pending")),
    "pod ends late": view(
        "pod",
        pod=msgspec.structs.replace(
            pod_of(),
            metadata=msgspec.structs.replace(
                pod_of().metadata, deletion_timestamp="2026-11-23T19:00:00Z"
            ),
        ),
    ),
    "pod on cordoned nodes": view(
        "pod",
        pod=pod_of(node="", message="0/1 nodes are available"),
        nodes=(node_of(taints=[CORDONED]),),
        csi_nodes={NODE: csi_node_of()},
    ),
    "claim missing": view(claims=(claim_view(claim=None),)),
    "claim of no class": view(claims=(claim_view(storage_class=None),)),
    "claim of a bad class": view(
        claims=(claim_view(storage_class=a_class(parameters={"type": "x"})),)
    ),
    "claim in use": view(claims=(claim_view(claim=claim_of(deleting=True), users=(pod_of(),)),)),
    "claim waits for a pod": view(claims=(claim_view(users=(pod_of(node=""),)),)),
    "claim refused": view(claims=(claim_view(said=(refused(Reason.QUOTA_EXCEEDED),)),)),
    "node missing": view("node", node=node_view(node=None)),
    "node without a label": view("node", node=node_view(node=node_of(zone=None))),
    "node with a wrong label": view("node", node=node_view(node=node_of(zone="us-east-1b"))),
    "node without the driver": view("node", node=node_view(csi_node=None)),
    "node full": view(
        "node",
        node=node_view(csi_node=csi_node_of(count=1), attachments=(attachment_of(attached=True),)),
    ),
    "node with a stuck attachment": view(
        "node",
        node=node_view(
            attachments=(attachment_of(deleting=True, finalizers=("example.com/hold",)),)
        ),
    ),
    "instance stopped": without_node(
        node_view(instance=Instance("i-0123456789abcdef0", "us-east-1a", "stopped", "m5.large"))
    ),
    "instance terminated": without_node(
        node_view(instance=Instance("i-0123456789abcdef0", "us-east-1a", "terminated", "m5.large"))
    ),
    "volume missing": view("pv", volume=volume_of(persistent_volume=None)),
    "volume gone": view("pv", volume=volume_of(ebs=None)),
    "volume lost": view("pv", volume=volume_of(ebs=ebs(state=VolumeState.ERROR))),
    "volume in another zone": view("pv", volume=volume_of(ebs=ebs("us-east-1b"))),
    "volume elsewhere": placed(attachments=(attachment_of("node-2", attached=True),)),
    "volume of a strange instance": view("pv", volume=volume_of(attachments=(), nodes_of={})),
    "volume bound": view("pv", volume=volume_of(persistent_volume=pv_of(deleting=True))),
    "volume held": view(
        "pv",
        volume=volume_of(
            persistent_volume=pv_of(deleting=True, phase="Released", finalizers=["example.com/x"]),
            attachments=(),
        ),
    ),
    "volume still attached": view(
        "pv", volume=volume_of(persistent_volume=pv_of(phase="Released"))
    ),
    "snapshot of no claim": snapshot("data"),
    "event of a volume": view(
        "pv",
        volume=volume_of(
            persistent_volume=pv_of(phase="Released"),
            attachments=(),
            said=(Said(f"pv {PV}", "event x", "no", event="VolumeFailedDelete"),),
        ),
    ),
}


def commands(found: View) -> list[str]:
    return [link.command for chain in chains(found) for link in chain.links if link.command]


@pytest.mark.parametrize("case", VIEWS)
@pytest.mark.parametrize("name", NAMES)
def test_an_odd_name_is_one_word_of_each_command(case: str, name: str):
    plain = [shlex.split(each) for each in commands(VIEWS[case])]
    odd = [shlex.split(each) for each in commands(renamed(VIEWS[case], name))]

    wanted = [[word.replace(name, f"{name}{ODD}") for word in words] for words in plain]
    # Names that only somebody's text names are left out, with what they belong to.
    assert all(words in wanted or ODD not in " ".join(words) for words in odd)


def test_the_cases_print_commands_with_names():
    named = [each for found in VIEWS.values() for each in commands(found)]
    assert sum(any(name in each for name in NAMES) for each in named) >= len(VIEWS) // 2


def test_no_command_is_put_together_without_quoting():
    """An f-string that begins like a command."""
    programs = ("kubectl ", "aws ", "ebs-provisioner ")
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(provisioner.inspect.__file__).parent.glob("explain/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr)
        and isinstance(node.values[0], ast.Constant)
        and str(node.values[0].value).startswith(programs)
    ]
    assert found == []


def test_a_volume_in_a_command_is_one_word():
    (command,) = commands(VIEWS["volume gone"])
    assert f"Name=volume-id,Values={VOLUME}" in shlex.split(command)
