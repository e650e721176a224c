"""Kinds of the Kubernetes API that only the command line reads, cut down to what is used."""

from datetime import datetime

import msgspec

from provisioner.model.claim import Condition
from provisioner.model.meta import KubeObject, ObjectReference
from provisioner.model.pod import Pod
from provisioner.model.volume_snapshot import VolumeSnapshot


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


class Waiting(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``state.waiting`` of a container."""

    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``state`` of a container."""

    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One of ``status.containerStatuses``."""

    name: str = ""
    ready: bool = False
    state: ContainerState | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a pod."""

    phase: str = ""
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


class WatchedPod(Pod, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod with its status."""

    status: PodStatus = PodStatus()

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
    def waiting(self) -> Waiting | None:
        """Why a container of it does not start, None if none waits or it is only being created."""
        every = [
            *(self.status.init_container_statuses or ()),
            *(self.status.container_statuses or ()),
        ]
        found = (each.state.waiting for each in every if each.state and each.state.waiting)
        usual = {"ContainerCreating", "PodInitializing", ""}
        return next((each for each in found if each.reason not in usual), None)


class CsiDriver(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A CSIDriver."""


class SnapshotSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.source`` of a snapshot."""

    persistent_volume_claim_name: str | None = None
    volume_snapshot_content_name: str | None = None


class SnapshotSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a snapshot."""

    source: SnapshotSource = SnapshotSource()
    volume_snapshot_class_name: str | None = None


class WatchedSnapshot(VolumeSnapshot, frozen=True, rename="camel", gc=False, kw_only=True):
    """A VolumeSnapshot with its spec."""

    spec: SnapshotSpec = SnapshotSpec()
