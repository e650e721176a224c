"""The kinds of objects that the worked example makes and reads, cut down to what it looks at."""

import msgspec

from provisioner.kube.resources import Resource
from provisioner.model.meta import KubeObject, ObjectReference


class Condition(msgspec.Struct, frozen=True):
    """One of ``status.conditions``."""

    type: str = ""
    status: str = ""
    message: str = ""


class NamespaceStatus(msgspec.Struct, frozen=True):
    """``status`` of a namespace."""

    conditions: list[Condition] | None = None


class Namespace(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A Namespace."""

    status: NamespaceStatus = NamespaceStatus()

    @property
    def remains(self) -> str:
        """What is still in one that is being deleted."""
        said = [c.message for c in self.status.conditions or () if c.status == "True"]
        return "; ".join(each for each in said if each)


class State(msgspec.Struct, frozen=True, rename="camel"):
    """A container that waits, or has ended."""

    reason: str = ""
    message: str = ""
    exit_code: int = 0


class ContainerState(msgspec.Struct, frozen=True):
    """``state`` of a container."""

    waiting: State | None = None
    running: dict[str, str] | None = None
    terminated: State | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    """One of ``status.containerStatuses``."""

    state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a pod."""

    phase: str = ""
    container_statuses: list[ContainerStatus] | None = None
    conditions: list[Condition] | None = None


class RunPod(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A pod of one container."""

    status: PodStatus = PodStatus()

    @property
    def state(self) -> ContainerState:
        """Of its container."""
        statuses = self.status.container_statuses or [ContainerStatus()]
        return statuses[0].state

    @property
    def unscheduled(self) -> str:
        """Why the scheduler has found no node for it, "" if it has."""
        return next(
            (
                each.message
                for each in self.status.conditions or ()
                if each.type == "PodScheduled" and each.status == "False"
            ),
            "",
        )


class ClaimStatus(msgspec.Struct, frozen=True):
    """``status`` of a claim."""

    phase: str = ""
    capacity: dict[str, str] | None = None


class SeenClaim(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A PersistentVolumeClaim."""

    status: ClaimStatus = ClaimStatus()


class SnapshotStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a VolumeSnapshot."""

    ready_to_use: bool | None = None


class SeenSnapshot(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A VolumeSnapshot."""

    status: SnapshotStatus | None = None


class ContentSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a VolumeSnapshotContent."""

    volume_snapshot_ref: ObjectReference = ObjectReference()


class SeenContent(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A VolumeSnapshotContent."""

    spec: ContentSpec = ContentSpec()


class Event(KubeObject, frozen=True, rename="camel", kw_only=True):
    """An Event."""

    type: str | None = None
    reason: str | None = None
    message: str | None = None
    involved_object: ObjectReference = ObjectReference()


_SNAPSHOT = "snapshot.storage.k8s.io"
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", Namespace)
PODS = Resource("", "v1", "pods", "Pod", RunPod)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", SeenClaim)
EVENTS = Resource("", "v1", "events", "Event", Event)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", KubeObject)
SNAPSHOTS = Resource(_SNAPSHOT, "v1", "volumesnapshots", "VolumeSnapshot", SeenSnapshot)
CONTENTS = Resource(_SNAPSHOT, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", SeenContent)
SNAPSHOT_CLASSES = Resource(
    _SNAPSHOT, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", KubeObject
)
