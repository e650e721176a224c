"""Decide whether a claim is ours to provision, and what exactly to make for it.

Two pure steps: ``examine`` says whether there is something to do at all; ``plan`` freezes
everything that CreateVolume and the persistent volume need, so that nothing that happens to the
class, the claim or the node later can change a request that was already sent.
Source: Kubernetes contract of external-provisioner 6.3 and sig-storage-lib v13.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from provisioner.classes.iops_rules import Fitted, fit
from provisioner.classes.storage_class_rules import Parameters, ReadClass, formatting_fault
from provisioner.controller.provisioning.client_token_rules import client_token
from provisioner.model import tags
from provisioner.model.claim import MANY_NODES_MODE, Claim
from provisioner.model.data_source import Source
from provisioner.model.decision import SETTLED, Refuse, Settled
from provisioner.model.errors import Reason
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.storage_class import StorageClass
from provisioner.model.tag_template import TagTemplate
from provisioner.model.volume import GIB, CreateRequest
from provisioner.model.volume_type import MULTI_ATTACH_TYPES, fault
from provisioner.model.zone import Place

_SINGLE_NODE_MODES = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


@dataclass(frozen=True, slots=True)
class Provision:
    """The claim is ours and can be planned."""

    storage_class: StorageClass


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is needed to make a volume and its persistent volume. Sizes in GiB."""

    claim: Claim
    read_class: ReadClass
    file_system: str | None  # None for a raw block device
    request: CreateRequest
    iops: Fitted | None = None  # None where EC2 chooses

    @property
    def storage_class(self) -> StorageClass:
        """The class as the API has it."""
        return self.read_class.storage_class

    @property
    def persistent_volume_name(self) -> str:
        """The name of the persistent volume, and of the volume in its tags."""
        return self.claim.persistent_volume_name

    def with_token(self, number: int) -> "Plan":
        """The same plan under the Nth client token: EC2 has burned the ones before."""
        token = client_token(self.persistent_volume_name, number)
        return replace(self, request=replace(self.request, client_token=token))


def examine(
    claim: Claim,
    storage_class: StorageClass | None,
    *,
    driver: str,
    persistent_volume: PersistentVolume | None,
    pod_node: str = "",
) -> Settled | Refuse | Provision:
    """Say whether a volume is to be made for this claim.

    ``SETTLED``: the claim is not ours, or there is nothing to do until something changes.

    ``storage_class`` is None only when the API server has none of that name;
    ``persistent_volume`` is the one that has the name which the claim's will have; ``pod_node`` is
    where a pod is already that needs the claim, "" without one.
    """
    if claim.spec.volume_name:
        return SETTLED
    if not claim.is_asked_of(driver) and not _is_needed(storage_class, pod_node):
        return SETTLED
    if persistent_volume is not None:
        return _taken(claim, persistent_volume)
    if claim.deleting:
        return SETTLED  # none is started for a claim that goes; one already sent is finished
    if storage_class is None:
        return Refuse(
            Reason.CLASS_NOT_FOUND,
            f"StorageClass {claim.class_name!r} does not exist; create it, or recreate "
            "the claim with another class",
        )
    if not storage_class.is_of(driver):
        return SETTLED
    if storage_class.waits_for_consumer and not (claim.selected_node or pod_node):
        return SETTLED
    return _refusal(claim) or Provision(storage_class)


def _is_needed(storage_class: StorageClass | None, pod_node: str) -> bool:
    """Whether a claim needs a volume although the volume controller has not asked for it.

    The volume controller asks for the volume of a claim that waits only once the scheduler has
    chosen a node. A pod that was created with ``spec.nodeName`` never sees the scheduler, so its
    claim would wait forever. Source: Kubernetes 1.36 pv_controller (syncUnboundClaim).
    """
    return bool(pod_node) and storage_class is not None and storage_class.waits_for_consumer


def _taken(claim: Claim, persistent_volume: PersistentVolume) -> Settled | Refuse:
    """The name is taken: by the claim's own persistent volume, or by another object."""
    holder = persistent_volume.spec.claim_ref
    if holder is not None and holder.uid == claim.uid:
        return SETTLED
    return Refuse(
        Reason.CONFLICT,
        f"PersistentVolume {persistent_volume.name} already exists, but its claimRef is not this "
        "claim; delete it, or set its claimRef to this claim",
        settled=True,
    )


def _refusal(claim: Claim) -> Refuse | None:
    spec = claim.spec
    refused = _strange_source(claim)
    if refused is not None:
        return refused
    if spec.selector is not None:
        return Refuse(
            Reason.INVALID_CLAIM,
            "claim Selector is not supported: a new volume is created for each claim; "
            "delete the claim and create it again without spec.selector",
            settled=True,
        )
    return _wrong_mode(claim)


def _wrong_mode(claim: Claim) -> Refuse | None:
    """Many nodes may share a raw device only: none of the file systems here is made for that.

    Source: EBS user guide "Multi-Attach" (read 2026-11-21); aws-ebs-csi-driver v1.64
    docs/multi-attach.md.
    """
    modes = set(claim.spec.access_modes or ()) - _SINGLE_NODE_MODES
    if modes == {MANY_NODES_MODE} and not claim.is_block:
        return Refuse(
            Reason.INVALID_CLAIM,
            f"access mode {MANY_NODES_MODE} requires volumeMode Block and a class of type io2 or "
            "io1: a file system on EBS that several nodes mount gets corrupted; use ReadWriteOnce, "
            "or volumeMode Block with software that can share a raw device",
            settled=True,
        )
    if modes - {MANY_NODES_MODE}:
        return Refuse(
            Reason.INVALID_CLAIM,
            f"access mode {', '.join(sorted(modes))} is not supported: EBS volumes are "
            "always attached read-write; use ReadWriteOnce or ReadWriteOncePod, or ReadWriteMany "
            "with volumeMode Block and a class of type io2",
            settled=True,
        )
    return None


def _strange_source(claim: Claim) -> Refuse | None:
    """What comes from elsewhere than from a claim or a snapshot never gets an empty volume.

    Source: external-provisioner 6.3 ``dataSource`` and ``prepareProvision``.
    """
    source = claim.source
    if source is None:
        return None
    if source.namespace and source.namespace != claim.metadata.namespace:
        return Refuse(
            Reason.NOT_SUPPORTED,
            f"the claim's dataSourceRef refers to {source.kind} {source.name!r} in namespace "
            f"{source.namespace!r}: only a source in the claim's own namespace can be copied; "
            "create a VolumeSnapshot in this namespace, from a VolumeSnapshotContent of that "
            "snapshot",
            settled=True,
        )
    if source.is_snapshot or source.is_claim:
        return None
    return Refuse(
        Reason.NOT_SUPPORTED,
        f"the claim's data source is {source.kind} {source.name!r}; assuming that an external "
        "populator will provision the volume",
        settled=True,
        normal=True,
    )


def plan(
    claim: Claim,
    read_class: ReadClass,
    *,
    zone: str,
    outpost_arn: str = "",
    cluster_id: str,
    extra_tags: Sequence[TagTemplate],
    default_file_system: str,
    iops_ceiling: int | None = None,
    source: Source | None = None,
) -> Plan | Refuse:
    """Freeze what is made for a claim in a zone, or say what its class or size cannot have.

    ``source``: what it is made from, None for an empty volume; it is never made smaller than that.
    ``iops_ceiling``: the most IOPS that EC2 gives the class's type in the region, None if it is not
    known; more are lowered to it.
    """
    wanted = read_class.parameters
    try:
        asked_gib = -(-parse_bytes(claim.requested_storage) // GIB)
    except ValueError as error:
        return Refuse(Reason.INVALID_CLAIM, f"spec.resources.requests.storage: {error}")
    size_gib = max(asked_gib, source.size_gib if source is not None else 0)
    fitted = fitted_iops(wanted, size_gib, iops_ceiling)
    # The stock driver ignores the class's file system on a raw device, too.
    file_system = None if claim.is_block else wanted.file_system or default_file_system
    wrong = _fault(claim, wanted, size_gib, fitted, file_system)
    if wrong is not None:
        what = f"a volume of {claim.requested_storage} with class {read_class.name!r}"
        return Refuse(Reason.INVALID_CLAIM, f"{what} cannot be created: {wrong}")
    try:
        written = tags_of(claim, read_class, cluster_id, extra_tags)
    except ValueError as error:
        return Refuse(Reason.INVALID_CLASS, f"class {read_class.name!r} or --extra-tags: {error}")
    where = Place(zone, outpost_arn)
    request = request_of(
        claim, wanted, written, fitted, size_gib=size_gib, where=where, source=source
    )
    return Plan(claim, read_class, file_system, request, fitted)


def _sharing_fault(claim: Claim, volume_type: str) -> str | None:
    """Where EC2 does not have io1 for many instances either, it says so itself."""
    if not claim.is_for_many_nodes or volume_type in MULTI_ATTACH_TYPES:
        return None
    return (
        f"access mode {MANY_NODES_MODE} requires type {' or '.join(MULTI_ATTACH_TYPES)}, which can "
        f"be attached to several instances, not {volume_type}"
    )


def _fault(
    claim: Claim,
    wanted: Parameters,
    size_gib: int,
    fitted: Fitted | None,
    file_system: str | None,
) -> str | None:
    """What cannot be had, in one sentence; ``file_system`` is None for a raw device."""
    iops = fitted.given if fitted is not None else None
    return (
        fault(wanted.volume_type, size_gib, iops, wanted.throughput_mibps)
        or formatting_fault(wanted.formatting, file_system)
        or _sharing_fault(claim, wanted.volume_type)
    )


def fitted_iops(wanted: Parameters, size_gib: int, ceiling: int | None) -> Fitted | None:
    """The IOPS asked for and those that can be had; None where EC2 chooses."""
    asked = wanted.iops_for(size_gib)
    if asked is None:
        return None
    return fit(
        wanted.volume_type,
        size_gib,
        asked,
        raises_to_minimum=wanted.raises_iops_to_minimum,
        ceiling=ceiling,
    )


def request_of(
    claim: Claim,
    wanted: Parameters,
    written: tuple[tuple[str, str], ...],
    fitted: Fitted | None,
    *,
    size_gib: int,
    where: Place,
    source: Source | None = None,
) -> CreateRequest:
    """What EC2 is told; ``written`` are the tags, without a source the volume is empty.

    EC2 takes the rate of an initialization with a snapshot only.
    """
    origin = source or Source()
    return CreateRequest(
        client_token=client_token(claim.persistent_volume_name),
        zone=where.zone,
        size_gib=size_gib,
        volume_type=wanted.volume_type,
        iops=fitted.given if fitted is not None else None,
        throughput_mibps=wanted.throughput_mibps,
        encrypted=bool(wanted.encrypted),
        kms_key_id=wanted.kms_key_id,
        multi_attach=claim.is_for_many_nodes,
        initialization_rate_mibps=wanted.initialization_rate_mibps if origin.snapshot_id else None,
        outpost_arn=where.outpost_arn or None,
        snapshot_id=origin.snapshot_id or None,
        source_volume_id=origin.volume_id or None,
        tags=written,
    )


def tags_of(
    claim: Claim, read_class: ReadClass, cluster_id: str, extra: Sequence[TagTemplate]
) -> tuple[tuple[str, str], ...]:
    """All tags of the volume; of one in both, ``--extra-tags``' counts, as for the stock driver.

    Raises:
        ValueError: one sentence that names a tag and what is wrong with it.
    """
    wanted, storage_class = read_class.parameters, read_class.storage_class
    owner = tags.Owner(
        claim_namespace=claim.metadata.namespace,
        claim_name=claim.name,
        persistent_volume_name=claim.persistent_volume_name,
        # The API server writes the default itself; it is Delete.
        reclaim_policy=storage_class.reclaim_policy or "Delete",
    )
    return tags.of_new_volume(
        owner,
        cluster_id=cluster_id,
        extra=tags.rendered((*wanted.tag_templates, *extra), owner),
        iops_per_gib=wanted.iops_per_gib,
        iops_follow_growth=wanted.iops_follow_growth,
    )
