"""Etcd restored from a backup, under a cache that lives on as a standby's or a webhook's does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.metrics import Metrics
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.sandbox import workdir
from provisioner.sandbox.binaries import ensure_binaries
from provisioner.sandbox.control_plane import ControlPlane, control_plane
from provisioner.sandbox.crew import Crew

VOLUMES = PERSISTENT_VOLUMES.path()
MAPS = "/api/v1/namespaces/default/configmaps"
STANDING = 510  # of fewer, each question for the newest version lists all
PATIENCE_S = 60.0
# Of which nobody here asks anything, and which may end where versions run backwards.
OTHERS = ("kube-controller-manager", "kube-scheduler", "kwok")


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    binaries = await asyncio.to_thread(ensure_binaries)
    async with (
        Crew(tmp_path / "logs") as crew,
        control_plane(tmp_path, binaries, crew, with_snapshots=False) as running,
    ):
        for name in OTHERS:
            await crew.stop(name)
        yield running


async def written(plane: ControlPlane, begin: str, *, writes: int) -> None:
    """What others write: the version rises."""
    for n in range(writes):
        await plane.api.create(MAPS, {"metadata": {"name": f"{begin}-{n}"}})


async def create(plane: ControlPlane, name: str) -> None:
    source = {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": source}
    await plane.api.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})


async def without_etcd(plane: ControlPlane, take: Path, to: Path) -> None:
    """Copy etcd's folder, or one to its place, while neither it nor the API server runs."""
    await plane.stop_api_server()
    await plane.crew.stop("etcd")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(take, to)
    await plane._start_etcd(plane.folder / workdir.STATE / "etcd")
    await plane.start_api_server()


async def test_what_is_written_after_a_restore_of_etcd_is_seen(plane: ControlPlane) -> None:
    data = plane.folder / workdir.STATE / "etcd"
    backup = data.with_name("backup")
    standing = {f"pv-{n}" for n in range(STANDING)}
    await asyncio.gather(*(create(plane, name) for name in standing))
    await without_etcd(plane, data, backup)
    await create(plane, "lost")
    await written(plane, "before", writes=100)
    async with await KubeClient.connect(kubeconfig=str(plane.kubeconfig)) as client:
        informer: Informer[PersistentVolume] = Informer(client, PERSISTENT_VOLUMES, Metrics())
        told = asyncio.Event()
        informer.on_restore = told.set
        following = asyncio.create_task(informer.run())
        try:
            await informer.catch_up()
            assert names(informer) == {*standing, "lost"}

            await without_etcd(plane, backup, data)
            await create(plane, "rescue")
            async with asyncio.timeout(PATIENCE_S):
                await told.wait()
            await written(plane, "after", writes=200)  # from now on no version can tell
            await informer.catch_up()

            assert names(informer) == {*standing, "rescue"}
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def names(informer: Informer[PersistentVolume]) -> set[str]:
    return {each.name for each in informer.values()}
