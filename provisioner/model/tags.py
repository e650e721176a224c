"""Tags on volumes: those of aws-ebs-csi-driver, and ``unclaimed`` for a volume without an owner.

Source: aws-ebs-csi-driver v1.64 docs/tagging.md and pkg/driver/constants.go (read 2026-11-21).
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.model import tag_template
from provisioner.model.errors import RefusedHereError, retold
from provisioner.model.names import (
    CLAIM_NAME,
    CLAIM_NAMESPACE,
    CLUSTER_NAME,
    CLUSTER_PREFIX,
    DISPLAY_NAME,
    DRIVER_PREFIX,
    IOPS_FOLLOW_GROWTH,
    IOPS_PER_GIB,
    LEGACY_CLUSTER,
    MADE_BY_DRIVER,
    OUR_PREFIX,
    PERSISTENT_VOLUME_NAME,
    SNAPSHOT_NAME,
    UNCLAIMED,
    VOLUME_NAME,
)
from provisioner.model.tag_template import OF_CLAIM, Names, TagTemplate

TAG_PREFIX = "tagSpecification"  # of a class's parameters, with exactly these capitals

_RESERVED = frozenset({VOLUME_NAME, SNAPSHOT_NAME})
_RESERVED_PREFIXES = ("kubernetes.io", DRIVER_PREFIX, "aws:")
# Source: Amazon EC2 user guide, "Tag restrictions" (read 2026-11-21).
_KEY_CHARACTERS, _VALUE_CHARACTERS = 128, 256
MOST = 50
_OURS_AT_MOST = 13
_LENGTHS = f"EC2 allows {_KEY_CHARACTERS} characters for a key and {_VALUE_CHARACTERS} for a value"
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
    owner: Owner,
    *,
    cluster_id: str,
    extra: Mapping[str, str],
    iops_per_gib: int | None = None,
    iops_follow_growth: bool | None = None,
) -> tuple[tuple[str, str], ...]:
    """All tags that CreateVolume writes, sorted, so that the same call is the same request.

    Extra tags win over ``Name`` and ``KubernetesCluster`` only (aws-ebs-csi-driver since 1.49).

    Raises:
        ValueError: one sentence: they are more than EC2 allows.
    """
    name = owner.persistent_volume_name
    tags = {
        VOLUME_NAME: name,
        MADE_BY_DRIVER: "true",
        CLAIM_NAME: owner.claim_name,
        CLAIM_NAMESPACE: owner.claim_namespace,
        PERSISTENT_VOLUME_NAME: name,
    }
    if cluster_id:
        tags |= {
            **of_cluster(cluster_id),
            LEGACY_CLUSTER: cluster_id,
            DISPLAY_NAME: f"{cluster_id}-dynamic-{name}",
            # Without a cluster id no sweep can tell its volumes, so nothing would remove them.
            UNCLAIMED: owner.reclaim_policy,
        }
    tags |= {**_of_growth(iops_per_gib, follows=iops_follow_growth), **extra}
    if len(tags) > MOST:
        raise ValueError(
            f"the volume would have {len(tags)} tags, {len(extra)} of them of the class and of "
            f"--extra-tags; EC2 allows {MOST}"
        )
    return tuple(sorted(tags.items()))


def of_new_snapshot(
    name: str, *, cluster_id: str, extra: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """All tags that CreateSnapshot writes, sorted; ``name`` is what a snapshot is found by.

    Extra tags win over all but the name and the tags of the driver, as for volumes.

    Raises:
        ValueError: one sentence: they are more than EC2 allows.
    """
    tags = {SNAPSHOT_NAME: name, MADE_BY_DRIVER: "true"}
    if cluster_id:
        tags |= {**of_cluster(cluster_id), DISPLAY_NAME: f"{cluster_id}-dynamic-{name}"}
    tags |= extra
    if len(tags) > MOST:
        raise ValueError(f"the snapshot would have {len(tags)} tags; EC2 allows {MOST}")
    return tuple(sorted(tags.items()))


def _of_growth(iops_per_gib: int | None, *, follows: bool | None) -> dict[str, str]:
    tags = {} if iops_per_gib is None else {IOPS_PER_GIB: str(iops_per_gib)}
    return tags if follows is None else tags | {IOPS_FOLLOW_GROWTH: str(follows).lower()}


def rendered(templates: Iterable[TagTemplate], owner: Owner | Names) -> dict[str, str]:
    """The tags that templates mean for one volume; of two with one key the later one counts.

    Raises:
        ValueError: one sentence that names the tag and what is wrong with it.
    """
    names = owner if isinstance(owner, Names) else _names(owner)
    tags = {}
    for template in templates:
        try:
            value = template.render(names)
        except ValueError as error:
            raise retold(error, f"tag {template.key!r}: {error}") from error
        _check_value(template.key, value)
        tags[template.key] = value
    return tags


def _names(owner: Owner) -> Names:
    return Names(owner.claim_namespace, owner.claim_name, owner.persistent_volume_name)


def parse(text: str, fields: Mapping[str, str] = OF_CLAIM) -> TagTemplate:
    """Read ``key=value``, the value a template, and check what is known before there is a claim.

    ``fields``: what the template can name.

    Raises:
        ValueError: one sentence that names the tag and the rule.
    """
    template = tag_template.parse(text, fields)
    _check_key(template.key)
    if template.is_constant:
        _check_value(template.key, template.render(Names()))
    return template


def _check_key(key: str) -> None:
    if key in _RESERVED or key.lower().startswith("aws:") or key.startswith(_RESERVED_PREFIXES):
        raise ValueError(f"tag {key[:40]!r} is reserved")
    if key.startswith(OUR_PREFIX):
        raise RefusedHereError(f"tag {key[:40]!r} is reserved")
    if len(key) > _KEY_CHARACTERS:
        raise ValueError(f"the key of tag {key[:40]!r} is too long: {_LENGTHS}")
    _check_characters(key, f"the key of tag {key[:40]!r}")


def _check_value(key: str, value: str) -> None:
    if len(value) > _VALUE_CHARACTERS:
        raise ValueError(f"the value {value[:40]!r}… of tag {key[:40]!r} is too long: {_LENGTHS}")
    _check_characters(value, f"the value of tag {key[:40]!r}")


def _check_characters(text: str, what: str) -> None:
    """EC2 takes letters of all scripts; other AWS services are stricter, which is not ours.

    Whether EC2 would take a control character is not known, so it proves nothing for others.
    """
    bad = next((c for c in text if unicodedata.category(c) in ("Cc", "Cs")), None)
    if bad is not None:
        raise RefusedHereError(f"{what} has the character {bad!a}, which cannot be sent to EC2")


def of_cluster(cluster_id: str) -> dict[str, str]:
    """The tags that say that a volume belongs to this cluster."""
    return {cluster_key(cluster_id): "owned", CLUSTER_NAME: cluster_id}


def cluster_key(cluster_id: str) -> str:
    """The key of the tag that says to which cluster something belongs: ``owned`` or ``shared``."""
    return f"{CLUSTER_PREFIX}{cluster_id}"


def check_cluster_id(text: str) -> None:
    """Look whether EC2 will take the tags of this cluster; "" is none and fine.

    Raises:
        ValueError: one sentence that names the rule.
    """
    most = _KEY_CHARACTERS - len(CLUSTER_PREFIX)
    if len(text) > most:
        raise ValueError(f"{text[:40]!r}… has {len(text)} characters, but a tag can have {most}")
    if not _CLUSTER_ID.fullmatch(text):
        raise ValueError(f"{text!r} has characters other than letters, digits and . _ : / = + @ -")


def of_parameters(
    raw: Mapping[str, str], fields: Mapping[str, str] = OF_CLAIM
) -> tuple[TagTemplate, ...]:
    """The templates that a class's parameters give, sorted by the parameters' names.

    ``fields``: what they can name.

    Raises:
        RefusedHereError: a tag is given twice; the stock driver takes one or the other.
        ValueError: one sentence that names the parameter, the tag and the rule.
    """
    templates: dict[str, TagTemplate] = {}
    for name in sorted(each for each in raw if each.startswith(TAG_PREFIX)):
        try:
            template = parse(raw[name], fields)
        except ValueError as error:
            raise retold(error, f"parameter {name[:100]!r}: {error}") from error
        if template.key in templates:
            raise RefusedHereError(f"parameter {name[:100]!r}: tag {template.key!r} is given twice")
        templates[template.key] = template
    return tuple(templates.values())


def parse_extra(text: str) -> tuple[TagTemplate, ...]:
    """Read ``k=v,k=v``; a value is a template, without commas.

    Raises:
        ValueError: one sentence that names the tag and the rule.
    """
    templates: dict[str, TagTemplate] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        template = parse(pair)
        if template.key in templates:
            raise ValueError(f"tag {template.key!r} is given twice")
        templates[template.key] = template
    if len(templates) > MOST - _OURS_AT_MOST:
        raise ValueError(
            f"{len(templates)} extra tags: EC2 allows {MOST} on a volume, and the controller "
            f"needs {_OURS_AT_MOST}"
        )
    return tuple(templates.values())
