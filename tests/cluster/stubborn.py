"""A scheduler that gives the nodes of one zone the highest score always, whatever happens there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from provisioner.sandbox import workdir
from provisioner.sandbox.control_plane import ControlPlane
from tests.cluster.background import Background

NAME = "stubborn-scheduler"
_API = "kubescheduler.config.k8s.io/v1"
_BINARY = "kube-scheduler"


@asynccontextmanager
async def stubborn_scheduler(background: Background, zone: str) -> AsyncIterator[str]:
    """Run it beside the usual one; what pods have to name as their ``schedulerName``.

    Nothing else counts in its scores; which nodes are possible at all it asks as always.
    """
    plane = background.sandbox.plane
    path = plane.folder / workdir.STATE / f"{NAME}.json"
    path.write_text(json.dumps(_configuration(plane, zone)))
    argv = [str(plane.binaries / _BINARY), f"--config={path}", "--secure-port=0"]
    await background.call(plane.crew.start(NAME, argv))
    try:
        yield NAME
    finally:
        await background.call(plane.crew.stop(NAME))


def _configuration(plane: ControlPlane, zone: str) -> dict[str, object]:
    there = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    preferred = [{"weight": 100, "preference": {"matchExpressions": [there]}}]
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity", "weight": 100}]}
    kubeconfig = plane.folder / workdir.STATE / f"{_BINARY}.kubeconfig"
    return {
        "apiVersion": _API,
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 2000, "burst": 4000},
        "profiles": [
            {
                "schedulerName": NAME,
                "plugins": {"score": only},
                "pluginConfig": [
                    {
                        "name": "NodeAffinity",
                        "args": {
                            "apiVersion": _API,
                            "kind": "NodeAffinityArgs",
                            "addedAffinity": {
                                "preferredDuringSchedulingIgnoredDuringExecution": preferred
                            },
                        },
                    }
                ],
            }
        ],
    }
