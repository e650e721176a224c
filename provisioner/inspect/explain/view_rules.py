"""All that is known around one object: what the rules judge. Records only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from provisioner.inspect.object_name_rules import ObjectName
from provisioner.inspect.reading.controller_rules import OUR_HOLDER
from provisioner.inspect.reading.kind_rules import WatchedPod, WatchedSnapshot
from provisioner.inspect.reading.setup_kind_rules import Workload
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import Reason
from provisioner.model.meta import UnlabelledObject
from provisioner.model.modification import Modification
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.storage_class import StorageClass, VolumeAttributesClass
from provisioner.model.volume import Instance, Volume
from provisioner.model.volume_move import VolumeMove
from provisioner.model.volume_snapshot import VolumeSnapshotClass, VolumeSnapshotContent

# Clocks of two machines differ, and a new leader needs a moment.
_LATE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Said:
    """What an event or a status says.

    Attributes:
        about: the object, as commands name it: "pvc shop/data".
        where: the field or the event: "event ProvisioningFailed", "status.attachError".
        text: as it is written.
        event: reason of the event, "" for a status.
        reason: ours, or what EC2's code means; None if the text has neither.
        warning: whether something failed.
        by: the component that says it.
        at: when it was last said.
    """

    about: str
    where: str
    text: str
    event: str = ""
    reason: Reason | None = None
    warning: bool = True
    by: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A VolumeSnapshot, and what belongs to it.

    Attributes:
        key: namespace/name.
        source: the claim that it is of.
        ebs: EC2's snapshot; None if EC2 has none of its id, or was not asked.
        versions: in which the API server serves the kind; empty for none.
    """

    key: str
    snapshot: WatchedSnapshot | None = None
    content: VolumeSnapshotContent | None = None
    snapshot_class: VolumeSnapshotClass | None = None
    source: Claim | None = None
    ebs: EbsSnapshot | None = None
    said: tuple[Said, ...] = ()
    versions: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.key.partition("/")[0]

    @property
    def class_name(self) -> str:
        """Its class, "" for the default one."""
        return (self.snapshot.spec.volume_snapshot_class_name or "") if self.snapshot else ""


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A PersistentVolume, and what belongs to it.

    Attributes:
        name: of the PersistentVolume.
        persistent_volume: None if there is none.
        ebs: EC2's volume; None if EC2 has none of its id, or was not asked.
        asked: whether EC2 has answered about the volume.
        region: in which EC2 was asked; "" for none.
        attachments: the VolumeAttachments that name it.
        all_attachments: whether these are all; otherwise only those of one node.
        nodes_of: the node that is an instance, by the instance's id.
        wanted: nodes on which VolumeAttachments of other PersistentVolumes ask for the same
            volume, each with what does; "" for one of this volume that has just gone.
        namesakes: other PersistentVolumes that name the same volume.
        left: modifications that EC2 still accepts; None if that is not known.
        more_at: when there is one more.
    """

    name: str
    persistent_volume: PlacedVolume | None = None
    ebs: Volume | None = None
    asked: bool = False
    region: str = ""
    modification: Modification | None = None
    left: int | None = None
    more_at: datetime | None = None
    attachments: tuple[Attachment, ...] = ()
    all_attachments: bool = False
    nodes_of: Mapping[str, str] = field(default_factory=dict)
    wanted: Mapping[str, str] = field(default_factory=dict)
    namesakes: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()

    @property
    def zones(self) -> frozenset[str]:
        """Where it can be used: EC2's word, else the affinity's; empty if neither tells."""
        if self.ebs is not None:
            return frozenset({self.ebs.zone})
        found = self.persistent_volume.zones if self.persistent_volume else None
        return found or frozenset()


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim, and what belongs to it.

    Attributes:
        key: namespace/name.
        users: pods that name it and have not ended.
        default_key: the account's KMS key for EBS; "" if it was not asked for, or is not told.
        encrypts_by_default: whether the account encrypts volumes of classes that do not ask for
            it; None if that was not asked for, or is not told.
    """

    key: str
    claim: Claim | None = None
    storage_class: StorageClass | None = None
    attributes_class: VolumeAttributesClass | None = None
    said: tuple[Said, ...] = ()
    volume: VolumeView | None = None
    users: tuple[WatchedPod, ...] = ()
    snapshot: SnapshotView | None = None
    source_claim: Claim | None = None
    source_volume: PlacedVolume | None = None
    default_key: str = ""
    encrypts_by_default: bool | None = None

    @property
    def name(self) -> str:
        """As commands name it."""
        return f"pvc {self.key}"

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.key.partition("/")[0]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node, and what belongs to it.

    Attributes:
        instance: EC2's; None if EC2 has none of its id, or was not asked.
        asked: whether EC2 has answered about the instance.
        region: in which EC2 was asked; "" for none.
        attachments: VolumeAttachments of the driver on it.
        attached: volumes that EC2 shows on the instance, by id.
        plugins: pods of a node plugin of the driver on it; None if nobody has looked.
        daemon_sets: of a node plugin; None if they were not read, which is for a missing one only.
    """

    name: str
    node: Node | None = None
    csi_node: CsiNode | None = None
    instance: Instance | None = None
    asked: bool = False
    region: str = ""
    attachments: tuple[Attachment, ...] = ()
    volume_of: Mapping[str, str] = field(default_factory=dict)
    attached: Mapping[str, Volume] = field(default_factory=dict)
    plugins: tuple[WatchedPod, ...] | None = None
    daemon_sets: tuple[Workload, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of the driver: who holds it, and until when if nobody renews it.

    Attributes:
        pod: NAMESPACE/NAME of its holder's; "" if that is not known.
    """

    name: str
    holder: str = ""
    renewed_at: datetime | None = None
    duration_s: int = 15
    exists: bool = True
    pod: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether a controller of this project holds it."""
        return self.holder.startswith(OUR_HOLDER)

    def is_held(self, now: datetime) -> bool:
        """Whether somebody holds it who still renews it."""
        if not self.holder or self.renewed_at is None:
            return False
        return now - self.renewed_at <= timedelta(seconds=self.duration_s) + _LATE


@dataclass(frozen=True, slots=True)
class ControllerView:
    """Who should be working.

    Attributes:
        leases: of provisioner, attacher, resizer and snapshotter; empty if they cannot be read.
        namespace: of the leases.
        pods: of controllers of the driver, ours and the stock driver's; read only if it matters.
    """

    leases: tuple[Lease, ...] = ()
    namespace: str = "kube-system"
    pods: tuple[WatchedPod, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """All that is known around the object that is asked about.

    Attributes:
        target: the object.
        driver: name of the CSI driver.
        now: by the API server, whose times it is compared with.
        unread: what could not be read: "list pods", "DescribeVolumes"; "EC2" for all of it.
        region: in which EC2 is asked; "" for none.
        pod: if a pod is asked about.
        claims: of the pod, or the one that is asked about.
        volume: the PersistentVolume that is asked about.
        node: that the pod is on, or that is asked about.
        other_nodes: on which a VolumeAttachment still has a volume of the pod, or the released one
            that is asked about; by name.
        nodes: all, read only when the choice of one matters.
        asked_attachments: whether all VolumeAttachments were asked for: only if nodes are full.
        attachments: of the driver, on all nodes.
        claim_of: the claim of a PersistentVolume on a full node, by its name.
        move: for which the webhook holds the pod back; None if it does not, or it is gone.
        serves_moves: whether the API server has the kind VolumeMove; True also if it does not say,
            or was not asked.
        refusals: events in the namespace about objects that were refused, or came at last.
    """

    target: ObjectName
    driver: str
    now: datetime
    unread: frozenset[str] = frozenset()
    region: str = ""
    controller: ControllerView = ControllerView()
    pod: WatchedPod | None = None
    pod_said: tuple[Said, ...] = ()
    claims: tuple[ClaimView, ...] = ()
    volume: VolumeView | None = None
    node: NodeView | None = None
    other_nodes: Mapping[str, NodeView] = field(default_factory=dict)
    snapshot: SnapshotView | None = None
    nodes: tuple[Node, ...] = ()
    csi_nodes: Mapping[str, CsiNode] = field(default_factory=dict)
    asked_attachments: bool = False
    attachments: tuple[Attachment, ...] = ()
    claim_of: Mapping[str, str] = field(default_factory=dict)
    move: VolumeMove | None = None
    serves_moves: bool = True
    refusals: tuple[Said, ...] = ()

    def read(self, plural: str) -> bool:
        """Whether objects of a kind could be read, so that what is missing is missing."""
        return not any(each.split(" ")[1:2] == [plural] for each in self.unread)


def object_of(view: View) -> UnlabelledObject | None:
    """The object that is asked about, None if it was not found."""
    match view.target.kind:
        case "pod":
            return view.pod
        case "pvc":
            return view.claims[0].claim if view.claims else None
        case "pv":
            return view.volume.persistent_volume if view.volume else None
        case "node":
            return view.node.node if view.node else None
        case _:
            return view.snapshot.snapshot if view.snapshot else None


def newest(said: tuple[Said, ...], *events: str, warning: bool | None = None) -> Said | None:
    """The newest of these events (any, if none is named)."""
    found = [
        each
        for each in said
        if (not events or each.event in events) and warning in (None, each.warning)
    ]
    return max(found, key=lambda each: each.at.timestamp() if each.at else 0.0, default=None)
