"""Changes of a Node as operations of a JSON patch (RFC 6902).

A list is changed by index, so the operations are valid only for the version that they were made
for, and the patch has to test that version first. In exchange, nothing that other clients write is
sent back: not their taints, and no field of a taint that this version does not know.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from provisioner.model.node import Node
from provisioner.model.taint import Taint

Operation = Mapping[str, Any]


def labelled(node: Node, labels: Mapping[str, str]) -> list[Operation]:
    """Set these labels."""
    return _set("/metadata/labels", node.metadata.labels, labels)


def annotated(node: Node, annotations: Mapping[str, str]) -> list[Operation]:
    """Set these annotations."""
    return _set("/metadata/annotations", node.metadata.annotations, annotations)


def with_provider_id(provider_id: str) -> list[Operation]:
    """Set the providerID; the API server takes it once."""
    return [{"op": "add", "path": "/spec/providerID", "value": provider_id}]


def with_taint(node: Node, taint: Taint) -> list[Operation]:
    """Add a taint; nothing if there is one of its key and effect, which must be unique."""
    taints = node.spec.taints or []
    if any((each.key, each.effect) == (taint.key, taint.effect) for each in taints):
        return []
    value = msgspec.to_builtins(taint)
    if taints:
        return [{"op": "add", "path": "/spec/taints/-", "value": value}]
    return [{"op": "add", "path": "/spec/taints", "value": [value]}]


def without_taints(node: Node, key: str) -> list[Operation]:
    """Remove all taints of a key, whatever their effect."""
    taints = node.spec.taints or []
    found = [index for index, each in enumerate(taints) if each.key == key]
    # From the end: each removal moves up what comes after it.
    return [{"op": "remove", "path": f"/spec/taints/{index}"} for index in reversed(found)]


def without_taint(node: Node, taint: Taint) -> list[Operation]:
    """Remove the taint of this very key, value and effect."""
    sought = (taint.key, taint.value, taint.effect)
    taints = node.spec.taints or []
    found = [(each.key, each.value, each.effect) == sought for each in taints]
    # Key and effect are unique, so there is one at most.
    return [{"op": "remove", "path": f"/spec/taints/{found.index(True)}"}] if any(found) else []


def without_annotation(node: Node, key: str) -> list[Operation]:
    """Remove an annotation, if it is there."""
    if key not in node.annotations:
        return []
    return [{"op": "remove", "path": f"/metadata/annotations/{_escaped(key)}"}]


def _set(path: str, has: Mapping[str, str] | None, wanted: Mapping[str, str]) -> list[Operation]:
    missing = {key: value for key, value in wanted.items() if (has or {}).get(key) != value}
    if not missing:
        return []
    # The API server never sends an empty map: so it is what a cache has left of others' keys.
    if has is None:
        return [{"op": "add", "path": path, "value": missing}]
    return [
        {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}
        for key, value in missing.items()
    ]


def _escaped(key: str) -> str:
    """A key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
