"""Read what a controller's manifests tell of it."""

import asyncio

from provisioner.inspect.reading import controller_rules
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.setup_kind_rules import DataObject, Workload
from provisioner.inspect.reading.setup_kinds import CONFIG_MAPS


async def cluster_id_of(cluster: Cluster, controller: Workload) -> str | None:
    """The cluster id that a controller runs with; "" if it has none, None if that is not known."""
    return controller_rules.cluster_id_of(controller, await _config_maps(cluster, controller))


async def region_of(cluster: Cluster, controller: Workload) -> str | None:
    """The Region that a controller is set to; "" if it is set to none, None if not known."""
    return controller_rules.region_of(controller, await _config_maps(cluster, controller))


async def _config_maps(cluster: Cluster, controller: Workload) -> dict[str, DataObject]:
    names = controller_rules.config_maps(controller)
    namespace = controller.metadata.namespace
    found = await asyncio.gather(*(cluster.one(CONFIG_MAPS, name, namespace) for name in names))
    return {name: each for name, each in zip(names, found, strict=True) if each is not None}
