"""The cluster that the suite runs on: a sandbox of real nodes alone, in two zones, with its images."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.sandbox import workdir
from provisioner.sandbox.programs import AGNHOST
from provisioner.sandbox.up import Sandbox
from tests.e2e import images, ssh
from tests.e2e.ginkgo import Suite

NODES, ZONES = 3, 2
"""Two nodes are in one zone: a volume can move only within its zone."""

_PATIENCE_S = 60.0
_LOOK_EVERY_S = 2.0
_STORAGE = "/apis/storage.k8s.io/v1"
_SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1"
_KINDS = {
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "VolumeAttachment": f"{_STORAGE}/volumeattachments",
    "VolumeSnapshot": f"{_SNAPSHOTS}/volumesnapshots",
    "VolumeSnapshotContent": f"{_SNAPSHOTS}/volumesnapshotcontents",
}


@dataclass(frozen=True, slots=True)
class World:
    """A running cluster and the suite that is run on it.

    Attributes:
        before: what EC2 held before the first test: the nodes' root volumes.
    """

    sandbox: Sandbox
    suite: Suite
    before: frozenset[str]

    async def left(self) -> list[str]:
        """What the tests have left, in words; the controllers have a minute to tidy up."""
        until_s = time.monotonic() + _PATIENCE_S
        while found := await self._look():
            if time.monotonic() > until_s:
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        return found

    async def _look(self) -> list[str]:
        found = []
        for kind, path in _KINDS.items():
            items = (await self.sandbox.plane.api.get(path))["items"]
            found += [f"{kind} {each['metadata']['name']}" for each in items]
        return found + sorted(await asyncio.to_thread(_in_ec2, self.sandbox) - self.before)

    def torn(self) -> int:
        """How many volumes have been taken from a node so far that still used them."""
        return len(self.sandbox.disks.torn)

    def tracebacks(self) -> list[str]:
        """Parts of ours whose logs hold a traceback, in words."""
        logs = self.sandbox.crew.logs.glob("*.log")
        ours = [
            each for each in logs if each.name.startswith(("controller", "webhook", "node-plugin"))
        ]
        return [
            f"a traceback in {each.name}"
            for each in ours
            if "Traceback (most recent call last)" in each.read_text(errors="replace")
        ]


def _state(sandbox: Sandbox) -> Path:
    return sandbox.plane.folder / workdir.STATE


def _in_ec2(sandbox: Sandbox) -> frozenset[str]:
    """All volumes and snapshots, in words."""
    import boto3  # noqa: PLC0415 - half a second, which a run that is refused should not take

    keys = sandbox.aws_environment
    ec2: Any = boto3.client(
        "ec2",
        endpoint_url=sandbox.ec2_endpoint,
        region_name=sandbox.region,
        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
    )
    volumes = ec2.describe_volumes()["Volumes"]
    snapshots = ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
    return frozenset(
        [f"EC2 volume {each['VolumeId']}" for each in volumes]
        + [f"EC2 snapshot {each['SnapshotId']}" for each in snapshots]
    )


@contextlib.asynccontextmanager
async def world(
    folder: Path, binaries: Path, *, latency: str, throttle: str
) -> AsyncIterator[World]:
    """Run the cluster until the block is left.

    Args:
        folder: where logs stay: of the sandbox in "sandbox/logs", of each run in "runs".
        binaries: the programs, those of the suite too.
        latency, throttle: EC2's.

    Raises:
        SandboxError: something cannot be started or died.
    """
    start = Sandbox.start(
        nodes=0,
        zones=ZONES,
        real_nodes=NODES,
        real_zones=ZONES,
        webhook=True,
        latency=latency,
        throttle=throttle,
        folder=folder / "sandbox",
        binaries=binaries,
    )
    async with start as sandbox, ssh.serving(sandbox.real_nodes, _state(sandbox)) as key:
        assert sandbox.plane.network is not None  # there are real nodes
        into = sandbox.plane.network.command()
        suite = Suite(binaries, sandbox.plane.kubeconfig, NODES, folder / "runs", key, into)
        tar = _state(sandbox) / "e2e-images.tar"
        await asyncio.to_thread(images.write, tar, await suite.images(), binaries / AGNHOST)
        async with asyncio.TaskGroup() as together:
            for node in sandbox.real_nodes:
                together.create_task(node.import_images(tar))
        tar.unlink()
        yield World(sandbox, suite, await asyncio.to_thread(_in_ec2, sandbox))
