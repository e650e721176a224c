"""What the plan of a move rests on, as it was read once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.moving.going_back import rules as back_rules
from provisioner.controller.moving.pods.consumer_rules import Consumer
from provisioner.controller.moving.together.companion_rules import Companion
from provisioner.model.claim import Claim, LabelledClaim
from provisioner.model.document import Document
from provisioner.model.node import CsiNode, Node
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.pod import Pod
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import Volume
from provisioner.model.volume_move import VolumeMove
from provisioner.model.workload import Autoscaler


@dataclass(frozen=True, slots=True)
class Facts:
    """What the plan rests on; None for what does not exist.

    ``class_name``: the class that the claim will have; ``read_class``: that class, or why it cannot
    be used; ``zones``: those with nodes on which the driver runs; ``others``: other moves of the
    claim; ``namesakes``: other PersistentVolumes that name the volume; ``pod_refused``: why no pod
    can copy its files or check the new volume, "" if one can or none has to; ``autoscalers`` and
    ``quotas``: those of the namespace; ``moved_with``: the claims that the move names, as far as
    they are known; ``has_hold``: the webhook holds new pods of it back;
    ``pods``: that use the claim, ``companions``: their other claims; ``nodes``: all;
    ``kept``: what a move that goes back goes back to; ``iops_ceiling``: the most IOPS that EC2
    gives the class's type in the region, None if it is not known; ``claim_document``: all of the
    claim.
    """

    move: VolumeMove
    claim: LabelledClaim | None
    persistent_volume: PersistentVolume | None
    document: Document | None
    volume: Volume | None
    class_name: str
    storage_class: StorageClass | None
    read_class: ReadClass | str | None
    zones: Collection[str]
    others: Sequence[VolumeMove]
    consumers: Sequence[Consumer]
    namesakes: Collection[str] = ()
    pod_refused: str = ""
    autoscalers: Sequence[Autoscaler] = ()
    quotas: Sequence[ResourceQuota] = ()
    moved_with: Sequence[Claim] = ()
    has_hold: bool = True
    pods: Sequence[Pod] = ()
    companions: Sequence[Companion] = ()
    nodes: Sequence[tuple[Node, CsiNode | None]] = ()
    kept: back_rules.Kept | None = None
    iops_ceiling: int | None = None
    claim_document: Document | None = None
