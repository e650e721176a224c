"""Whether anything in the cluster shows that a controller of EBS volumes has led before."""

from collections.abc import Iterable

from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.persistent_volume import PROVISIONED_BY, PersistentVolume


def left_nothing(
    volumes: Iterable[PersistentVolume],
    attachments: Iterable[Attachment],
    claims: Iterable[Claim],
    driver: str,
) -> bool:
    """No volume was made, nothing attached, and no claim noted by any of them.

    A controller of ours notes the zone on a claim before EC2 hears of it.
    """
    return not (
        any(each.volume_id(driver) and PROVISIONED_BY in each.annotations for each in volumes)
        or any(each.spec.attacher == driver and each.attached for each in attachments)
        or any(each.pinned_zone or each.is_in_doubt for each in claims)
    )
