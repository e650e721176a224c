"""What was read of the cluster and of AWS, for all rules; what was not is in ``gaps``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.inspect.reading.kind_rules import WatchedSnapshot
from provisioner.inspect.reading.quota_rules import QuotaUse
from provisioner.inspect.reading.setup_kind_rules import (
    CsiDriverSetup,
    CustomResource,
    DataObject,
    EndpointSlice,
    SeenLease,
    SystemNode,
    WebhookConfiguration,
    Workload,
)
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.meta import KubeObject
from provisioner.model.node import CsiNode
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.storage_class import StorageClass, VolumeAttributesClass
from provisioner.model.volume import Volume
from provisioner.model.volume_snapshot import VolumeSnapshotClass

LEASES_ELSEWHERE = "leases elsewhere"
"""The gap where leases were found in the usual namespace, and those of others cannot be listed."""
ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"  # EKS user guide, "IAM roles for service accounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvidence:
    """What Kubernetes says.

    Attributes:
        later_attachments: VolumeAttachments, read again after EC2 showed where volumes are.
        leases: the controller's four, by name; from one namespace.
        snapshot_lease: snapshot-controller's, None if there is none.
        webhooks: our webhook's configurations.
        slices: EndpointSlices of the namespaces of the webhook's Services.
        secret: the webhook's, None if there is none.
        custom_resources: the snapshot kinds, by name.
        deployments, daemon_sets: of all namespaces.
        accounts: ServiceAccounts of the controllers, ours and the stock driver's.
        account: the ServiceAccount of the controller at work, None if it is not known.
        cluster_id: of our controller; None if it is not known.
        controller_regions: that controllers are set to, by their Deployments; only those known.
        server_version: of the API server, "" if it is not known.
        unchecked: reviews that the webhook has let through unchecked, by cause; None if its
            metrics cannot be read.
    """

    nodes: Sequence[SystemNode] = ()
    csi_nodes: Sequence[CsiNode] = ()
    csi_driver: CsiDriverSetup | None = None
    classes: Sequence[StorageClass] = ()
    attributes_classes: Sequence[VolumeAttributesClass] = ()
    volumes: Sequence[PlacedVolume] = ()
    claims: Sequence[Claim] = ()
    attachments: Sequence[Attachment] = ()
    later_attachments: Sequence[Attachment] = ()
    snapshots: Sequence[WatchedSnapshot] = ()
    snapshot_classes: Sequence[VolumeSnapshotClass] = ()
    leases: Mapping[str, SeenLease] = field(default_factory=dict)
    snapshot_lease: SeenLease | None = None
    webhooks: Sequence[WebhookConfiguration] = ()
    slices: Sequence[EndpointSlice] = ()
    secret: DataObject | None = None
    custom_resources: Mapping[str, CustomResource] = field(default_factory=dict)
    deployments: Sequence[Workload] = ()
    daemon_sets: Sequence[Workload] = ()
    accounts: Sequence[KubeObject] = ()
    account: KubeObject | None = None
    cluster_id: str | None = None
    controller_regions: Mapping[str, str] = field(default_factory=dict)
    server_version: str = ""
    unchecked: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """An instance as DescribeInstances shows it.

    Attributes:
        hop_limit: ``MetadataOptions.HttpPutResponseHopLimit``; None if it is not shown.
        volume_ids: attached, the root volume among them.
        most_volumes: how many its type takes, root included and network interfaces aside; None if
            that is not known.
        has_profile: whether it has an instance profile, which holds a role.
    """

    instance_id: str
    zone: str
    state: str
    instance_type: str = ""
    hop_limit: int | None = None
    volume_ids: tuple[str, ...] = ()
    most_volumes: int | None = None
    has_profile: bool = True


@dataclass(frozen=True, slots=True)
class Try:
    """A call that was sent with DryRun.

    Attributes:
        action: of EC2.
        on: what it was tried on: "vol-1", "a new volume in us-east-1a".
        code: EC2's answer; DryRunOperation is a yes. "" if nothing was sent.
        message: EC2's words, or why nothing was sent.
    """

    action: str
    on: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class KeyTry:
    """What a key of a class answers.

    Attributes:
        name: of the class.
        key: as the class names it.
        creation: CreateVolume with the key, by DryRun.
        state: the key's state as KMS shows it, "" if KMS does not tell.
        refusal: why KMS does not tell, "" if it does.
        manager: "AWS" or "CUSTOMER", "" if KMS does not tell.
    """

    name: str
    key: str
    creation: Try
    state: str = ""
    refusal: str = ""
    manager: str = ""


@dataclass(frozen=True, slots=True)
class DefaultKey:
    """The account's default key for EBS, which classes use that name none.

    Attributes:
        classes: their names, or of those that may use it; at least one.
        tried: what the key answers, None if it is not known.
        refusal: why it is not known.
    """

    classes: tuple[str, ...]
    tried: KeyTry | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class NotAssumed:
    """Why rights could not be tried as whom the command names, and what would help."""

    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvidence:
    """What AWS says.

    Attributes:
        region: that is asked; "" if none is known.
        identity: the ARN under which AWS was asked for everything but the tries.
        tried_as: the ARN of the tries; "" if none was made.
        is_controllers: whether the tries were made as the controller.
        not_as_controller: why they were not, though that was asked for; else "".
        volumes: that PersistentVolumes name, by id.
        tagged: volumes that have this cluster's tag.
        instances: of the nodes, by id.
        tries: one for each action that the controller needs.
        keys: one for each class that names a key.
        default_key: None if no class uses it.
        by_tags: AttachVolume of a volume for each set of tag keys, or for some of many sets.
        refused: why no try was made, "" if they were.
        not_assumed: why the role that the command asks for cannot be assumed; None if it can.
    """

    region: str = ""
    identity: str = ""
    tried_as: str = ""
    is_controllers: bool = False
    not_as_controller: str = ""
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    tagged: Sequence[Volume] = ()
    instances: Mapping[str, SeenInstance] = field(default_factory=dict)
    tries: Sequence[Try] = ()
    keys: Sequence[KeyTry] = ()
    default_key: DefaultKey | None = None
    by_tags: Sequence[Try] = ()
    refused: str = ""
    not_assumed: NotAssumed | None = None
    quotas: Sequence[QuotaUse] = ()


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock, and how far it is ahead of this machine's, in seconds."""

    name: str
    ahead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that rules look at.

    Attributes:
        driver: name of the CSI driver.
        now: by this machine's clock.
        gaps: why something could not be read, by the plural of a kind or by an action of AWS.
        unanswered: those of the gaps that are no missing right: nobody answered, or not in time.
        clocks: other clocks.
    """

    driver: str
    now: datetime
    cluster: ClusterEvidence
    cloud: CloudEvidence
    gaps: Mapping[str, str] = field(default_factory=dict)
    unanswered: Collection[str] = ()
    clocks: Sequence[Clock] = ()

    def may_be_ours(self, snapshot: WatchedSnapshot) -> bool:
        """Whether a snapshot is not of another driver's class."""
        name = snapshot.spec.volume_snapshot_class_name
        drivers = {each.driver for each in self.cluster.snapshot_classes if each.name == name}
        return not drivers or self.driver in drivers

    @property
    def is_confirmed_cloud(self) -> bool:
        """Whether EC2 was asked in this cluster's Region and account, as far as can be told.

        False if EC2 knows none of the nodes' instances, or none of the PersistentVolumes' volumes.
        """
        instances = {node.instance_id for node in self.cluster.nodes} - {""}
        volumes = {each.volume_id(self.driver) or "" for each in self.cluster.volumes} - {""}
        return not (instances and not self.cloud.instances) and not (
            volumes and not self.cloud.volumes
        )
