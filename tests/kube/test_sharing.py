from typing import Any

import msgspec
import pytest

from provisioner.kube import resources, wire
from provisioner.kube.lease import LEASES
from provisioner.kube.resources import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    LABELLED_CLAIMS,
    NODES,
    PERSISTENT_VOLUMES,
    VOLUME_MOVES,
    Resource,
)
from provisioner.kube.store import Store
from provisioner.model.attachment import Attachment
from provisioner.model.claim import SELECTED_NODE, Claim
from provisioner.model.document import Document
from provisioner.model.names import LED_SINCE, MODIFICATIONS, PINNED_ZONE, VOLUME_ID
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import VolumeMove

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
EVERY_RESOURCE = [each for each in vars(resources).values() if isinstance(each, Resource)]


def a_pv(name: str, **annotations: str) -> bytes:
    spec = {"persistentVolumeReclaimPolicy": "Delete"}
    meta = {"name": name, "annotations": annotations, "finalizers": ["kubernetes.io/pv-protection"]}
    return msgspec.json.encode({"metadata": meta, "spec": spec})


def decoded(data: bytes) -> PersistentVolume:
    return wire.decode_object(PERSISTENT_VOLUMES, data)


def test_equal_parts_are_one_object() -> None:
    one, two = decoded(a_pv("one", by="us")), decoded(a_pv("two", by="us"))

    assert one.metadata.annotations is two.metadata.annotations
    assert one.metadata.finalizers is two.metadata.finalizers
    assert one.spec.persistent_volume_reclaim_policy is two.spec.persistent_volume_reclaim_policy


def test_sharing_changes_no_value() -> None:
    for data in (
        a_pv("one", by="us"),
        a_pv("two", by="them"),
        a_pv("three"),
        a_pv("four", long="x" * 5000),
    ):
        assert decoded(data) == msgspec.json.decode(data, type=PersistentVolume)


def test_lists_of_what_has_names_of_its_own_are_left_or_shared_as_a_whole() -> None:
    owners = [{"kind": "StatefulSet", "name": f"db-{n}", "uid": f"uid-{n}"} for n in range(2)]
    for status in ({}, {"consumers": owners}, {"consumers": owners, "claim": "x" * 5000}):
        data = msgspec.json.encode({"metadata": {"name": "to-b"}, "status": status})

        assert wire.decode_object(VOLUME_MOVES, data) == msgspec.json.decode(data, type=VolumeMove)


@pytest.mark.parametrize("resource", EVERY_RESOURCE, ids=lambda resource: resource.plural)
def test_only_a_struct_is_entered(resource: Resource[Any]) -> None:
    entered: list[Any] = [resource.type]
    for kind in entered:
        plan = wire._plan_of(kind)
        for field in msgspec.structs.fields(kind):
            if field.name in plan.structs:
                found = wire._either(field.type)
                assert all(map(wire._is_struct, found)), field
                entered += found - {*entered}


def test_what_an_attachment_of_an_inline_volume_lacks_it_lacks_after_sharing() -> None:
    inline = {"csi": {"driver": "ebs", "volumeHandle": "vol-1"}, "accessModes": ["ReadWriteOnce"]}
    data = msgspec.json.encode({"spec": {"source": {"inlineVolumeSpec": inline}}})

    found = wire.decode_object(ATTACHMENTS, data)

    assert found == msgspec.json.decode(data, type=Attachment)
    assert found.spec.source.persistent_volume_name is None


def test_parts_of_what_is_too_long_to_be_shared_are_shared() -> None:
    def a_node(name: str) -> bytes:
        condition = {"type": "Ready", "status": "True"}
        addresses = [{"type": "Hostname", "address": "x" * 900}, {"address": name}]
        status = {"conditions": [condition], "addresses": addresses * 2}
        return msgspec.json.encode({"metadata": {"name": name}, "status": status})

    one, two = (wire.decode_object(NODES, a_node(each)) for each in ("one", "two"))

    assert one.status != two.status
    assert one.status.conditions is two.status.conditions


DOCUMENTS = Resource("", "v1", "persistentvolumes", "PersistentVolume", Document)


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        (NODES, {"metadata": {"labels": {"kubernetes.io/hostname": "own", "team": "shop"}}}),
        (CSI_NODES, {"spec": {"drivers": [{"name": "ebs", "nodeID": "own"}]}}),
        (ATTACHMENTS, {"metadata": {"annotations": {VOLUME_ID: "own", "team": "shop"}}}),
        (CLAIMS, {"metadata": {"annotations": {PINNED_ZONE: "a/own", "team": "shop"}}}),
        (CLAIMS, {"metadata": {"annotations": {APPLIED: "own", "team": "shop"}}}),
        (PERSISTENT_VOLUMES, {"metadata": {"annotations": {MODIFICATIONS: "own"}}}),
        (LEASES, {"spec": {"renewTime": "own"}}),  # four of them every five seconds
        (LEASES, {"metadata": {"annotations": {LED_SINCE: "own"}}}),
        (DOCUMENTS, {"spec": {"claimRef": {"name": "own"}}}),
    ],
    ids=lambda each: each.plural if isinstance(each, Resource) else "",
)
def test_what_no_two_objects_have_alike_pushes_nothing_out_of_what_is_shared(
    resource: Resource[Any], body: Any
) -> None:
    data = msgspec.json.encode(body)
    wire.decode_object(resource, data)
    before = wire._value.cache_info().misses

    found = wire.decode_object(resource, data.replace(b"own", b"another"))

    assert found == msgspec.json.decode(data.replace(b"own", b"another"), type=resource.type)
    assert wire._value.cache_info().misses == before


def test_the_parts_of_a_size_are_found_after_the_lives_of_thousands_of_other_claims() -> None:
    """With 300 sizes, the next claim of a size comes after hundreds of others."""

    def shown(n: int, size: str) -> Claim:
        node = f"node-{n % 1000}"
        annotations = {SELECTED_NODE: node, APPLIED: f"{{{n}}}", PINNED_ZONE: f"zone/{n}"}
        spec = {"resources": {"requests": {"storage": size}}}
        body = {"metadata": {"annotations": annotations}, "spec": spec}
        return wire.decode_object(CLAIMS, msgspec.json.encode(body))

    first = shown(0, "1234567Ki")
    for n in range(1, 5000):
        shown(n, "1Gi")
        shown(n, "1Gi")  # the answer to an own write, then the watch's line

    assert shown(0, "1234567Ki").spec.resources is first.spec.resources


def test_claims_that_the_stock_driver_has_bound_share_what_names_their_node() -> None:
    def bound(name: str) -> Claim:
        annotations = {SELECTED_NODE: "node-1", "pv.kubernetes.io/bind-completed": "yes"}
        body = {"metadata": {"name": name, "annotations": annotations}}
        return wire.decode_object(CLAIMS, msgspec.json.encode(body))

    assert bound("one").annotations is bound("two").annotations


def test_common_words_of_labels_that_differ_are_one_text() -> None:
    def labels_of(name: str) -> dict[str, str]:
        labels = {"kubernetes.io/hostname": name, "example.com/team": "team-shop"}
        node = wire.decode_object(NODES, msgspec.json.encode({"metadata": {"labels": labels}}))
        return dict(node.labels)

    one, two = labels_of("node-1"), labels_of("node-2")

    assert one["example.com/team"] is two["example.com/team"]
    assert all(a is b for a, b in zip(one, two, strict=True))


def test_equal_texts_in_fields_of_other_types_stay_apart() -> None:
    data = b'{"spec":{"accessModes":["ReadWriteOnce"],"selector":{"a":["ReadWriteOnce"]}}}'

    assert wire.decode_object(CLAIMS, data) == msgspec.json.decode(data, type=Claim)


def a_claim(name: str, node: str) -> bytes:
    annotations = {
        "pv.kubernetes.io/bind-completed": name,
        "volume.kubernetes.io/selected-node": node,
    }
    meta = {"name": name, "namespace": "team", "uid": "same", "annotations": annotations}
    spec = {"volumeName": "same", "resources": {"requests": {"storage": "10Gi"}}}
    status = {"phase": "Bound", "capacity": {"storage": "10Gi"}}
    return msgspec.json.encode({"metadata": meta, "spec": spec, "status": status})


def test_equal_statuses_are_one_object_and_so_are_the_words_of_annotations_that_differ() -> None:
    one, two = (wire.decode_object(CLAIMS, a_claim(each, "node-7")) for each in ("one", "two"))

    assert one.status is two.status
    assert one.spec.resources is two.spec.resources
    assert one.metadata.namespace is two.metadata.namespace
    first, second = one.annotations, two.annotations
    assert first != second
    assert all(a is b for a, b in zip(first, second, strict=True))
    assert first[SELECTED_NODE] is second[SELECTED_NODE]


def test_names_and_ids_push_nothing_out_of_what_is_shared() -> None:
    wire._text.cache_clear()
    wire.decode_object(CLAIMS, a_claim("one", "node-7"))
    before = wire._text.cache_info().misses

    wire.decode_object(CLAIMS, a_claim("one", "node-7").replace(b'"same"', b'"other"'))

    assert wire._text.cache_info().misses == before


def test_what_objects_of_several_kinds_name_is_one_text() -> None:
    names = {"name": "data", "namespace": "team", "uid": "uid-of-the-claim"}
    claim = wire.decode_object(
        CLAIMS, msgspec.json.encode({"metadata": names, "spec": {"volumeName": "pvc-of-it"}})
    )
    spec = {"claimRef": names, "csi": {"volumeHandle": "vol-1"}}
    volume = decoded(msgspec.json.encode({"metadata": {"name": "pvc-of-it"}, "spec": spec}))
    meta = {"uid": "uid-of-the-claim", "annotations": {VOLUME_ID: "vol-1"}}
    source = {"source": {"persistentVolumeName": "pvc-of-it"}}
    attachment = wire.decode_object(
        ATTACHMENTS, msgspec.json.encode({"metadata": meta, "spec": source})
    )

    assert volume.spec.claim_ref is not None
    assert volume.spec.csi is not None
    assert claim.uid is volume.spec.claim_ref.uid
    assert claim.spec.volume_name is volume.name is attachment.spec.source.persistent_volume_name
    assert volume.spec.csi.volume_handle is attachment.annotations[VOLUME_ID]
    assert attachment.uid is not claim.uid  # nobody names it: not in the table of texts


def test_claims_and_attachments_lose_nothing_but_their_labels() -> None:
    data = msgspec.json.encode({"metadata": {"name": "one", "labels": {"app": "shop"}}})

    resources: tuple[Resource[Any], ...] = (CLAIMS, ATTACHMENTS)
    for resource in resources:
        assert wire.decode_object(resource, data).name == "one"
        assert not hasattr(wire.decode_object(resource, data), "labels")
    assert wire.decode_object(LABELLED_CLAIMS, data).metadata.labels == {"app": "shop"}
    assert wire.decode_object(PERSISTENT_VOLUMES, data).labels == {"app": "shop"}


def a_version(data: bytes, version: str) -> Claim:
    meta = b'"metadata":{'
    return wire.decode_object(
        CLAIMS, data.replace(meta, meta + f'"resourceVersion":"{version}",'.encode())
    )


def test_a_cache_that_is_told_of_a_change_keeps_one_copy_of_what_stayed_the_same() -> None:
    store: Store[Claim] = Store({"uid": lambda claim: (claim.uid,)})
    old = a_version(a_claim("one", "node-7"), "5")
    store.apply(old)
    data = a_claim("one", "node-8").replace(b"Bound", b"Lost")

    store.apply(a_version(data, "6"))

    (new,) = store.values()
    assert new == a_version(data, "6")
    assert new.metadata.resource_version == "6"
    assert new.metadata.name is old.metadata.name
    assert new.metadata.uid is old.metadata.uid is next(iter(store._indexes["uid"]._keys))
    assert new.spec is old.spec
    assert old == a_version(a_claim("one", "node-7"), "5")


def test_what_is_equal_and_of_another_type_is_no_copy() -> None:
    class Before(msgspec.Struct, frozen=True):
        count: int = 1
        names: tuple[str, ...] | None = ("a",)

    class Now(msgspec.Struct, frozen=True):
        count: bool = True
        names: tuple[str, ...] | None = None
        more: str = "b"

    new = Now()
    wire.adopt(new, Before())

    assert (new.count, new.names, new.more) == (True, None, "b")
    assert new.count is True


def test_numbers_and_booleans_in_free_form_parts_are_not_mixed_up() -> None:
    class Spec(msgspec.Struct, frozen=True):
        free: dict[str, Any]
        same: dict[str, Any]

    class Thing(msgspec.Struct, frozen=True):
        spec: Spec

    old, new = (Thing(Spec({"a": [each]}, {"b": 1})) for each in (1, True))
    wire.adopt(new, old)

    assert new.spec.free["a"][0] is True
    assert new.spec.same is old.spec.same
