"""Persistent volumes: which volume one names, whether it is ours, when it may go."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

import msgspec
from msgspec import structs

from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.meta import KubeObject, ObjectReference
from provisioner.model.names import COPY_OF, asked_annotations
from provisioner.model.node_affinity import PLACE_KEYS, Json, zones_named
from provisioner.model.volume import normalised_handle
from provisioner.model.zone import BETA_ZONE_LABEL, ZONE_LABEL

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MIGRATED_TO = "pv.kubernetes.io/migrated-to"
DELETION_SECRET_NAME = "volume.kubernetes.io/provisioner-deletion-secret-name"  # noqa: S105 -- key
DELETION_SECRET_NAMESPACE = "volume.kubernetes.io/provisioner-deletion-secret-namespace"  # noqa: S105 -- key
PROVISIONER_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
READERS_MODE = "ReadOnlyMany"
# Between the zones of a label. Source: Kubernetes 1.36 k8s.io/component-helpers/node/topology.
ZONES_APART = "__"


class VolumeAttributes(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the controller reads of ``spec.csi.volumeAttributes``, as aws-ebs-csi-driver has it."""

    attaches_when_initialized: str = msgspec.field(default="", name="blockattachuntilinitialized")


class CsiSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.csi``."""

    driver: str = ""
    volume_handle: str = ""
    volume_attributes: VolumeAttributes | None = None


class InTreeSource(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec.awsElasticBlockStore``."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class PersistentVolumeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a persistent volume."""

    capacity: dict[str, str] | None = None
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    csi: CsiSource | None = None
    aws_elastic_block_store: InTreeSource | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    access_modes: list[str] | None = None

    @property
    def is_file_system(self) -> bool:
        """Whether nodes mount its volume; that is what a missing volumeMode means, too."""
        return self.volume_mode != "Block"

    @property
    def is_for_readers(self) -> bool:
        """Whether nodes mount its volume for reading: the kubelet goes by the first mode."""
        return self.is_file_system and (self.access_modes or [""])[0] == READERS_MODE


class PersistentVolumeStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a persistent volume."""

    phase: str = ""


class PersistentVolume(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus | None = None

    def as_cached(self, driver: str) -> "PersistentVolume":
        """The persistent volume without the annotations and labels that nobody asks for.

        Of its labels, only those of zone and Region are asked for. Whoever writes to it reads it
        again, or writes by key.
        """
        annotations = asked_annotations(self.annotations, driver)
        labels = {key: text for key, text in self.labels.items() if key in PLACE_KEYS}
        if len(annotations) == len(self.annotations) and len(labels) == len(self.labels):
            return self
        meta = structs.replace(self.metadata, annotations=annotations, labels=labels)
        return structs.replace(self, metadata=meta)

    @property
    def phase(self) -> str:
        """``status.phase``, or "" while there is none."""
        return self.status.phase if self.status else ""

    @property
    def capacity(self) -> str:
        """``spec.capacity.storage`` as written, or ""."""
        return (self.spec.capacity or {}).get("storage", "")

    @property
    def attributes_class_name(self) -> str:
        """The VolumeAttributesClass that its volume has, or ""."""
        return self.spec.volume_attributes_class_name or ""

    @property
    def attaches_when_initialized(self) -> bool:
        """Whether its volume is only attached once it has all data of what it was made of."""
        attributes = self.spec.csi.volume_attributes if self.spec.csi is not None else None
        return attributes is not None and attributes.attaches_when_initialized == "true"

    @property
    def is_only_read(self) -> bool:
        """Whether it was made so that a VolumeMove has its volume read: copied, or checked."""
        return self.annotations.get(COPY_OF, "").startswith(("from ", "check "))

    @property
    def reclaim_policy(self) -> str:
        """``Delete``, ``Retain`` or ``Recycle``."""
        return self.spec.persistent_volume_reclaim_policy

    @property
    def named_volume(self) -> str | None:
        """The volume that it names, in CSI form under any driver's name, or in in-tree form."""
        spec = self.spec
        handle = ""
        if spec.csi is not None:
            handle = spec.csi.volume_handle
        elif spec.aws_elastic_block_store is not None:
            handle = spec.aws_elastic_block_store.volume_id
        return normalised_handle(handle) or None

    @property
    def handle(self) -> str:
        """The name of its volume to Kubernetes, by which VolumeAttachments are called."""
        csi = self.spec.csi
        return csi.volume_handle if csi is not None else self.named_volume or ""

    def volume_id(self, driver: str) -> str | None:
        """The EBS volume that it names under this driver or in in-tree form, else None."""
        csi = self.spec.csi
        return self.named_volume if csi is None or csi.driver == driver else None

    def is_deleted_by(self, driver: str) -> bool:
        """Whether this driver has to delete its volume.

        Source: external-provisioner 6.3: provisioned-by or migrated-to names the driver, or it is
        a hand-made CSI persistent volume of the driver.
        """
        provisioned_by = self.annotations.get(PROVISIONED_BY)
        if provisioned_by is None:
            return self.spec.csi is not None and self.spec.csi.driver == driver
        if provisioned_by == driver:
            return True
        return provisioned_by == IN_TREE_DRIVER and self.annotations.get(MIGRATED_TO) == driver


@lru_cache(maxsize=8)
def finalizer_of_attacher(driver: str) -> str:
    """The finalizer of external-attacher 4.12 for a driver: other characters become dashes."""
    return "external-attacher/" + sanitised(driver)


def sanitised(driver: str) -> str:
    """A driver name as csi sidecars put it into finalizer and lease names."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in driver)


class Required(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``required`` of a node affinity; its terms as they are."""

    node_selector_terms: list[Json] | None = None


class Affinity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``spec.nodeAffinity`` of a persistent volume."""

    required: Required | None = None


class PlacedSpec(PersistentVolumeSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a persistent volume, its node affinity and class included."""

    storage_class_name: str = ""
    node_affinity: Affinity | None = None


class PlacedStatus(PersistentVolumeStatus, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a persistent volume, and since when it has its phase.

    Source: Kubernetes 1.36 PersistentVolumeStatus; the API server sets the time since 1.31.
    """

    last_phase_transition_time: datetime | None = None


class PlacedVolume(PersistentVolume, frozen=True, rename="camel", gc=False, kw_only=True):
    """A persistent volume, the node affinity that says where it can be used, and its phase's age.

    Apart from ``PersistentVolume``: thousands of those are kept, and few questions need this.
    """

    spec: PlacedSpec = PlacedSpec()
    status: PlacedStatus | None = None

    @property
    def terms(self) -> Sequence[Json]:
        """The terms of its required node affinity, empty when there is none."""
        affinity = self.spec.node_affinity
        required = affinity.required if affinity else None
        return (required.node_selector_terms if required else None) or ()

    @property
    def labelled_zones(self) -> frozenset[str]:
        """The zones that its label tells, empty without one."""
        label = self.labels.get(ZONE_LABEL) or self.labels.get(BETA_ZONE_LABEL) or ""
        return frozenset(zone for zone in label.split(ZONES_APART) if zone)

    @property
    def zones(self) -> frozenset[str] | None:
        """The zones of its node affinity, else of its label; None when neither tells any."""
        named = zones_named(self.terms)
        return self.labelled_zones or None if named is None else named
