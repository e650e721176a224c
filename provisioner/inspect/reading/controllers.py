"""Read what a controller's manifests tell of it."""

import asyncio

from provisioner.inspect.reading import controller_rules
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.setup_kind_rules import Workload
from provisioner.inspect.reading.setup_kinds import CONFIG_MAPS


async def cluster_id_of(cluster: Cluster, controller: Workload) -> str | None:
    """The cluster id that a controller runs with; "" if it has none, None if that is not known."""
    names = controller_rules.config_maps(controller)
    namespace = controller.metadata.namespace
    found = await asyncio.gather(*(cluster.one(CONFIG_MAPS, name, namespace) for name in names))
    known = {name: each for name, each in zip(names, found, strict=True) if each is not None}
    return controller_rules.cluster_id_of(controller, known)
