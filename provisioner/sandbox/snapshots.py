"""VolumeSnapshots in the sandbox: their kinds, and the cluster's own half of taking them.

A cluster gets both from its distribution or its administrator, one of each for all drivers: the
snapshot-controller makes a VolumeSnapshotContent for each VolumeSnapshot and tells the latter what
came of it. The other half, the driver's, is what is under test.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.programs import SNAPSHOT_CONTROLLER, SNAPSHOT_CRDS

GROUP = "/apis/snapshot.storage.k8s.io/v1"

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_THREADS = 100
_CONFLICT = 409
_POLL_S = 0.05


def arguments(binaries: Path, kubeconfig: Path) -> list[str]:
    """Return the command line of a snapshot-controller that is not held back, as all are here."""
    return [
        str(binaries / SNAPSHOT_CONTROLLER),
        f"--kubeconfig={kubeconfig}",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        f"--worker-threads={_THREADS}",
        # By default what failed is looked at again after up to five minutes: stories would be told
        # at its pace, not at that of the controller under test.
        "--retry-interval-max=2s",
        # No driver here takes snapshots of groups (EC2's CreateSnapshots). With them it would wait
        # 30 s for their kinds before it works.
        "--feature-gates=CSIVolumeGroupSnapshot=false",
    ]


async def define(api: Api, binaries: Path) -> None:
    """Make the three kinds, and return once the API server serves them.

    Kinds that are there already stay as they are.

    Raises:
        ApiError: it refuses one.
    """
    crds = await asyncio.to_thread(_read, binaries / SNAPSHOT_CRDS)
    await asyncio.gather(*(_create(api, crd) for crd in crds))
    await asyncio.gather(*(_established(api, crd["metadata"]["name"]) for crd in crds))


def _read(file: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(file.read_text()) if each]


async def _create(api: Api, crd: dict[str, Any]) -> None:
    try:
        await api.create(_CRDS, crd)
    except ApiError as error:
        if error.status != _CONFLICT:
            raise


async def _established(api: Api, name: str) -> None:
    while True:
        status = (await api.get(f"{_CRDS}/{name}")).get("status", {})
        for each in status.get("conditions") or []:
            if (each["type"], each["status"]) == ("Established", "True"):
                return
        await asyncio.sleep(_POLL_S)
