"""Etcd restored from a backup, under a cache that lives on as a standby's or a webhook's does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.metrics import Metrics
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.sandbox import workdir
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")
VOLUMES = PERSISTENT_VOLUMES.path()
MAPS = "/api/v1/namespaces/default/configmaps"
STANDING = 510  # of fewer, each question for the newest version lists all
FOLLOWS_AGAIN_S = 12.0  # the longest pause between two tries
# Of which nobody here asks anything, and which would end where versions run backwards.
OTHERS = ("kube-controller-manager", "kube-scheduler", "kwok")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    start = Sandbox.start(
        nodes=1, zones=1, latency="none", throttle="none", controller=False, snapshots=False
    )
    with Background(start) as background:
        async with opened(background) as running:
            yield running


async def written(cluster: Cluster, begin: str, *, writes: int) -> None:
    """What others write: the version rises."""
    for n in range(writes):
        await cluster.api.create(MAPS, {"metadata": {"name": f"{begin}-{n}"}})


async def create(cluster: Cluster, name: str) -> None:
    source = {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": source}
    await cluster.api.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})


async def stopped(plane: ControlPlane) -> None:
    await plane.stop_api_server()
    await plane.crew.stop("etcd")


async def started(plane: ControlPlane) -> None:
    await plane._start_etcd(plane.folder / workdir.STATE / "etcd")
    await plane.start_api_server()


async def restored(cluster: Cluster, backup: Path) -> None:
    plane = cluster.sandbox.plane
    data = plane.folder / workdir.STATE / "etcd"
    await cluster.background.call(stopped(plane))
    if backup.exists():
        shutil.rmtree(data)
        shutil.copytree(backup, data)
    else:
        shutil.copytree(data, backup)
    await cluster.background.call(started(plane))


async def test_what_is_written_after_a_restore_of_etcd_is_seen(cluster: Cluster, tmp_path: Path):
    for name in OTHERS:
        await cluster.background.call(cluster.sandbox.plane.crew.stop(name))
    standing = {f"pv-{n}" for n in range(STANDING)}
    await asyncio.gather(*(create(cluster, name) for name in standing))
    await restored(cluster, tmp_path / "etcd")  # there is a backup now
    await create(cluster, "lost")
    await written(cluster, "before", writes=100)
    async with await KubeClient.connect(kubeconfig=str(cluster.sandbox.plane.kubeconfig)) as client:
        informer: Informer[PersistentVolume] = Informer(client, PERSISTENT_VOLUMES, Metrics())
        restores: list[str] = []
        informer.on_restore = lambda: restores.append("told")
        following = asyncio.create_task(informer.run())
        try:
            await informer.catch_up()
            assert names(informer) == {*standing, "lost"}

            await restored(cluster, tmp_path / "etcd")
            await create(cluster, "rescue")
            await asyncio.sleep(FOLLOWS_AGAIN_S)
            await written(cluster, "after", writes=200)  # from now on no version can tell
            await informer.catch_up()

            assert names(informer) == {*standing, "rescue"}
            assert restores == ["told"]
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def names(informer: Informer[PersistentVolume]) -> set[str]:
    return {each.name for each in informer.values()}
