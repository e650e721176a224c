"""What is known of the cluster: one informer a kind, of which only views are kept."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.metrics import SharedMetrics
from webhook import projections
from webhook.model.views import ClaimView, ClassView, NodeView, VolumeView
from webhook.projections import Kept, V


class Caches:
    """Views by name. What is not here may exist all the same: a cache is always a little late."""

    def __init__(self, client: KubeClient, metrics: SharedMetrics, driver: str) -> None:
        self._claims = Informer(client, projections.claims(), metrics)
        self._volumes = Informer(client, projections.volumes(driver), metrics)
        self._classes = Informer(client, projections.classes(driver), metrics)
        self._nodes = Informer(client, projections.nodes(), metrics)
        self._registrations = Informer(client, projections.registrations(driver), metrics)
        self._informers: tuple[Informer[Any], ...] = (
            self._claims,
            self._volumes,
            self._classes,
            self._nodes,
            self._registrations,
        )
        self._joined: dict[str, NodeView] = {}
        self._backed_by: dict[str, tuple[str, ...]] = {}  # names, by EBS volume
        self._volumes.subscribe(self._index)
        self._nodes.subscribe(self._join)
        self._registrations.subscribe(self._join)

    async def run(self) -> None:
        """Follow the API server for ever."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    async def synced(self) -> None:
        """Return once every cache has had its first list: before that nothing may be judged."""
        for informer in self._informers:
            await informer.synced.wait()

    async def synced_by(self, deadline: float) -> bool:
        """Whether that is so by a loop time; it is after the first seconds of the process."""
        if not self.is_synced:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.synced()
            except TimeoutError:
                return False
        return True

    @property
    def is_synced(self) -> bool:
        """Whether every cache has had its first list."""
        return all(informer.synced.is_set() for informer in self._informers)

    def claim(self, key: str) -> ClaimView | None:
        """A claim by ``namespace/name``."""
        return _view(self._claims.get(key))

    def volume(self, name: str) -> VolumeView | None:
        """A persistent volume; None also for one that is not on EBS."""
        return _view(self._volumes.get(name))

    def backed_by(self, volume_id: str) -> tuple[str, ...]:
        """The names of the persistent volumes on this EBS volume; seldom more than one."""
        return self._backed_by.get(volume_id, ())

    def storage_class(self, name: str) -> ClassView | None:
        """A class; None also for one whose volumes are not on EBS."""
        return _view(self._classes.get(name))

    def node(self, name: str) -> NodeView | None:
        """A node."""
        return self._joined.get(name)

    def nodes(self) -> Collection[NodeView]:
        """All nodes: a live view, so use it before the next await."""
        return self._joined.values()

    @property
    def nodes_by_name(self) -> Mapping[str, NodeView]:
        """The same by name, as live."""
        return self._joined

    def _index(self, old: Kept[VolumeView] | None, new: Kept[VolumeView] | None) -> None:
        for kept in (old, new):
            if kept is None:
                continue
            volume_id = kept.view.volume_id
            names = tuple(each for each in self.backed_by(volume_id) if each != kept.name)
            if kept is new:
                names = (*names, kept.name)
            if names:
                self._backed_by[volume_id] = names
            else:
                self._backed_by.pop(volume_id, None)

    def _join(self, old: Kept[Any] | None, new: Kept[Any] | None) -> None:
        """Put together what Node and CSINode of one name say."""
        changed = new or old
        assert changed is not None  # noqa: S101 -- an informer tells of a change of something
        name = changed.name
        node = self._nodes.get(name)
        if node is None:
            self._joined.pop(name, None)
        elif self._registrations.get(name) is None:
            self._joined[name] = node.view
        else:
            self._joined[name] = projections.same_node(replace(node.view, has_driver=True))


def _view(kept: Kept[V] | None) -> V | None:
    return None if kept is None else kept.view
