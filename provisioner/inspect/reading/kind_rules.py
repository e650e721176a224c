"""Kinds of the Kubernetes API that only the command line reads, cut down to what is used."""

from datetime import datetime

import msgspec

from provisioner.model.claim import Condition
from provisioner.model.copy_pod import Terminated, Waiting
from provisioner.model.meta import KubeObject, ObjectReference
from provisioner.model.node import OwnedMeta, Owner
from provisioner.model.pod import Pod
from provisioner.model.volume_snapshot import VolumeSnapshot

# Waiting reasons of a container that is only being created.
_USUAL = frozenset({"ContainerCreating", "PodInitializing", ""})


class EventSource(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``source`` of an event."""

    component: str = ""


class EventSeries(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``series`` of an event, as events.k8s.io writes it."""

    count: int = 0
    last_observed_time: datetime | None = None


class Event(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A core/v1 Event; the older and the newer API fill different fields."""

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None
    source: EventSource | None = None
    reporting_component: str = ""

    @property
    def last_at(self) -> datetime | None:
        """When it was last seen."""
        newest = self.series.last_observed_time if self.series else None
        times = (newest, self.last_timestamp, self.event_time, self.first_timestamp)
        return next((each for each in times if each), self.metadata.creation_timestamp)

    @property
    def times(self) -> int:
        """How often it was seen."""
        return max(self.count or 1, self.series.count if self.series else 1)

    @property
    def component(self) -> str:
        """Who reports it."""
        return (self.source.component if self.source else "") or self.reporting_component


class Running(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``state.running`` of a container."""

    started_at: datetime | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``state`` of a container."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``status.containerStatuses``."""

    name: str = ""
    ready: bool = False
    state: ContainerState | None = None

    @property
    def held(self) -> Waiting | None:
        """Why it does not start, None if it does not wait or is only being created."""
        found = self.state.waiting if self.state else None
        return found if found and found.reason not in _USUAL else None

    @property
    def started_at(self) -> datetime | None:
        """Since when it runs, None if it does not."""
        return self.state.running.started_at if self.state and self.state.running else None

    @property
    def is_done(self) -> bool:
        """Whether it has ended without an error."""
        ended = self.state.terminated if self.state else None
        return ended is not None and ended.exit_code == 0


class PodStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a pod."""

    phase: str = ""
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


APPS = "apps/v1"
"""Of Deployments, StatefulSets and ReplicaSets."""


class WatchedPod(Pod, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod with its status."""

    metadata: OwnedMeta = OwnedMeta()
    status: PodStatus = PodStatus()

    @property
    def owner(self) -> Owner | None:
        """What creates it again if it is deleted; None for a pod of nobody."""
        found = (each for each in self.metadata.owner_references or () if each.controller)
        return next(found, None)

    @property
    def deployment(self) -> str:
        """The Deployment whose ReplicaSet has created it, "" for none.

        A ReplicaSet of a Deployment is called like that and the hash of the template.
        Source: Kubernetes 1.36 pkg/controller/deployment/sync.go getNewReplicaSet.
        """
        owner, found = self.owner, self.labels.get("pod-template-hash")
        if owner is None or (owner.api_version, owner.kind) != (APPS, "ReplicaSet") or not found:
            return ""
        return owner.name.removesuffix(f"-{found}") if owner.name.endswith(f"-{found}") else ""

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type, if it has it."""
        return next((each for each in self.status.conditions or () if each.type == kind), None)

    @property
    def is_ready(self) -> bool:
        """Whether its condition Ready is True."""
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def is_over(self) -> bool:
        """Whether it has ended: its volumes are given back, and it starts no more."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def held(self) -> ContainerStatus | None:
        """The first container that waits, and not only while it is created."""
        every = [
            *(self.status.init_container_statuses or ()),
            *(self.status.container_statuses or ()),
        ]
        return next((each for each in every if each.held), None)

    @property
    def waiting(self) -> Waiting | None:
        """Why a container of it does not start, None if none waits or it is only being created."""
        return self.held.held if self.held else None

    @property
    def unready(self) -> ContainerStatus | None:
        """The first container that is not ready, and has not done its work either."""
        every = self.status.container_statuses or ()
        return next((each for each in every if not each.ready and not each.is_done), None)

    @property
    def initialising(self) -> ContainerStatus | None:
        """The init container that runs, while the others have to wait for its end."""
        every = self.status.init_container_statuses or ()
        return next((each for each in every if each.started_at and not each.ready), None)


class SnapshotSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.source`` of a snapshot."""

    persistent_volume_claim_name: str | None = None


class SnapshotSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a snapshot."""

    source: SnapshotSource = SnapshotSource()
    volume_snapshot_class_name: str | None = None


class WatchedSnapshot(VolumeSnapshot, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeSnapshot with its spec."""

    spec: SnapshotSpec = SnapshotSpec()
