"""Decide what CreateVolume is told: everything that a class and a claim mean to EC2."""

import hashlib
from collections.abc import Sequence

from provisioner.decide.capping import Fitted, fit
from provisioner.decide.storage_class import ReadClass
from provisioner.model import tags
from provisioner.model.claim import Claim
from provisioner.model.data_source import Source
from provisioner.model.parameters import Parameters
from provisioner.model.tag_template import TagTemplate
from provisioner.model.volume import CreateRequest
from provisioner.model.zone import Place


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


def client_token(volume_name: str, number: int = 1) -> str:
    """The client token of aws-ebs-csi-driver v1.64: the hash of the name, ``-2`` … when burned."""
    name = volume_name if number == 1 else f"{volume_name}-{number}"
    return hashlib.sha256(name.encode()).hexdigest()
