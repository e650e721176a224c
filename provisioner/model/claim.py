"""Claims (PersistentVolumeClaim) and who is asked to provision them."""

import msgspec
from msgspec import structs

from provisioner.model import data_source
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.meta import ObjectMeta, UnlabelledObject
from provisioner.model.names import (
    CROSS_ZONE_VOLUME,
    PINNED_SOURCE,
    PINNED_ZONE,
    asked_annotations,
)
from provisioner.model.zone import Place

STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
MIGRATED_TO = "pv.kubernetes.io/migrated-to"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
# Written in place of a zone while it is not known whether the stock driver has begun a volume.
UNKNOWN_ZONE = "unknown"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
PVC_PROTECTION = "kubernetes.io/pvc-protection"
_OUTPOST_AFTER = ","
MANY_NODES_MODE = "ReadWriteMany"
BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
SNAPSHOT_KIND, CLAIM_KIND = "VolumeSnapshot", "PersistentVolumeClaim"
_ITS_OWN = frozenset({SELECTED_NODE, PINNED_ZONE})
_SNAPSHOT_GROUP = "snapshot.storage.k8s.io"


class DataSource(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.dataSource`` or ``spec.dataSourceRef``."""

    kind: str = ""
    name: str = ""
    api_group: str | None = None
    namespace: str | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a VolumeSnapshot."""
        return self.kind == SNAPSHOT_KIND and self.api_group == _SNAPSHOT_GROUP

    @property
    def is_claim(self) -> bool:
        """Whether it is another claim."""
        return self.kind == CLAIM_KIND and not self.api_group


class ClaimResources(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec.resources``."""

    requests: dict[str, str] | None = None


class ClaimSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a claim."""

    access_modes: list[str] | None = None
    resources: ClaimResources | None = None
    selector: dict[str, object] | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""
    data_source: DataSource | None = None
    data_source_ref: DataSource | None = None
    volume_attributes_class_name: str | None = None


class Condition(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of ``status.conditions``; there is at most one of a type."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ModifyVolumeStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status.modifyVolumeStatus``: which class the volume is being brought to, and how far."""

    target_volume_attributes_class_name: str = ""
    status: str = ""


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``status`` of a claim. Quantities as they are written, by resource."""

    phase: str = ""
    capacity: dict[str, str] | None = None
    conditions: list[Condition] | None = None
    allocated_resources: dict[str, str] | None = None
    allocated_resource_statuses: dict[str, str] | None = None
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class Claim(UnlabelledObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A PersistentVolumeClaim.

    Attributes:
        kept_pin: as of ``as_cached``; the API server stores no such field.
    """

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus | None = None
    kept_pin: str = ""

    @property
    def class_name(self) -> str:
        """The class; the old annotation wins over the field (Kubernetes 1.36 pv_controller)."""
        return self.annotations.get(BETA_STORAGE_CLASS) or self.spec.storage_class_name or ""

    @property
    def selected_node(self) -> str:
        """The node that the scheduler chose, or ""."""
        return self.annotations.get(SELECTED_NODE, "")

    @property
    def pinned_zone(self) -> str:
        """The zone in which its volume is being made, or ""."""
        return "" if self.is_in_doubt else self._pin.partition(_OUTPOST_AFTER)[0]

    @property
    def pinned_place(self) -> Place:
        """The same, with the Outpost on which it is being made."""
        return Place(self.pinned_zone, self._pin.partition(_OUTPOST_AFTER)[2])

    @property
    def is_in_doubt(self) -> bool:
        """Whether the stock driver may have begun a volume that EC2 did not show yet."""
        return self._pin == UNKNOWN_ZONE

    @property
    def pinned_source(self) -> data_source.Source | None:
        """What its volume is being made from; None: an empty one, or nothing is written."""
        return data_source.parse(self._ours(PINNED_SOURCE))

    @property
    def cross_zone_volume_id(self) -> str:
        """The volume of which a snapshot may have been begun, to clone it elsewhere, or ""."""
        return self._ours(CROSS_ZONE_VOLUME)

    @property
    def source(self) -> DataSource | None:
        """Where its data come from. Source: external-provisioner 6.3: ``dataSource`` wins."""
        return self.spec.data_source or self.spec.data_source_ref

    @property
    def source_key(self) -> str:
        """``Kind namespace/name`` of the claim or snapshot that its data come from, or "".

        Nothing is made from what is in another namespace, so such a claim has no hold on it.
        """
        source, own = self.source, self.metadata.namespace
        if source is None or not (source.is_snapshot or source.is_claim):
            return ""
        return f"{source.kind} {own}/{source.name}" if source.namespace in (None, "", own) else ""

    @property
    def _pin(self) -> str:
        return self.kept_pin or self._ours(PINNED_ZONE)

    def _ours(self, key: str) -> str:
        """What we wrote to this claim, and to no other one of its name."""
        text, _, uid = self.annotations.get(key, "").rpartition("/")
        return text if uid == self.uid else ""

    def note(self, text: str) -> str:
        """What an annotation of ours says of this claim, and of no other one of its name."""
        return f"{text}/{self.uid}"

    def pin(self, zone: str, outpost_arn: str = "") -> str:
        """What ``PINNED_ZONE`` says of this claim, and of no other one of its name."""
        place = f"{zone}{_OUTPOST_AFTER}{outpost_arn}" if outpost_arn else zone
        return self.note(place)

    def as_cached(self, driver: str) -> "Claim":
        """The claim without the annotations that nobody asks for, if it is bound.

        Those of strangers are left out: a tool that applies manifests writes the whole manifest to
        each. Of a bound claim of ours, it is only asked where its volume was made. What is left is
        the same for nearly all: 300 bytes less for each, and what strangers write.
        """
        if not self.is_bound:
            return self
        pin = self._ours(PINNED_ZONE)
        is_made = pin not in ("", UNKNOWN_ZONE)
        left = asked_annotations(self.annotations, driver)
        if is_made:
            left = {key: text for key, text in left.items() if key not in _ITS_OWN}
        if len(left) == len(self.annotations):
            return self
        meta = structs.replace(self.metadata, annotations=left)
        return structs.replace(self, metadata=meta, kept_pin=pin if is_made else self.kept_pin)

    def asks_for_the_same(self, other: "Claim") -> bool:
        """Whether two versions of the claim differ, if at all, only in what we write to it."""
        return _asked(self) == _asked(other)

    @property
    def requested_storage(self) -> str:
        """``spec.resources.requests.storage`` as written, or ""."""
        return _storage(self.spec.resources.requests if self.spec.resources else None)

    @property
    def capacity(self) -> str:
        """``status.capacity.storage`` as written, or "": what its user can count on."""
        return _storage(self.status.capacity if self.status else None)

    @property
    def allocated_storage(self) -> str:
        """``status.allocatedResources.storage`` as written, or "": the size being grown to."""
        return _storage(self.status.allocated_resources if self.status else None)

    @property
    def resize_status(self) -> str:
        """``status.allocatedResourceStatuses.storage``, or ""."""
        return _storage(self.status.allocated_resource_statuses if self.status else None)

    @property
    def attributes_class_name(self) -> str:
        """The VolumeAttributesClass that is wanted, or ""."""
        return self.spec.volume_attributes_class_name or ""

    @property
    def current_attributes_class_name(self) -> str:
        """The VolumeAttributesClass that the volume has, or ""."""
        return (self.status.current_volume_attributes_class_name or "") if self.status else ""

    @property
    def modify_status(self) -> ModifyVolumeStatus | None:
        """How far a change of its VolumeAttributesClass is; None while there is none."""
        return self.status.modify_volume_status if self.status else None

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type, if it has it."""
        conditions = (self.status.conditions or ()) if self.status else ()
        return next((each for each in conditions if each.type == kind), None)

    @property
    def is_bound(self) -> bool:
        """Whether it is bound to ``spec.volumeName``, and does not only ask for it.

        Source: Kubernetes 1.36 scheduler, volumebinding ``isVolumeBound``: the annotation counts.
        """
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.annotations

    @property
    def is_block(self) -> bool:
        """Whether a raw device is wanted; a missing volumeMode means a file system."""
        return self.spec.volume_mode == "Block"

    @property
    def is_for_many_nodes(self) -> bool:
        """Whether several nodes may use and write it at once."""
        return MANY_NODES_MODE in (self.spec.access_modes or ())

    @property
    def persistent_volume_name(self) -> str:
        """The name that its persistent volume gets, so that it can only be made once."""
        return f"pvc-{self.uid}"

    def is_asked_of(self, driver: str) -> bool:
        """Whether the volume controller has asked this driver to provision the claim.

        Source: sig-storage-lib-external-provisioner v13 ``shouldProvision``: the annotation, its
        beta form, or ``migrated-to`` beside an in-tree name.
        """
        found = self.annotations.get(STORAGE_PROVISIONER) or self.annotations.get(
            BETA_STORAGE_PROVISIONER
        )
        if found == driver:
            return True
        return found == IN_TREE_DRIVER and self.annotations.get(MIGRATED_TO) == driver


class LabelledClaim(Claim, frozen=True, rename="camel", gc=False, kw_only=True):
    """A claim with its labels."""

    metadata: ObjectMeta = ObjectMeta()


def foreign_finalizer(claim: UnlabelledObject) -> str:
    """A finalizer by which somebody else than Kubernetes keeps a claim, "" if nobody does."""
    return min({*claim.finalizers} - {PVC_PROTECTION}, default="")


def _storage(values: dict[str, str] | None) -> str:
    return (values or {}).get("storage", "")


def _asked(claim: Claim) -> tuple[object, ...]:
    ours = (PINNED_ZONE, PINNED_SOURCE, CROSS_ZONE_VOLUME)
    foreign = {key: value for key, value in claim.annotations.items() if key not in ours}
    return claim.uid, claim.spec, claim.status, claim.deleting, foreign


def claim_uid_of(persistent_volume_name: str) -> str | None:
    """The claim's UID in a name made by ``persistent_volume_name``, else None."""
    prefix, found, uid = persistent_volume_name.partition("pvc-")
    return uid if found and not prefix and uid else None
