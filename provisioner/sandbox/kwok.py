"""What KWOK does to nodes and pods: it plays the kubelets.

Pods are shown Running as soon as they have a node, attached volumes or not; assert on
VolumeAttachments and EC2. Nodes are born ready (``nodes.py``); KWOK renews their leases, which is
what the node lifecycle controller asks of a living node, and heals those that were given up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LEASE_S = 40
"""The kubelet's own default."""

FAKE_NODE = ("kwok.x-k8s.io/node", "fake")
"""The annotation of the nodes that it manages; real ones have kubelets of their own."""

_POD_RUNS = """\
conditions:
{{ $now := Now }}
{{ range $type := list "Initialized" "PodReadyToStartContainers" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
phase: Running
startTime: {{ $now | Quote }}
"""

_NODE_IS_READY = """\
conditions:
- type: Ready
  status: "True"
  reason: KubeletReady
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
"""


def _stage(name: str, kind: str, conditions: list[tuple[str, str, list[str]]], then: Any) -> Any:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {
                "matchExpressions": [
                    {"key": key, "operator": operator, **({"values": values} if values else {})}
                    for key, operator, values in conditions
                ]
            },
            "next": then,
        },
    }


def stages() -> list[Any]:
    """Return the stages: a scheduled pod runs, a deleted one is gone, without its grace time.

    KWOK renews leases only if there is a stage for nodes.
    """
    ready = '.status.conditions.[] | select( .type == "Ready" ) | .status'
    return [
        _stage(
            "node-is-ready",
            "Node",
            [(ready, "NotIn", ["True"])],
            {"statusTemplate": _NODE_IS_READY},
        ),
        _stage(
            "pod-runs",
            "Pod",
            [
                (".metadata.deletionTimestamp", "DoesNotExist", []),
                (".status.phase", "In", ["Pending"]),
            ],
            {"statusTemplate": _POD_RUNS},
        ),
        _stage(
            "pod-goes",
            "Pod",
            [(".metadata.deletionTimestamp", "Exists", [])],
            {"delete": True},
        ),
    ]


def write_stages(path: Path) -> Path:
    """Write what ``kwok --config`` takes."""
    path.write_text("\n---\n".join(json.dumps(stage) for stage in stages()) + "\n")
    return path
