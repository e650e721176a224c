"""Reads a node: its objects, its instance, what is attached, and the node plugin's pod."""

import asyncio

from provisioner.controller.nodes.dead_node_rules import registered_instance
from provisioner.inspect.explain.view_rules import NodeView
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.controller_rules import is_ours
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.reading.kinds import WATCHED_PODS
from provisioner.inspect.reading.node_plugin_rules import node_plugins
from provisioner.inspect.reading.setup_kind_rules import Workload
from provisioner.inspect.reading.setup_kinds import DAEMON_SETS
from provisioner.kube.resources import ATTACHMENTS, CSI_NODES, NODES, PERSISTENT_VOLUMES
from provisioner.model.attachment import Attachment
from provisioner.model.ids import is_instance_id
from provisioner.model.names import VOLUME_ID

_STOCK_PLUGIN = "ebs-csi-node"


async def node_view(
    cluster: Cluster, cloud: Cloud, driver: str, name: str, *, whole: bool = False
) -> NodeView:
    """A node; ``whole``: also all that is attached to it."""
    node, csi_node = await asyncio.gather(cluster.one(NODES, name), cluster.one(CSI_NODES, name))
    if node is None:
        return NodeView(name, csi_node=csi_node)
    instance_id = node.instance_id or registered_instance(node, csi_node, driver)
    can_ask = is_instance_id(instance_id) and cloud.calls is not None
    instances, attachments, plugins = await asyncio.gather(
        cloud.instances([instance_id] if can_ask else []),
        _attachments(cluster, driver, name) if whole else asyncio.sleep(0, ()),
        _plugins(cluster, name),
    )
    is_registered = csi_node is not None and csi_node.driver(driver) is not None
    volume_of = {each.name: await _volume_of(cluster, driver, each) for each in attachments}
    attached = await cloud.volumes(volume_of.values()) if volume_of else {}
    return NodeView(
        name,
        node,
        csi_node,
        instances.get(instance_id),
        asked=can_ask and not cloud.misses("DescribeInstances"),
        region=cloud.region,
        attachments=tuple(attachments),
        volume_of=volume_of,
        attached={
            volume_id: volume
            for volume_id, volume in attached.items()
            if volume.on(instance_id) is not None
        },
        plugins=None if cluster.misses(WATCHED_PODS) else tuple(plugins),
        daemon_sets=None if is_registered or plugins else await _daemon_sets(cluster),
    )


async def _attachments(cluster: Cluster, driver: str, name: str) -> list[Attachment]:
    every = await cluster.every(ATTACHMENTS)
    return [e for e in every if e.spec.node_name == name and e.spec.attacher == driver]


async def _plugins(cluster: Cluster, name: str) -> list[WatchedPod]:
    """Pods of a node plugin, ours or the stock driver's, on a node."""
    pods = await cluster.every(WATCHED_PODS, field_selector=f"spec.nodeName={name}")
    return [e for e in pods if is_ours(e, "node") or e.labels.get("app") == _STOCK_PLUGIN]


async def _daemon_sets(cluster: Cluster) -> tuple[Workload, ...] | None:
    """Those of a node plugin; None if they cannot be read."""
    every = await cluster.every(DAEMON_SETS)
    return None if cluster.misses(DAEMON_SETS) else tuple(node_plugins(every))


async def _volume_of(cluster: Cluster, driver: str, attachment: Attachment) -> str:
    """The volume, as it was noted; else by the PersistentVolume."""
    noted = attachment.annotations.get(VOLUME_ID)
    name = attachment.spec.source.persistent_volume_name
    if noted or not name:
        return noted or ""
    found = await cluster.one(PERSISTENT_VOLUMES, name)
    return (found.volume_id(driver) if found else None) or ""
