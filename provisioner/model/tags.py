"""Tags on volumes: those of aws-ebs-csi-driver, and the mark of a volume nobody owns yet.

Source: aws-ebs-csi-driver v1.64 docs/tagging.md and pkg/driver/constants.go (read 2026-11-21).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.model import tag_template
from provisioner.model.tag_template import Names, TagTemplate

VOLUME_NAME = "CSIVolumeName"
CLUSTER = "ebs.csi.aws.com/cluster"
CLUSTER_NAME = "ebs.csi.aws.com/cluster-name"
CLAIM_NAME = "kubernetes.io/created-for/pvc/name"
CLAIM_NAMESPACE = "kubernetes.io/created-for/pvc/namespace"
PERSISTENT_VOLUME_NAME = "kubernetes.io/created-for/pv/name"

# Written by CreateVolume, removed once a persistent volume names the volume. Only a volume that
# still has it may be swept: it cannot hold data that was written through us.
UNCLAIMED = "ebs-provisioner.io/unclaimed"

_RESERVED = frozenset({VOLUME_NAME, "CSIVolumeSnapshotName"})
_RESERVED_PREFIXES = ("kubernetes.io", "ebs.csi.aws.com/", "ebs-provisioner.io/", "aws:")
_KEY_CHARACTERS, _VALUE_CHARACTERS, _MOST = (
    128,
    256,
    50,
)  # Amazon EC2 user guide, "Tag restrictions"
_OURS_AT_MOST = 11
_OF_CLUSTER = "kubernetes.io/cluster/"
# What EC2 takes in every region, without the space; "*" and "?" would be wild in its filters.
_CLUSTER_ID = re.compile(r"[A-Za-z0-9._:/=+@-]*")


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom a volume is made."""

    claim_namespace: str
    claim_name: str
    persistent_volume_name: str
    reclaim_policy: str


def of_new_volume(
    owner: Owner, *, cluster_id: str, extra: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """All tags that CreateVolume writes, sorted, so that the same call is the same request.

    Extra tags win over ``Name`` and ``KubernetesCluster`` only (aws-ebs-csi-driver since 1.49).
    """
    name = owner.persistent_volume_name
    tags = {
        VOLUME_NAME: name,
        CLUSTER: "true",
        CLAIM_NAME: owner.claim_name,
        CLAIM_NAMESPACE: owner.claim_namespace,
        PERSISTENT_VOLUME_NAME: name,
    }
    if cluster_id:
        tags |= {
            **of_cluster(cluster_id),
            "KubernetesCluster": cluster_id,
            "Name": f"{cluster_id}-dynamic-{name}",
            # Without a cluster id no sweep can tell its volumes, so nothing would remove them.
            UNCLAIMED: owner.reclaim_policy,
        }
    return tuple(sorted((tags | dict(extra)).items()))


def rendered(templates: Iterable[TagTemplate], owner: Owner) -> dict[str, str]:
    """The tags that templates mean for one volume.

    Raises:
        ValueError: one sentence that names the tag and what is wrong with it.
    """
    names = Names(owner.claim_namespace, owner.claim_name, owner.persistent_volume_name)
    return {template.key: template.render(names) for template in templates}


def of_cluster(cluster_id: str) -> dict[str, str]:
    """The tags that say that a volume belongs to this cluster."""
    return {f"{_OF_CLUSTER}{cluster_id}": "owned", CLUSTER_NAME: cluster_id}


def check_cluster_id(text: str) -> None:
    """Look whether EC2 will take the tags of this cluster; "" is none and fine.

    Raises:
        ValueError: one sentence that names the rule.
    """
    most = _KEY_CHARACTERS - len(_OF_CLUSTER)
    if len(text) > most:
        raise ValueError(f"{text[:40]!r}… has {len(text)} characters, a tag has room for {most}")
    if not _CLUSTER_ID.fullmatch(text):
        raise ValueError(f"{text!r} has characters other than letters, digits and . _ : / = + @ -")


def parse_extra(text: str) -> tuple[TagTemplate, ...]:
    """Read ``k=v,k=v``.

    Raises:
        ValueError: one sentence that names the tag and the rule.
    """
    tags: dict[str, TagTemplate] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"tag {pair!r} is not of the form key=value")
        if key in _RESERVED or key.startswith(_RESERVED_PREFIXES):
            raise ValueError(f"tag {key!r} is reserved")
        if len(key) > _KEY_CHARACTERS or len(value) > _VALUE_CHARACTERS:
            raise ValueError(
                f"tag {key[:40]!r} is too long: EC2 takes {_KEY_CHARACTERS} characters for a key "
                f"and {_VALUE_CHARACTERS} for a value"
            )
        if key in tags:
            raise ValueError(f"tag {key!r} is given twice")
        tags[key] = tag_template.parse(pair)
    if len(tags) > _MOST - _OURS_AT_MOST:
        raise ValueError(
            f"{len(tags)} extra tags: EC2 allows {_MOST} on a volume, we need {_OURS_AT_MOST}"
        )
    return tuple(tags.values())
