import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.node_affinity import REGION_LABEL
from provisioner.model.zone import ZONE_LABEL
from tests.webhook.reviews.persistent_volumes import (
    DISK,
    VOLUME,
    A,
    B,
    a_pv,
    affinity,
    applied,
    has,
    in_zone,
    labels_to_write,
    persistent_volumes,
    term,
    zones,
)
from webhook.repairs.rules import Repair, lacking
from webhook.reviews.persistent_volume_rules import Found, mutate
from webhook.reviews.persistent_volume_zone_rules import affinity_of

LABELS = {ZONE_LABEL: A, REGION_LABEL: "us-east-1"}
ARN = "arn:aws:outposts:us-east-1:123456789012:outpost/op-0a1"
FIX = (
    ", and this API server does not allow changing it (feature gate MutablePVNodeAffinity): set "
    "persistentVolumeReclaimPolicy to Retain, delete the claim and this PersistentVolume, and "
    f"create both again with zone {A} or without nodeAffinity"
)


def lacking_in_a(persistent_volume, labels=LABELS):
    return lacking(persistent_volume, VOLUME, Found(A), labels)


def merged(document, patch):
    """RFC 7386, as far as objects and values go."""
    changed = document | {
        key: merged(document.get(key) or {}, value) if isinstance(value, dict) else value
        for key, value in patch.items()
    }
    return {key: value for key, value in changed.items() if key not in patch or value is not None}


def test_one_that_missed_the_webhook_gets_labels_and_affinity():
    repair = lacking_in_a(a_pv())

    assert repair.merge_patch() == {
        "metadata": {"resourceVersion": "7", "labels": LABELS},
        "spec": {"nodeAffinity": affinity(in_zone(A))},
    }
    assert repair.warning == ""


def test_one_with_affinity_gets_labels_only():
    assert lacking_in_a(a_pv(in_zone(A))).merge_patch() == {
        "metadata": {"resourceVersion": "7", "labels": LABELS}
    }


def test_one_with_labels_gets_affinity_only():
    assert lacking_in_a(a_pv(labels=LABELS)).merge_patch() == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"nodeAffinity": affinity(in_zone(A))},
    }


def test_a_wrong_label_is_corrected():
    wrong = a_pv(in_zone(A), labels={ZONE_LABEL: B, REGION_LABEL: "us-east-1"})

    assert lacking_in_a(wrong).labels == {ZONE_LABEL: A}


def test_a_wrong_label_is_removed_where_nodes_lack_the_right_one():
    wrong = a_pv(in_zone(A), labels={ZONE_LABEL: A, REGION_LABEL: "us-west-2"})

    repair = lacking_in_a(wrong, {ZONE_LABEL: A})

    assert (repair.merge_patch() or {})["metadata"]["labels"] == {REGION_LABEL: None}
    assert merged(wrong, repair.merge_patch())["metadata"]["labels"] == {ZONE_LABEL: A}


@pytest.mark.parametrize(
    "persistent_volume",
    [
        pytest.param(a_pv(in_zone(A), labels=LABELS), id="complete"),
        pytest.param(
            a_pv(term(has(DISK, "ssd")), labels=LABELS), id="open, and too late to narrow"
        ),
        pytest.param(
            a_pv(labels=LABELS) | {"spec": {"nodeAffinity": {"required": {}}}},
            id="an affinity that is not nil and so cannot be set",
        ),
        pytest.param(
            a_pv() | {"metadata": {"name": "data", "deletionTimestamp": "2026-11-21T10:00:00Z"}},
            id="being deleted",
        ),
    ],
)
def test_one_that_lacks_nothing_is_left_alone(persistent_volume):
    repair = lacking_in_a(persistent_volume)

    assert not repair
    assert repair.merge_patch() is None


@pytest.mark.parametrize(
    ("terms", "wrong"),
    [
        pytest.param([in_zone(B)], f"only allows {B}, so no pod can mount it", id="wrong"),
        pytest.param([{}], "matches no node, so no pod can mount it", id="an empty term"),
        pytest.param(
            [in_zone(A), in_zone(B)], f"also allows {B}, where no pod can mount it", id="too wide"
        ),
    ],
)
def test_an_affinity_that_can_no_longer_be_corrected_is_told_about(terms, wrong):
    repair = lacking_in_a(a_pv(*terms, labels=LABELS))

    assert repair
    assert repair.warning == f"volume {VOLUME} is in {A}, but spec.nodeAffinity {wrong}{FIX}"
    assert repair.merge_patch() is None


def test_labels_are_written_beside_a_wrong_affinity_for_backups_read_them():
    repair = lacking_in_a(a_pv(in_zone(B)))

    assert repair.labels == LABELS
    assert repair.warning


@given(st.data(), zones, persistent_volumes())
def test_a_repaired_one_lacks_nothing_more(data, zone, persistent_volume):
    labels = data.draw(labels_to_write(zone))

    repair = lacking(persistent_volume, VOLUME, Found(zone), labels)
    after = merged(persistent_volume, repair.merge_patch() or {})

    assert lacking(after, VOLUME, Found(zone), labels) == Repair(
        correction=repair.correction,
        warning=repair.warning,
        resource_version=(after.get("metadata") or {}).get("resourceVersion") or "",
    )


@given(st.data(), zones, persistent_volumes())
def test_what_was_created_through_the_webhook_needs_no_repair(data, zone, persistent_volume):
    labels = data.draw(labels_to_write(zone))
    answer = mutate(persistent_volume, Found(zone), labels, strict=False)

    if answer.why in {"Labelled", "NothingToDo"}:
        assert not lacking(applied(persistent_volume, answer.patch), VOLUME, Found(zone), labels)


@pytest.mark.parametrize(
    ("terms", "place", "right"),
    [
        pytest.param([in_zone(B)], Found(A), [in_zone(A)], id="wrong"),
        pytest.param([{}], Found(A), [in_zone(A)], id="an empty term"),
        pytest.param(
            [term(has(DISK, "ssd"), has(ZONE_LABEL, A, B))],
            Found(A),
            [term(has(DISK, "ssd"), has(ZONE_LABEL, A, B), has(ZONE_LABEL, A))],
            id="too wide",
        ),
        pytest.param(
            [in_zone(A)],
            Found(A, ARN),
            affinity_of(A, outpost_arn=ARN)["required"]["nodeSelectorTerms"],
            id="off its Outpost",
        ),
    ],
)
def test_where_the_api_server_lets_it_change_a_wrong_affinity_is_made_right(terms, place, right):
    repair = lacking(a_pv(*terms, labels=LABELS), VOLUME, place, LABELS)
    after = merged(a_pv(*terms, labels=LABELS), repair.merge_patch(correct=True))

    assert after["spec"]["nodeAffinity"] == affinity(*right)
    assert not lacking(after, VOLUME, place, LABELS)


@given(st.data(), zones, persistent_volumes())
def test_a_corrected_one_lacks_nothing_more(data, zone, persistent_volume):
    labels = data.draw(labels_to_write(zone))
    repair = lacking(persistent_volume, VOLUME, Found(zone), labels)

    after = merged(persistent_volume, repair.merge_patch(correct=True) or {})

    assert not lacking(after, VOLUME, Found(zone), labels)


@given(zones, persistent_volumes())
def test_an_event_about_it_fits_into_one(zone, persistent_volume):
    assert len(lacking(persistent_volume, VOLUME, Found(zone), {}).warning) <= 1024
