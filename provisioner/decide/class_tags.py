"""What a StorageClass's tags come to on a volume, before any claim names the class."""

from collections.abc import Iterator

from provisioner.decide.storage_class import ReadClass
from provisioner.model import tags

# Another name may do where this one does not, so what it shows is no proof.
_SAMPLE = tags.Owner("default", "data", "pvc-00000000-0000-4000-8000-000000000000", "Delete")
_CLUSTER_ID = "of-the-check"


def too_many(read_class: ReadClass, *, cluster_id: str) -> str | None:
    """Why a volume cannot carry so many tags besides those that it always has; None if it can.

    Args:
        read_class: the class.
        cluster_id: of the controller, "" for none; with one a volume has more tags of its own.
    """
    wanted = read_class.parameters
    try:
        tags.of_new_volume(
            _SAMPLE,
            cluster_id=cluster_id,
            extra={each.key: "" for each in wanted.tag_templates},
            iops_per_gib=wanted.iops_per_gib,
            iops_follow_growth=wanted.iops_follow_growth,
        )
    except ValueError as error:
        return str(error)
    return None


def doubts(read_class: ReadClass) -> Iterator[str]:
    """Tags that some claims, or some controllers, cannot have."""
    for template in read_class.parameters.tag_templates:
        try:
            tags.rendered([template], _SAMPLE)
        except ValueError as error:
            what = f"{_SAMPLE.claim_namespace}/{_SAMPLE.claim_name}"
            yield f"for a claim named {what}, a tag cannot be made: {error}"
    if (why := too_many(read_class, cluster_id=_CLUSTER_ID)) is not None:
        yield f"with --cluster-id no claim works: {why}"
