"""What an explanation is made of: chains of links, the first cause first."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from provisioner.model.errors import Reason


class Cause(StrEnum):
    """Causes that are no reason of an event (``Reason``); both are stable ids."""

    # Nothing is there, or it was refused.
    OBJECT_MISSING = "ObjectMissing"
    ADMISSION_DENIED = "AdmissionDenied"
    RESOURCE_QUOTA = "ResourceQuotaExceeded"
    WEBHOOK_UNREACHABLE = "WebhookUnreachable"
    # Pods and the scheduler.
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_NOT_BOUND = "ClaimNotBound"
    NO_NODE_IN_ZONE = "NoNodeInVolumeZone"
    POD_EXCLUDES_ZONE = "PodExcludesVolumeZone"
    ZONES_DIFFER = "VolumesInDifferentZones"
    NODES_FULL = "NodesFull"
    TAINTED = "TaintNotTolerated"
    UNSCHEDULABLE = "NoNodeFits"
    NOT_SCHEDULED = "PodNotScheduled"
    HELD_FOR_MOVE = "HeldForVolumeMove"
    POD_WAITS = "PodWaitsForVolume"
    CONTAINER_FAILS = "ContainerDoesNotStart"
    # Attachments.
    NOT_ATTACHED = "VolumeNotAttached"
    OTHER_NODE = "VolumeOnOtherNode"
    ATTACHMENT_STUCK = "AttachmentStuck"
    ATTACHMENT_UNKNOWN = "AttachmentUnknownToEc2"
    PENDING_IN_EC2 = "AttachmentPendingInEc2"
    ATTACHMENT_MISSING = "AttachmentMissing"
    NOT_MOUNTED = "VolumeNotMounted"
    OWNERSHIP = "OwnershipChanges"
    # Claims.
    WAITS_FOR_POD = "WaitsForPod"
    CLASS_NONE = "ClaimWithoutClass"
    CLASS_NOT_OURS = "ClassOfOtherDriver"
    VOLUME_MISSING = "PersistentVolumeMissing"
    VOLUME_TAKEN = "PersistentVolumeTaken"
    POPULATOR_MISSING = "PopulatorMissing"
    SOURCE_MISSING = "SourceMissing"
    SOURCE_NOT_READY = "SourceNotReady"
    CLAIM_LOST = "ClaimLost"
    CLAIM_IN_USE = "ClaimInUse"
    PROVISIONING = "Provisioning"
    NOT_CREATED = "VolumeNotCreated"
    GROWS = "VolumeGrows"
    FILE_SYSTEM_WAITS = "FileSystemGrowsWithPod"
    MODIFYING = "VolumeChanges"
    # Persistent volumes.
    RELEASED = "Released"
    STILL_BOUND = "VolumeStillBound"
    FINALIZER_STUCK = "FinalizerStuck"
    VOLUME_FAULTY = "VolumeInErrorState"
    # Who should be working.
    NO_CONTROLLER = "NoController"
    LEASE_EXPIRED = "LeaseExpired"
    LEASE_SPLIT = "LeasesSplit"
    # Nodes.
    NODE_GONE = "NodeGone"
    NODE_NOT_READY = "NodeNotReady"
    NODE_PLUGIN_FAILS = "NodePluginFails"
    NODE_PLUGIN_ABSENT = "NodePluginAbsent"
    DRIVER_NOT_REGISTERED = "DriverNotRegistered"
    STARTUP_TAINT = "StartupTaintLeft"
    LIMIT_UNKNOWN = "VolumeLimitUnknown"
    NODE_LIMIT = "VolumeLimitReached"
    NO_ZONE_LABEL = "ZoneLabelMissing"
    WRONG_ZONE_LABEL = "ZoneLabelWrong"
    # Snapshots.
    NO_SNAPSHOT_KINDS = "SnapshotCrdsMissing"
    NO_SNAPSHOT_CONTROLLER = "SnapshotControllerMissing"
    SNAPSHOT_CLASS_MISSING = "SnapshotClassMissing"
    CONTENT_MISSING = "SnapshotContentMissing"
    SNAPSHOT_WAITS = "SnapshotNotReady"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was seen, and where.

    Attributes:
        where: object and field, an event, or a call of EC2.
        seen: what is there.
    """

    where: str
    seen: str


@dataclass(frozen=True, slots=True)
class Link:
    """One step from the cause to what is seen.

    Attributes:
        cause: a ``Cause`` or a ``Reason``.
        sentence: what is so.
        proof: where that can be seen.
        next: who acts next, and until when.
        remedy: what would help; "" if nothing has to be done, or a link before it says it.
        command: that does it, or shows more; "" for none.
    """

    cause: Cause | Reason
    sentence: str
    proof: Proof
    next: str = ""
    remedy: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """Links from the first cause to what the user sees.

    Attributes:
        links: at least one.
        waits: whether nothing is wrong: it continues by itself, or somebody has yet to begin.
    """

    links: tuple[Link, ...]
    waits: bool = False

    @property
    def cause(self) -> Cause | Reason:
        """The first cause."""
        return self.links[0].cause

    def then(self, *links: Link) -> "Chain":
        """The same, with what follows from it."""
        return Chain((*self.links, *links), self.waits)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer about one object.

    Attributes:
        object: as the command names it: "pod shop/web-0".
        chains: independent of each other; empty if nothing is wrong.
        facts: name and value, of a healthy object above all.
        unread: what could not be read, so that nothing is said of it.
    """

    object: str
    chains: tuple[Chain, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether anything is wrong, rather than only awaited."""
        return any(not each.waits for each in self.chains)


def merged(chains: list[Chain]) -> tuple[Chain, ...]:
    """Without those that say the same twice, what is wrong before what only waits."""
    kept: dict[tuple[str, str, str], Chain] = {}
    for each in chains:
        first = each.links[0]
        kept.setdefault((first.cause, first.proof.where, first.proof.seen), each)
    return tuple(sorted(kept.values(), key=lambda each: each.waits))


def at(time: datetime | None) -> str:
    """A time as the API server writes it, "" for none."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}" if time is not None else ""
