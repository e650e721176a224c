import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.claim import (
    BETA_STORAGE_CLASS,
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    MIGRATED_TO,
    STORAGE_PROVISIONER,
    UNKNOWN_ZONE,
    Claim,
    claim_uid_of,
)
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.names import PINNED_ZONE
from provisioner.model.zone import Place
from tests.builders import DRIVER, UID, a_claim


def test_a_bare_claim_is_read_with_empty_values():
    bare = msgspec.json.decode(
        b'{"metadata": {"annotations": null, "labels": null, "finalizers": null}}', type=Claim
    )

    assert (bare.class_name, bare.selected_node, bare.pinned_zone) == ("", "", "")
    assert bare.requested_storage == ""
    assert bare.finalizers == []
    assert not bare.deleting
    assert not bare.is_block
    assert not bare.is_asked_of(DRIVER)


def test_what_the_api_server_may_send_as_null_is_read():
    claim = msgspec.json.decode(
        b'{"spec": {"accessModes": null, "resources": {"requests": null}, "storageClassName": null,'
        b' "selector": null, "dataSource": null}, "status": null}',
        type=Claim,
    )

    assert claim.requested_storage == ""
    assert claim.class_name == ""


def test_the_size_is_as_written():
    assert a_claim(size="1500M").requested_storage == "1500M"


@pytest.mark.parametrize(
    ("annotations", "name"),
    [({}, "fast"), ({BETA_STORAGE_CLASS: "old"}, "old"), ({BETA_STORAGE_CLASS: ""}, "fast")],
)
def test_the_old_annotation_wins_over_the_field_of_the_class(annotations, name):
    assert a_claim(annotations=annotations).class_name == name


@pytest.mark.parametrize(
    ("mode", "is_block"), [(None, False), ("Filesystem", False), ("Block", True)]
)
def test_without_a_mode_a_file_system_is_meant(mode, is_block):  # race 33
    assert a_claim(volume_mode=mode).is_block is is_block


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({STORAGE_PROVISIONER: DRIVER}, True),
        ({BETA_STORAGE_PROVISIONER: DRIVER}, True),
        ({STORAGE_PROVISIONER: "x", BETA_STORAGE_PROVISIONER: DRIVER}, False),
        ({STORAGE_PROVISIONER: IN_TREE_DRIVER, MIGRATED_TO: DRIVER}, True),
        ({BETA_STORAGE_PROVISIONER: IN_TREE_DRIVER, MIGRATED_TO: DRIVER}, True),
        ({STORAGE_PROVISIONER: IN_TREE_DRIVER}, False),
        ({STORAGE_PROVISIONER: IN_TREE_DRIVER, MIGRATED_TO: "x"}, False),
        ({STORAGE_PROVISIONER: "x", MIGRATED_TO: DRIVER}, False),
        ({}, False),
    ],
)
def test_who_is_asked_to_provision(annotations, asked):
    assert a_claim(annotations=annotations).is_asked_of(DRIVER) is asked


def test_the_selected_node_and_the_pinned_zone_are_annotations():
    claim = a_claim(node="node-1", annotations={PINNED_ZONE: f"us-east-1a/{UID}"})

    assert (claim.selected_node, claim.pinned_zone) == ("node-1", "us-east-1a")


def test_a_claim_is_known_by_namespace_and_name():
    assert a_claim("web").key == "shop/web"


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        (f"pvc-{UID}", UID),
        ("pvc-", None),
        ("", None),
        ("by-hand", None),
        ("my-pvc-1", None),
        ("pvc-pvc-1", "pvc-1"),
    ],
)
def test_the_name_of_a_persistent_volume_tells_its_claim(name, uid):
    assert claim_uid_of(name) == uid


@given(st.text(min_size=1))
def test_the_name_for_a_claim_tells_that_very_claim(uid):  # race 8
    assert claim_uid_of(a_claim(uid=uid).persistent_volume_name) == uid


@pytest.mark.parametrize("arn", ["", "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"])
def test_a_pin_tells_zone_and_outpost_to_its_own_claim_only(arn):
    claim = a_claim()
    pinned = a_claim(annotations={PINNED_ZONE: claim.pin("us-east-1a", arn)})
    of_another = a_claim(uid="another", annotations={PINNED_ZONE: claim.pin("us-east-1a", arn)})

    assert pinned.pinned_place == ("us-east-1a", arn)
    assert of_another.pinned_place == ("", "")


@pytest.mark.parametrize(
    ("modes", "many"),
    [([], False), (["ReadWriteOnce"], False), (["ReadWriteOnce", "ReadWriteMany"], True)],
)
def test_whether_a_claim_is_for_many_nodes(modes, many):
    assert a_claim(modes=modes).is_for_many_nodes is many


def a_pinned_claim(
    zone: str, *, uid: str = UID, pinned_uid: str = UID, bound: bool = True
) -> Claim:
    notes = {STORAGE_PROVISIONER: DRIVER, PINNED_ZONE: f"{zone}/{pinned_uid}"}
    notes |= {BIND_COMPLETED: "yes"} if bound else {}
    return a_claim(annotations=notes, uid=uid, node=f"node of {uid}", volume_name="pv")


def test_a_cache_keeps_of_a_bound_claim_where_its_volume_was_made_and_what_others_say_too():
    one, two = (
        a_pinned_claim("us-east-1a,arn", uid=uid, pinned_uid=uid).as_cached(DRIVER)
        for uid in ("u1", "u2")
    )

    assert (
        one.annotations == two.annotations == {STORAGE_PROVISIONER: DRIVER, BIND_COMPLETED: "yes"}
    )
    assert one.pinned_place == two.pinned_place == Place("us-east-1a", "arn")
    assert one.is_bound
    assert one.selected_node == ""
    assert one.as_cached(DRIVER) is one


@pytest.mark.parametrize(
    "claim",
    [
        a_pinned_claim("us-east-1a", bound=False),
        a_pinned_claim("us-east-1a", pinned_uid="of another claim"),
        a_pinned_claim(UNKNOWN_ZONE),
        a_claim(annotations={BIND_COMPLETED: "yes"}, node="node-a", volume_name="pv"),
    ],
    ids=["not bound", "copied", "in doubt", "another driver's"],
)
def test_a_cache_keeps_all_annotations_of_any_other_claim(claim: Claim):
    assert claim.as_cached(DRIVER) is claim


def test_a_cache_keeps_nothing_of_what_strangers_write_to_a_bound_claim():
    kept = {BIND_COMPLETED: "yes", f"{DRIVER}/iops": "4000", PINNED_ZONE: f"{UNKNOWN_ZONE}/{UID}"}
    strange = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/team": "a"}
    bound = a_claim(annotations=kept | strange, uid=UID, volume_name="pv").as_cached(DRIVER)

    assert bound.annotations == kept
    assert bound.is_in_doubt


def test_a_cache_keeps_what_strangers_write_to_a_claim_that_waits():
    waiting = a_claim(annotations={"example.com/team": "a"})

    assert waiting.as_cached(DRIVER) is waiting
