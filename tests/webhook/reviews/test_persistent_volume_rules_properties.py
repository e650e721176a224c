"""What holds of every persistent volume, whatever its owner has written into it."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from provisioner.model.node_affinity import (
    REGION_KEYS,
    REGION_LABEL,
    labels_in,
)
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_KEYS, ZONE_LABEL
from tests.webhook.reviews.persistent_volumes import (
    DISK,
    LABEL_KEYS,
    OUTPOST,
    VOLUME,
    ZONE_ID,
    A,
    B,
    C,
    a_pv,
    applied,
    has,
    has_words,
    in_zone,
    labels_to_write,
    persistent_volumes,
    term,
    terms_in,
    zones,
)
from tests.webhook.reviews.scheduler import expressions, matches, terms_before, volume_zone
from webhook.model.cluster_view import NodeView
from webhook.model.review import WARNING_MOST_CHARACTERS
from webhook.reviews.persistent_volume_rules import (
    Doubt,
    Found,
    Missing,
    labels_of,
    mutate,
    validate,
)
from webhook.reviews.persistent_volume_zone_rules import contradicting, says_nothing, writable

everything = (st.data(), zones, persistent_volumes())


def mutation(data, zone, persistent_volume, *, strict=False):
    """The answer, and the object after it."""
    labels = data.draw(labels_to_write(zone), label="labels")
    answer = mutate(persistent_volume, Found(zone), labels, strict=strict)
    return labels, answer, applied(persistent_volume, answer.patch)


@given(*everything, st.booleans())
def test_a_second_time_there_is_nothing_left_to_do(data, zone, persistent_volume, strict):
    labels, answer, after = mutation(data, zone, persistent_volume, strict=strict)

    again = mutate(after, Found(zone), labels, strict=strict)

    assert again.patch == ()
    assert again.why == ("ZoneConflict" if answer.why == "ZoneConflict" else "NothingToDo")


@given(*everything)
def test_what_was_patched_passes_and_what_was_not_is_refused(data, zone, persistent_volume):
    _, answer, after = mutation(data, zone, persistent_volume)

    verdict = validate(after, Found(zone), strict=False)

    assert verdict.allowed == (answer.why in {"Labelled", "NothingToDo"})
    assert verdict.allowed or answer.patch == ()


@given(*everything)
def test_what_was_patched_passes_even_the_strict(data, zone, persistent_volume):
    _, answer, after = mutation(data, zone, persistent_volume)

    verdict = validate(after, Found(zone), strict=True)

    assert verdict.allowed == (answer.why != "ZoneConflict")


@given(*everything)
def test_what_users_ask_of_nodes_stays(data, zone, persistent_volume):
    before = terms_before(persistent_volume)

    _, _answer, after = mutation(data, zone, persistent_volume)

    if says_nothing(before):
        assert len(terms_in(after)) == 1
        return
    assert len(terms_in(after)) == len(before)
    for old, new in zip(before, terms_in(after), strict=True):
        assert expressions(new)[: len(expressions(old))] == expressions(old)
        assert new | {"matchExpressions": 0} == old | {"matchExpressions": 0}


@given(*everything)
def test_nothing_but_labels_and_affinity_is_changed(data, zone, persistent_volume):
    _, _, after = mutation(data, zone, persistent_volume)

    for document in (persistent_volume, after):
        document["spec"].pop("nodeAffinity", None)
        document["metadata"] = (document.get("metadata") or {}) | {"labels": None}
    assert after == persistent_volume


@given(*everything)
def test_no_term_of_ours_asks_for_a_second_zone_key(data, zone, persistent_volume):
    assume(not has_words(persistent_volume))
    before = terms_before(persistent_volume)

    _, _, after = mutation(data, zone, persistent_volume)

    added = [
        (
            {each["key"] for each in expressions(old) if each["operator"] == "In"},
            expressions(new)[len(expressions(old)) :],
        )
        for old, new in zip(before or [{}], terms_before(after), strict=False)
    ]
    for used, ours in added:
        assert len(ours) <= 1
        assert all(each["key"] in (used & set(ZONE_KEYS) or {ZONE_LABEL}) for each in ours)


@given(*everything, st.booleans())
def test_labels_are_true_and_never_empty(data, zone, persistent_volume, strict):
    written = labels_of(persistent_volume)

    labels, _, after = mutation(data, zone, persistent_volume, strict=strict)

    changed = {k: v for k, v in labels_of(after).items() if written.get(k) != v}
    removed = written.keys() - labels_of(after).keys()
    assert removed <= contradicting(written, zone).keys() - labels.keys()
    assert changed.keys() <= set(LABEL_KEYS)
    assert changed.items() <= labels_in(zone).items()
    assert all(changed.values())
    assert not (strict and (removed or changed.keys() & written.keys()))
    assert changed.keys() - written.keys() <= labels.keys()


@given(zones, persistent_volumes(), st.data())
def test_labels_of_ours_keep_no_node_away(zone, persistent_volume, data):
    there = data.draw(st.lists(st.sets(st.sampled_from(sorted(labels_in(zone)))), max_size=3))
    nodes = [{key: labels_in(zone)[key] for key in keys} for keys in there if keys & {*ZONE_KEYS}]
    views = [NodeView(tuple(n.items()), zone, schedulable=True, has_driver=True) for n in nodes]
    written = labels_of(persistent_volume)

    answer = mutate(persistent_volume, Found(zone), writable(zone, views), strict=False)

    after = labels_of(applied(persistent_volume, answer.patch))
    ours = {key: value for key, value in after.items() if written.get(key) != value}
    assert all(volume_zone(ours, node) for node in nodes)


@st.composite
def nodes(draw):
    others = {ZONE_ID: ("use1-az1", "x"), OUTPOST: ("op-1",), DISK: ("ssd", "7", "8")}
    drawn = {key: draw(st.none() | st.sampled_from(values)) for key, values in others.items()}
    zone = draw(zones)
    # Only the zone's own key is on every node of a zone.
    there = {k: v for k, v in labels_in(zone).items() if k == ZONE_LABEL or draw(st.booleans())}
    by_hand = draw(st.none() | st.sampled_from(("ssd", "7")))  # as a cluster calls its own Region
    there |= dict.fromkeys(there.keys() & set(REGION_KEYS), by_hand) if by_hand else {}
    known = there | {"name": draw(st.sampled_from(("node-1", "node-2")))}
    return known | {key: value for key, value in drawn.items() if value is not None}


@given(zones, persistent_volumes(), nodes())
@example(A, a_pv(term(has(BETA_ZONE_LABEL, B, operator="NotIn"))), {ZONE_LABEL: A})
@example(A, a_pv(term(has(REGION_LABEL, "home"))), {ZONE_LABEL: A, REGION_LABEL: "home"})
@example(A, a_pv(term(has(EBS_ZONE_LABEL, operator="DoesNotExist"))), {ZONE_LABEL: A})
def test_just_those_nodes_match_that_did_and_are_in_the_zone(zone, persistent_volume, node):
    before = [each for each in terms_before(persistent_volume) if any(each.values())]

    assume(not has_words(persistent_volume))
    answer = mutate(persistent_volume, Found(zone), {}, strict=False)
    after = applied(persistent_volume, answer.patch)

    in_the_zone = node[ZONE_LABEL] == zone
    did = matches(before, node) or not before
    if answer.why == "ZoneConflict":
        assert not (in_the_zone and did)
    else:
        assert matches(terms_in(after), node) == (in_the_zone and did)


# Sentences.


@given(*everything, st.text())
def test_warnings_are_never_cut_off_by_kubernetes(data, zone, persistent_volume, why):
    _, answer, _ = mutation(data, zone, persistent_volume)

    said = [
        *answer.warnings,
        *validate(persistent_volume, Found(zone), strict=False).warnings,
        *validate(persistent_volume, Doubt(why), strict=False).warnings,
    ]
    assert all(len(warning) <= WARNING_MOST_CHARACTERS for warning in said)


LONG = "d" * 253
SET = "__".join(f"us-east-1{each}" for each in "bcdef")
WIDE = in_zone(A, B, C, "us-east-1d", "us-east-1e")


@pytest.mark.parametrize(
    "answer",
    [
        mutate(a_pv(name=LONG, labels={ZONE_LABEL: SET}), Found(A), {}, strict=False),
        mutate(a_pv(WIDE, name=LONG), Found(A), {}, strict=False),
        mutate(a_pv(in_zone(A, B, key=BETA_ZONE_LABEL), name=LONG), Found(A), {}, strict=False),
        validate(a_pv(WIDE, name=LONG, labels={ZONE_LABEL: SET}), Found(A), strict=False),
        validate(
            a_pv(name=LONG, handle=f"aws://{B}/{VOLUME}", in_tree=True), Found(A), strict=True
        ),
        validate(a_pv(name=LONG), Doubt("EC2 is throttling the account's calls"), strict=False),
    ],
)
def test_a_long_name_leaves_room_for_the_whole_sentence(answer):
    assert answer.warnings
    assert all(
        len(warning) <= WARNING_MOST_CHARACTERS and not warning.endswith("…")
        for warning in answer.warnings
    )


@given(persistent_volumes(), st.sampled_from((Missing(), Doubt("why"))), st.booleans())
def test_without_the_zone_nothing_is_patched(persistent_volume, truth, strict):
    assert mutate(persistent_volume, truth, {}, strict=strict).patch == ()


def test_the_oracle_tells_nodes_apart():
    assert matches([{"matchExpressions": [has(DISK, "7", operator="Gt")]}], {DISK: "8"})
    assert not matches([{}], {DISK: "8"})
