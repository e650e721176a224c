"""The options of the controller: built in ``cli``, read everywhere, never changed."""

from dataclasses import dataclass
from enum import StrEnum

from provisioner.model.driver import EBS_DRIVER
from provisioner.model.file_systems import DEFAULT_FILE_SYSTEM
from provisioner.model.tag_template import TagTemplate


class Sweep(StrEnum):
    """What is done with orphaned volumes."""

    REPORT = "report"
    DELETE = "delete"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of ``ebs-provisioner controller``. Times in seconds."""

    kubeconfig: str | None = None
    driver: str = EBS_DRIVER
    cluster_id: str = ""
    region: str | None = None
    extra_tags: tuple[TagTemplate, ...] = ()
    reconcile_extra_tags: bool = False
    extra_tags_interval_s: float = 3600.0
    default_file_system: str = DEFAULT_FILE_SYSTEM
    modify_annotations: bool = False
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    ec2_rates: str = ""
    metrics_address: str = ""
    orphan_sweep: Sweep = Sweep.DELETE
    orphan_sweep_interval_s: float = 300.0
    orphan_min_age_s: float = 600.0
    release_dead_nodes: bool = False
    initialize_nodes: bool = False
    volume_moves: bool = False
    copy_image: str = ""  # of pods that copy or check; "" for that of the controller's own pod
    own_pod: str = ""  # namespace/name; "" if it is none
    volume_costs: bool = False
    volume_costs_interval_s: float = 3600.0
    drain_s: float = 25.0  # longer than EC2 may take to answer a call
