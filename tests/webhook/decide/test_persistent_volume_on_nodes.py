"""Persistent volumes where nodes have words of their own for racks, Regions and even zones."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.model.node_affinity import BETA_REGION_LABEL, REGION_KEYS, REGION_LABEL
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_LABEL
from tests.webhook.decide.persistent_volumes import (
    VOLUME,
    A,
    B,
    a_pv,
    has,
    in_zone,
    persistent_volumes,
    term,
    terms_in,
)
from tests.webhook.decide.scheduler import matches, terms_before, volume_zone
from webhook.decide.labels import writable, zone_key
from webhook.decide.nodes import running_driver_in
from webhook.decide.persistent_volume import Found, labels_of, mutate, validate
from webhook.decide.repair import lacking
from webhook.model.patch import applied
from webhook.model.views import NodeView

RACK, ACME, HERE = "rack-1", "acme-east-1", "us-east-1"
ON_RACK = {ZONE_LABEL: RACK, EBS_ZONE_LABEL: A}
OLD_PLUGIN = {EBS_ZONE_LABEL: A}
OF_CLOUD = {ZONE_LABEL: A, EBS_ZONE_LABEL: A, REGION_LABEL: HERE}
OF_ACME = OF_CLOUD | {REGION_LABEL: ACME}


def views(*nodes, has_driver=True):
    return [
        NodeView(tuple(sorted(each.items())), None, schedulable=True, has_driver=has_driver)
        for each in nodes
    ]


def mutation(persistent_volume, nodes, *, strict=False):
    """The answer, and the object after it."""
    known = running_driver_in(A, views(*nodes))
    labels, key = writable(A, known), zone_key(A, known)
    answer = mutate(persistent_volume, Found(A), labels, strict=strict, key=key, nodes=known)
    return answer, applied(persistent_volume, answer.patch)


def verdict(persistent_volume, nodes, *, strict=False):
    known = running_driver_in(A, views(*nodes))
    return validate(persistent_volume, Found(A), strict=strict, nodes=known)


def repair(persistent_volume, nodes):
    known = running_driver_in(A, views(*nodes))
    labels, key = writable(A, known), zone_key(A, known)
    return lacking(persistent_volume, VOLUME, A, labels, key, nodes=known)


# Labels.


@pytest.mark.parametrize("word", [ACME, "on-prem-1", "us-east-1-prod", "us-west-2"])
@pytest.mark.parametrize("key", REGION_KEYS)
def test_a_region_that_nodes_there_carry_stays(key, word):
    pv, nodes = a_pv(in_zone(A), labels={key: word}), [OF_CLOUD | {key: word}]

    _, after = mutation(pv, nodes)

    assert labels_of(after)[key] == word
    assert key not in repair(pv, nodes).labels
    assert verdict(pv, nodes, strict=True).why == "Consistent"


@pytest.mark.parametrize("typo", ["us-east1", "US-EAST-1", ACME, "us-west-2", HERE + "-prod"])
@pytest.mark.parametrize("key", REGION_KEYS)
def test_a_region_that_no_node_there_carries_is_overwritten_with_a_warning(key, typo):
    pv = a_pv(in_zone(A), labels={key: typo})

    answer, after = mutation(pv, [OF_CLOUD])

    assert labels_of(after) == {ZONE_LABEL: A, REGION_LABEL: HERE} | {key: HERE}
    assert answer.warnings == (
        f'persistentvolume "data": volume {VOLUME} is in {A}, but label {key} says {typo}; the label was corrected',
    )
    assert repair(pv, [OF_CLOUD]).labels[key] == HERE
    assert verdict(pv, [OF_CLOUD]).warnings[0].endswith("the label will be corrected")


def test_a_region_is_removed_where_nodes_have_another_word_even_a_true_one():
    pv = a_pv(in_zone(A), labels={REGION_LABEL: HERE})

    _, after = mutation(pv, [OF_ACME])

    assert labels_of(after) == {ZONE_LABEL: A}
    assert repair(pv, [OF_ACME]).labels == {ZONE_LABEL: A, REGION_LABEL: None}


def test_a_true_region_stays_while_some_node_has_yet_to_be_labelled():
    pv = a_pv(in_zone(A), labels={REGION_LABEL: HERE})

    assert labels_of(mutation(pv, [OF_ACME, OLD_PLUGIN])[1]) == {REGION_LABEL: HERE}


def test_nothing_is_refused_for_what_nodes_say_strict_or_not():
    typo = a_pv(in_zone(A), labels={REGION_LABEL: "us-east1"})
    elsewhere = a_pv(in_zone(A), labels={REGION_LABEL: "us-west-2"})

    assert verdict(typo, [OF_CLOUD], strict=True).allowed
    assert verdict(elsewhere, [], strict=True).why == "LabelConflict"
    assert verdict(elsewhere, [OF_CLOUD | {REGION_LABEL: "us-west-2"}], strict=True).allowed


def test_an_old_label_is_never_corrected_to_what_nodes_do_not_have():
    nodes = [OF_CLOUD | {BETA_ZONE_LABEL: RACK}]

    assert labels_of(mutation(a_pv(labels={BETA_ZONE_LABEL: B}), nodes)[1]) == {
        ZONE_LABEL: A,
        REGION_LABEL: HERE,
    }
    assert labels_of(mutation(a_pv(labels={BETA_ZONE_LABEL: RACK}), nodes)[1])[BETA_ZONE_LABEL] == (
        RACK
    )


def test_another_zone_is_wrong_even_if_a_node_is_labelled_so_by_mistake():
    nodes = [{ZONE_LABEL: B, EBS_ZONE_LABEL: A}]

    assert ZONE_LABEL not in labels_of(mutation(a_pv(labels={ZONE_LABEL: B}), nodes)[1])


# Node affinity.


def test_the_affinity_that_is_written_matches_nodes_that_call_their_rack_a_zone():
    _, after = mutation(a_pv(), [ON_RACK])

    assert terms_in(after) == [in_zone(A, key=EBS_ZONE_LABEL)]
    assert repair(a_pv(), [ON_RACK]).node_affinity == after["spec"]["nodeAffinity"]


@pytest.mark.parametrize(
    ("requirement", "node"),
    [
        pytest.param(has(ZONE_LABEL, RACK), ON_RACK, id="a rack"),
        pytest.param(has(BETA_ZONE_LABEL, RACK), OF_CLOUD | {BETA_ZONE_LABEL: RACK}, id="beta key"),
        pytest.param(has(ZONE_LABEL, A, operator="NotIn"), OLD_PLUGIN, id="NotIn"),
        pytest.param(has(ZONE_LABEL, operator="DoesNotExist"), OLD_PLUGIN, id="DoesNotExist"),
        pytest.param(has(REGION_LABEL, "us-west-2"), OF_CLOUD | {REGION_LABEL: "us-west-2"}),
    ],
)
def test_what_matches_a_node_there_is_completed_and_not_refused(requirement, node):
    pv = a_pv(term(requirement))

    answer, after = mutation(pv, [node, OF_CLOUD])

    assert answer.allowed
    assert matches(terms_in(after), node)
    checked = verdict(after, [node, OF_CLOUD], strict=True)
    assert (checked.allowed, checked.warnings) == (True, ())
    assert not repair(after, [node]).warning
    assert not verdict(pv, []).allowed
    assert verdict(pv, [node]).allowed


def test_nodes_without_the_driver_cannot_mount_it_and_do_not_count():
    known = running_driver_in(A, views(ON_RACK, has_driver=False))

    assert known == frozenset()


def test_an_affinity_that_no_node_there_can_match_is_warned_about():
    typo = a_pv(term(has(ZONE_LABEL, A), has(REGION_LABEL, "us-east1")))
    why = f"asks for {REGION_LABEL} us-east1, and nodes there have {HERE}"

    answer = verdict(typo, [OF_CLOUD], strict=True)

    assert answer.allowed
    assert answer.warnings == (
        f'persistentvolume "data": volume {VOLUME} is in {A}, but spec.nodeAffinity {why}; it can never be changed',
    )
    assert (
        f"but spec.nodeAffinity {why}, so no pod can mount it" in repair(typo, [OF_CLOUD]).warning
    )
    for fine in ([], [OF_CLOUD, OF_CLOUD | {REGION_LABEL: "us-east1"}], [OLD_PLUGIN]):
        assert verdict(typo, fine).warnings == ()
        assert repair(typo, fine).warning == ""


# What holds of any, on any nodes of one zone.


@st.composite
def nodes_in_a(draw):
    """Nodes of the zone by one key at least: each as a cluster of its owner's may label them."""
    optional = {
        ZONE_LABEL: (A, A, RACK, B, None),
        EBS_ZONE_LABEL: (A, None),
        BETA_ZONE_LABEL: (A, RACK, None),
        REGION_LABEL: (HERE, HERE, ACME, "home", "7", None),
        BETA_REGION_LABEL: (HERE, ACME, None),
    }
    drawn = {key: draw(st.sampled_from(values)) for key, values in optional.items()}
    if A not in (drawn[ZONE_LABEL], drawn[EBS_ZONE_LABEL]):
        drawn[EBS_ZONE_LABEL] = A
    return {key: value for key, value in drawn.items() if value} | {"name": "node-1"}


some_nodes = st.lists(nodes_in_a(), max_size=3)


@given(persistent_volumes(), some_nodes)
@example(a_pv(term(has(ZONE_LABEL, A, operator="NotIn"))), [OLD_PLUGIN])
@example(a_pv(term(has(REGION_LABEL, "home"))), [OF_CLOUD, OLD_PLUGIN | {REGION_LABEL: "home"}])
def test_while_a_node_there_matches_it_is_not_refused_and_goes_on_to_match(pv, nodes):
    before = terms_before(pv)
    answer, after = mutation(pv, nodes)

    if not before or any(matches(before, node) for node in nodes):
        assert answer.why != "ZoneConflict"
        assert verdict(after, nodes).why != "ZoneConflict"
        assert not nodes or any(matches(terms_in(after), node) for node in nodes)
        assert not nodes or "no pod can mount" not in repair(after, nodes).warning


@given(persistent_volumes(), some_nodes, st.booleans())
def test_a_second_time_there_is_nothing_left_to_do(pv, nodes, strict):
    answer, after = mutation(pv, nodes, strict=strict)

    again, _ = mutation(after, nodes, strict=strict)

    assert again.patch == ()
    assert again.why == ("ZoneConflict" if answer.why == "ZoneConflict" else "NothingToDo")


@given(persistent_volumes(), some_nodes)
def test_what_was_patched_passes_and_what_was_not_is_refused(pv, nodes):
    answer, after = mutation(pv, nodes)

    assert verdict(after, nodes).allowed == (answer.why != "ZoneConflict")
    assert verdict(after, nodes, strict=True).allowed == (answer.why != "ZoneConflict")


@given(persistent_volumes(), some_nodes)
def test_labels_keep_no_node_away_that_they_did_not_and_regions_not_all_of_them(pv, nodes):
    written = labels_of(pv)

    answer, after = mutation(pv, nodes)

    for node in nodes:
        assert volume_zone(labels_of(after), node) or not volume_zone(written, node)
    if answer.why == "ZoneConflict":
        return
    for key in {*REGION_KEYS} & labels_of(after).keys():
        left = {key: labels_of(after)[key]}
        if nodes and all(key in node for node in nodes):
            assert any(volume_zone(left, node) for node in nodes)
