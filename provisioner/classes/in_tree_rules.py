"""What the removed plugin ``kubernetes.io/aws-ebs`` means to the driver that took its place.

Kubernetes keeps its classes and its persistent volumes as they are and translates them whenever
they are used. A class's zones become topologies; a new volume's persistent volume is saved in the
plugin's form, so that programs which know the old ones know the new one.
Source: Kubernetes 1.36 csi-translation-lib, plugins/aws_ebs.go and in_tree_volume.go.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from provisioner.model.errors import RefusedHereError
from provisioner.model.node_affinity import REGION_LABEL, region_of
from provisioner.model.persistent_volume import ZONES_APART
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import EBS_ZONE_LABEL, ZONE_LABEL, TopologyRequirement, TopologyTerm

Json = dict[str, Any]

_ZONE, _ZONES, _IOPS_PER_GIB = "zone", "zones", "iopspergb"
_WITHOUT_IOPS = ("gp2", "sc1", "st1")
_RAISES_IOPS = "allowAutoIOPSPerGBIncrease"
_NO_IOPS = re.compile(r"[+-]?0+", re.ASCII)  # as the plugin read numbers
_LEAST_IOPS = "100"  # what the plugin gave an io1 volume at least


def parameters_of(storage_class: StorageClass) -> dict[str, str]:
    """The class's parameters as the driver reads them; spellings and values stay the user's.

    The plugin raised too few IOPS per GiB to what the type needs, so that is allowed, unless the
    class says otherwise; without any it gave the least, and of types that take none it ignored
    them, where EC2 would refuse.
    Source: Kubernetes 1.26 legacy-cloud-providers/aws ``CreateDisk`` (read 2026-11-21).
    """
    raw = storage_class.parameters or {}
    lowered = {name.lower(): text for name, text in raw.items()}
    dropped = {_ZONE, _ZONES}
    volume_type = lowered.get("type", "").strip().lower()
    per_gib_is_none = bool(_NO_IOPS.fullmatch(lowered.get(_IOPS_PER_GIB, "0").strip()))
    if volume_type in _WITHOUT_IOPS or (volume_type == "io1" and per_gib_is_none):
        dropped.add(_IOPS_PER_GIB)
    found = {name: text for name, text in raw.items() if name.lower() not in dropped}
    if volume_type == "io1" and per_gib_is_none and "iops" not in lowered:
        found["iops"] = _LEAST_IOPS
    if _IOPS_PER_GIB in lowered.keys() - dropped and _RAISES_IOPS.lower() not in lowered:
        found[_RAISES_IOPS] = "true"
    return found


def topologies_of(storage_class: StorageClass) -> tuple[TopologyTerm, ...]:
    """Where the class allows volumes: its ``allowedTopologies``, or its ``zone`` or ``zones``.

    Raises:
        ValueError: one sentence that names the parameter and what would help.
    """
    own = tuple(storage_class.allowed_topologies or ())
    given = {
        name: text
        for name, text in (storage_class.parameters or {}).items()
        if name.lower() in (_ZONE, _ZONES)
    }
    if not given:
        return own
    if len(given) > 1:
        # Kubernetes takes one or the other.
        both = " and ".join(map(repr, given))
        raise RefusedHereError(f"parameters {both} are both given; keep one")
    name, text = next(iter(given.items()))
    if own:
        raise ValueError(
            f"parameter {name!r} and allowedTopologies are both given; keep allowedTopologies"
        )
    zones = sorted({zone.strip() for zone in text.split(",")})
    if "" in zones:
        # To Kubernetes it is a zone like others, and the driver may choose another one.
        raise RefusedHereError(f"parameter {name!r}: {text[:100]!r} contains an empty zone")
    if name.lower() == _ZONE and len(zones) > 1:
        raise ValueError(
            f"parameter {name!r}: {text[:100]!r} lists more than one zone; use 'zones'"
        )
    requirement = TopologyRequirement(key=EBS_ZONE_LABEL, values=zones)
    return (TopologyTerm(match_label_expressions=[requirement]),)


def persistent_volume(body: Json) -> Json:
    """The same persistent volume in the plugin's form, from the body in CSI form.

    What has no place there is lost, as with Kubernetes itself: ``volumeAttributes`` and secrets.
    A zone whose name tells no Region gets no Region, where external-provisioner would give up
    after the volume was made.
    """
    meta, spec = body["metadata"], body["spec"]
    csi = spec["csi"]
    source: Json = {"volumeID": csi["volumeHandle"]}
    if csi.get("fsType"):
        source["fsType"] = csi["fsType"]
    terms = [
        {**term, "matchExpressions": list(_located(term["matchExpressions"]))}
        for term in spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    ]
    labels = {**meta.get("labels", {}), **_labels(terms)}
    return {
        **body,
        "metadata": {**meta, "labels": labels},
        "spec": {
            **{key: value for key, value in spec.items() if key != "csi"},
            "awsElasticBlockStore": source,
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }


def _located(expressions: Iterable[Json]) -> Iterator[Json]:
    """One term's expressions: the driver's zone key as the common one, and the Region."""
    regions: set[str] = set()
    has_region = False
    for expression in expressions:
        key = ZONE_LABEL if expression["key"] == EBS_ZONE_LABEL else expression["key"]
        if key == ZONE_LABEL:
            regions |= {region_of(zone) for zone in expression["values"]}
        has_region = has_region or key == REGION_LABEL
        yield {**expression, "key": key}
    if len(regions) == 1 and "" not in regions and not has_region:
        yield {"key": REGION_LABEL, "operator": "In", "values": sorted(regions)}


def _labels(terms: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    named: dict[str, set[str]] = {ZONE_LABEL: set(), REGION_LABEL: set()}
    for term in terms:
        for expression in term["matchExpressions"]:
            if expression["key"] in named:
                named[expression["key"]] |= set(expression["values"])
    labels = {}
    if named[ZONE_LABEL]:
        labels[ZONE_LABEL] = ZONES_APART.join(sorted(named[ZONE_LABEL]))
    if len(named[REGION_LABEL]) == 1:
        labels[REGION_LABEL] = next(iter(named[REGION_LABEL]))
    return labels
