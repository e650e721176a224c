"""Persistent volumes as the webhook gets them: JSON of which any optional part may be missing."""

from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch
from hypothesis import strategies as st

from provisioner.model.driver import EBS_DRIVER
from provisioner.model.node_affinity import (
    BETA_REGION_LABEL,
    REGION_KEYS,
    REGION_LABEL,
    expressions_of,
    names_zone,
    region_of,
    terms_of,
)
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_KEYS, ZONE_LABEL
from webhook.model.review import Json

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
LOCAL, CHINA, GOV = "us-west-2-lax-1a", "cn-north-1a", "us-gov-east-1b"
WAVELENGTH = "us-east-1-foe-wlz-1a"
ZONES = (A, B, C, LOCAL, CHINA, GOV)
VOLUME = "vol-0123456789abcdef0"
ZONE_ID = "topology.k8s.aws/zone-id"
OUTPOST = "topology.ebs.csi.aws.com/outpost-id"
DISK = "example.com/disk~kind"
LABEL_KEYS = (ZONE_LABEL, REGION_LABEL, BETA_ZONE_LABEL, BETA_REGION_LABEL, EBS_ZONE_LABEL)


def has(key: str, *values: str, operator: str = "In") -> Json:
    """One requirement on a node's label."""
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: Json) -> Json:
    return {"matchExpressions": list(expressions)}


def in_zone(*zones: str, key: str = ZONE_LABEL) -> Json:
    """A term of one requirement."""
    return term(has(key, *zones))


def on_node(name: str) -> Json:
    return {"matchFields": [has("metadata.name", name)]}


def affinity(*terms: Json | None) -> Json:
    return {"required": {"nodeSelectorTerms": list(terms)}}


def a_pv(
    *terms: Json,
    handle: str = VOLUME,
    driver: str = EBS_DRIVER,
    in_tree: bool = False,
    name: str = "data",
    labels: Mapping[str, str] | None = None,
) -> Json:
    """One that a user writes by hand."""
    source: Json = {"awsElasticBlockStore": {"volumeID": handle}}
    if not in_tree:
        source = {"csi": {"driver": driver, "volumeHandle": handle}}
    meta: Json = {"name": name, "resourceVersion": "7"}
    if labels:
        meta["labels"] = dict(labels)
    spec = source | ({"nodeAffinity": affinity(*terms)} if terms else {})
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def terms_in(persistent_volume: Json) -> list[Json]:
    terms: list[Json] = persistent_volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return terms


def applied(document: Json, patch: Iterable[Json]) -> Json:
    """The document after a JSON patch."""
    changed: Json = jsonpatch.apply_patch(document, list(patch))
    return changed


def has_words(persistent_volume: Json) -> bool:
    """Whether its affinity asks for a zone by a name that is none of AWS's."""
    required = (persistent_volume["spec"].get("nodeAffinity") or {}).get("required")
    return any(
        each["key"] in ZONE_KEYS
        and each["operator"] == "In"
        and not all(map(names_zone, each.get("values") or []))
        for term in terms_of(required)
        for each in expressions_of(term)
    )


# Strategies.

_keys = st.sampled_from((*ZONE_KEYS, *REGION_KEYS, ZONE_ID, OUTPOST, DISK))
_places = (*ZONES, "us-east-1", "us-west-2", "acme-east-1", "home", "rack-1")
_values = st.sampled_from((*_places, "use1-az1", "op-1", "ssd", "7", ""))
_operators = st.sampled_from(("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))


@st.composite
def _expressions(draw: Any) -> Json:
    expression = {"key": draw(_keys), "operator": draw(_operators)}
    if values := draw(st.none() | st.lists(_values, max_size=3)):
        expression["values"] = values
    return expression


def _optional(document: Json, key: str, drawn: Any) -> None:
    """Write a member; leave it out for "", for null write that."""
    if drawn != "":
        document[key] = drawn


_absent = st.sampled_from(("", None))


@st.composite
def _terms(draw: Any) -> Json:
    written: Json = {}
    expressions = st.lists(_expressions(), max_size=3)
    _optional(written, "matchExpressions", draw(expressions | expressions | _absent))
    fields = st.just([has("metadata.name", "node-1")])
    _optional(written, "matchFields", draw(_absent | _absent | fields))
    return written


@st.composite
def _affinities(draw: Any) -> Json:
    required: Json = {}
    terms = st.lists(_terms(), max_size=4)
    _optional(required, "nodeSelectorTerms", draw(terms | terms | terms | _absent))
    written: Json = {}
    _optional(written, "required", draw(st.just(required) | _absent))
    return written


_label_values = st.sampled_from((*_places, "us-east1", "a__b", ""))
_labels = st.dictionaries(st.sampled_from((*LABEL_KEYS, "app~1/name", DISK)), _label_values)
_handles = st.sampled_from((VOLUME, f"aws:///{VOLUME}", f"aws://{A}/{VOLUME}", f"aws://{B}/vol-1"))

zones = st.sampled_from(ZONES)


@st.composite
def persistent_volumes(draw: Any) -> Json:
    """Any that is on EBS and has a volume id."""
    meta: Json = {}
    _optional(meta, "labels", draw(_labels | _labels | _absent))
    _optional(meta, "name", draw(st.just("data") | st.just("d" * 253) | _absent))
    found = a_pv(handle=draw(_handles), in_tree=draw(st.booleans()))
    del found["metadata"]
    _optional(found, "metadata", draw(st.just(meta) | st.just(meta) | _absent))
    _optional(found["spec"], "nodeAffinity", draw(_affinities() | _affinities() | _absent))
    return found


@st.composite
def labels_to_write(draw: Any, zone: str) -> dict[str, str]:
    """What ``zone_rules.writable`` may say of a zone."""
    true = {ZONE_LABEL: zone, REGION_LABEL: region_of(zone)}
    return {key: value for key, value in true.items() if draw(st.booleans())}
