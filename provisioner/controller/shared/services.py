"""The services of one controller: what its flows read and act through, made once."""

from dataclasses import dataclass
from typing import Self

from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.node_writes import NodeWrites
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.attachments import Attachments
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.ceilings import Ceilings
from provisioner.ec2.lookups import (
    InstanceLookUps,
    InstanceTypes,
    ModificationReads,
    NameLookUps,
    SnapshotLookUps,
    VolumeReads,
    ZoneNames,
)
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import VolumeWatcher, Watchers
from provisioner.kube.client import KubeClient
from provisioner.kube.events import EventRecorder
from provisioner.metrics import Metrics
from provisioner.model.names import MOVE_SNAPSHOT


@dataclass(frozen=True, slots=True)
class Services:
    """What flows read and act through.

    The lookups ask EC2 for many names or ids in one call. ``watchers`` describe what is in
    transition and wake the flows that wait for it; ``watcher`` is that of volumes. ``unclaimed``
    knows which volumes no persistent volume names yet.
    """

    settings: Settings
    client: KubeClient
    caches: Caches
    events: EventRecorder
    metrics: Metrics
    volumes: Volumes
    ceilings: Ceilings
    instances: Attachments
    lookups: NameLookUps
    zone_names: ZoneNames
    modifications: Modifications
    snapshots: Snapshots
    watchers: Watchers
    watcher: VolumeWatcher
    volume_reads: VolumeReads
    modification_reads: ModificationReads
    snapshot_lookups: SnapshotLookUps
    move_snapshot_lookups: SnapshotLookUps
    unclaimed: UnclaimedTags
    node_writes: NodeWrites
    instance_lookups: InstanceLookUps
    instance_types: InstanceTypes

    @classmethod
    def connect(
        cls,
        settings: Settings,
        client: KubeClient,
        calls: Ec2Calls,
        metrics: Metrics,
        *,
        component: str,
    ) -> Self:
        """Build all services over one client of the API server and one of EC2; nothing is sent.

        ``component`` is what events name as their source.
        """
        volumes, modifications, snapshots = Volumes(calls), Modifications(calls), Snapshots(calls)
        watchers = Watchers.over(volumes, modifications, snapshots, metrics)
        caches = Caches(client, metrics, settings.driver, follows_moves=settings.volume_moves)
        return cls(
            settings=settings,
            client=client,
            caches=caches,
            events=EventRecorder(client, component, metrics),
            metrics=metrics,
            volumes=volumes,
            ceilings=_ceilings(volumes, settings),
            instances=Attachments(calls),
            lookups=NameLookUps(volumes, watchers.pace),
            zone_names=ZoneNames(calls),
            modifications=modifications,
            snapshots=snapshots,
            watchers=watchers,
            watcher=watchers.volumes,
            volume_reads=VolumeReads(volumes, watchers.pace),
            modification_reads=ModificationReads(modifications, watchers.pace),
            snapshot_lookups=SnapshotLookUps(snapshots, watchers.pace),
            move_snapshot_lookups=SnapshotLookUps(snapshots, watchers.pace, tag=MOVE_SNAPSHOT),
            unclaimed=UnclaimedTags(volumes, caches, cluster_id=settings.cluster_id),
            node_writes=NodeWrites(client, caches.nodes),
            instance_lookups=InstanceLookUps(calls, settings.cluster_id, watchers.pace),
            instance_types=InstanceTypes(calls, watchers.pace),
        )

    async def close(self) -> None:
        """Cancel what is in flight behind the services, and its waiters."""
        reads = (self.ceilings, self.volume_reads, self.modification_reads)
        of_snapshots = (self.snapshot_lookups, self.move_snapshot_lookups)
        of_nodes = (self.instances, self.instance_lookups, self.instance_types)
        for edge in (self.lookups, self.zone_names, *of_nodes, *of_snapshots, *reads):
            await edge.close()


def _ceilings(volumes: Volumes, settings: Settings) -> Ceilings:
    return Ceilings(volumes, cluster_id=settings.cluster_id, extra_tags=settings.extra_tags)
