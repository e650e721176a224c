import msgspec

from provisioner.kube import wire
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES
from provisioner.model.claim import Claim
from provisioner.model.persistent_volume import PersistentVolume


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


def test_equal_texts_in_fields_of_other_types_stay_apart() -> None:
    data = b'{"spec":{"accessModes":["ReadWriteOnce"],"selector":{"a":["ReadWriteOnce"]}}}'

    assert wire.decode_object(CLAIMS, data) == msgspec.json.decode(data, type=Claim)
