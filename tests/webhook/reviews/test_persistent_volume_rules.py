import pytest

from provisioner.controller.provisioning.persistent_volume_rules import zone_affinity
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.node_affinity import REGION_LABEL
from provisioner.model.zone import BETA_ZONE_LABEL, EBS_ZONE_LABEL, ZONE_LABEL
from tests.builders import a_volume
from tests.webhook.reviews.persistent_volumes import (
    CHINA,
    DISK,
    LOCAL,
    OUTPOST,
    VOLUME,
    WAVELENGTH,
    ZONE_ID,
    A,
    B,
    C,
    a_pv,
    affinity,
    applied,
    has,
    in_zone,
    on_node,
    term,
    terms_in,
)
from webhook.reviews.persistent_volume_rules import (
    Doubt,
    Found,
    Missing,
    Source,
    mutate,
    relabel,
    source_of,
    validate,
)

LABELS = {ZONE_LABEL: A, REGION_LABEL: "us-east-1"}


def mutated(persistent_volume, zone=A, labels=LABELS, *, strict=False):
    answer = mutate(persistent_volume, Found(zone), labels, strict=strict)
    return applied(persistent_volume, answer.patch)


def with_affinity(node_affinity):
    found = a_pv()
    found["spec"]["nodeAffinity"] = node_affinity
    return found


# Which volume it names.


@pytest.mark.parametrize(
    ("handle", "source"),
    [
        (VOLUME, Source(VOLUME, "")),
        (VOLUME.replace("-", ""), Source(VOLUME, "")),
        (f"aws:///{VOLUME}", Source(VOLUME, "")),
        (f"aws://{B}/{VOLUME}", Source(VOLUME, B)),
        (f"aws://{LOCAL}/{VOLUME}", Source(VOLUME, LOCAL)),
        ("my-disk", Source("my-disk", "")),
        (f"aws://{B}/my-disk", Source(f"aws://{B}/my-disk", "")),
    ],
)
@pytest.mark.parametrize("in_tree", [False, True])
def test_the_volume_is_named_under_our_driver_or_in_tree(handle, source, in_tree):
    found = source_of(a_pv(handle=handle, in_tree=in_tree), EBS_DRIVER)

    assert found == source
    assert source.well_formed == (source.volume_id == VOLUME)


@pytest.mark.parametrize(
    "persistent_volume",
    [
        pytest.param(a_pv(driver="efs.csi.aws.com"), id="another driver"),
        pytest.param({"spec": {"gcePersistentDisk": {"pdName": VOLUME}}}, id="another cloud"),
        pytest.param({"spec": {"csi": {"driver": EBS_DRIVER}}}, id="no handle"),
        pytest.param(a_pv(handle=""), id="an empty handle"),
        pytest.param({"spec": {"awsElasticBlockStore": None}}, id="null"),
        pytest.param({"spec": {"csi": {"driver": EBS_DRIVER, "volumeHandle": 7}}}, id="a number"),
        pytest.param(
            {"spec": {"csi": {"driver": "x"}, "awsElasticBlockStore": {"volumeID": VOLUME}}},
            id="another driver before an in-tree source",
        ),
        pytest.param({"spec": None}, id="no spec"),
        pytest.param({}, id="nothing"),
    ],
)
def test_what_is_neither_ours_nor_in_tree_is_none_of_our_business(persistent_volume):
    assert source_of(persistent_volume, EBS_DRIVER) is None


def test_what_names_no_volume_is_let_through_untouched():
    assert mutate({}, Found(A), LABELS, strict=True).patch == ()
    assert validate({}, Missing(), strict=True).allowed


def test_a_zone_is_never_empty():
    with pytest.raises(ValueError, match="is empty"):
        Found("")


# Labels.


def test_a_static_one_gains_the_labels_and_the_affinity_of_its_volume():
    answer = mutate(a_pv(), Found(A), LABELS, strict=False)
    after = applied(a_pv(), answer.patch)

    assert after["metadata"]["labels"] == LABELS
    assert after["spec"]["nodeAffinity"] == affinity(in_zone(A))
    assert (answer.allowed, answer.why, answer.audit) == (True, "Labelled", {"zone": A})


@pytest.mark.parametrize("metadata", [{}, {"labels": None}, {"labels": {}}, None, ...])
def test_labels_are_written_where_there_are_none(metadata):
    bare = a_pv() | {"metadata": metadata}
    if metadata is ...:
        del bare["metadata"]

    assert mutated(bare)["metadata"]["labels"] == LABELS


def test_other_labels_stay():
    after = mutated(a_pv(labels={"app": "shop", "a/b~c": "d"}))

    assert after["metadata"]["labels"] == LABELS | {"app": "shop", "a/b~c": "d"}


@pytest.mark.parametrize("zone", [LOCAL, CHINA])
def test_local_zones_and_other_partitions_are_zones_like_any(zone):
    after = mutated(a_pv(), zone, {ZONE_LABEL: zone})

    assert after["metadata"]["labels"] == {ZONE_LABEL: zone}
    assert terms_in(after) == [in_zone(zone)]


def test_a_label_that_nodes_lack_is_not_written():
    after = mutated(a_pv(), A, {})

    assert "labels" not in after["metadata"]
    assert terms_in(after) == [in_zone(A)]


def test_a_label_that_contradicts_is_overwritten_with_a_warning():
    wrong = a_pv(labels={ZONE_LABEL: B, BETA_ZONE_LABEL: C})

    answer = mutate(wrong, Found(A), LABELS, strict=False)

    after = applied(wrong, answer.patch)["metadata"]["labels"]
    assert after == {BETA_ZONE_LABEL: A} | LABELS
    assert answer.warnings == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but label {ZONE_LABEL} says {B}; the label was corrected',
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but label {BETA_ZONE_LABEL} says {C}; the label was corrected',
    )


def test_a_label_that_contradicts_is_removed_where_nodes_lack_the_right_one():
    wrong = a_pv(labels={REGION_LABEL: "us-west-2", "team": "shop"})

    answer = mutate(wrong, Found(A), {ZONE_LABEL: A}, strict=False)

    assert applied(wrong, answer.patch)["metadata"]["labels"] == {ZONE_LABEL: A, "team": "shop"}
    assert answer.warnings == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but label {REGION_LABEL} says us-west-2; the label was removed, as nodes there lack it',
    )


def test_strict_refuses_a_label_that_contradicts_and_does_not_hide_it():
    wrong = a_pv(labels={ZONE_LABEL: B, REGION_LABEL: "us-west-2"})

    after = mutated(wrong, strict=True)
    answer = validate(after, Found(A), strict=True)

    assert after["metadata"] == wrong["metadata"]
    assert (answer.allowed, answer.code, answer.why) == (False, 422, "LabelConflict")
    assert answer.message == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but label {ZONE_LABEL} says {B} and '
        f"label {REGION_LABEL} says us-west-2; correct the label or remove it"
    )


def test_an_empty_label_is_shown_as_empty():
    answer = validate(a_pv(labels={ZONE_LABEL: ""}), Found(A), strict=True)

    assert f'label {ZONE_LABEL} says "";' in answer.message


def test_a_label_that_still_contradicts_at_the_end_is_warned_about():
    answer = validate(a_pv(labels={ZONE_LABEL: B}), Found(A), strict=False)

    assert answer.allowed
    assert answer.warnings == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but label {ZONE_LABEL} says {B}; the label will be corrected',
    )


# Node affinity.


@pytest.mark.parametrize(
    "node_affinity",
    [
        None,
        {},
        {"required": None},
        {"required": {}},
        {"required": {"nodeSelectorTerms": None}},
        {"required": {"nodeSelectorTerms": []}},
        {"required": {"nodeSelectorTerms": [{}]}},
        {"required": {"nodeSelectorTerms": [{"matchExpressions": None, "matchFields": []}]}},
        {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}},
    ],
)
def test_an_affinity_that_says_nothing_becomes_the_zone(node_affinity):
    after = mutated(with_affinity(node_affinity))

    assert [each["matchExpressions"] for each in terms_in(after)] == [[has(ZONE_LABEL, A)]]
    assert validate(after, Found(A), strict=True).why == "Consistent"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(term(has(DISK, "ssd")), [has(DISK, "ssd"), has(ZONE_LABEL, A)], id="user's"),
        pytest.param(on_node("n1"), [has(ZONE_LABEL, A)], id="matchFields only"),
        pytest.param(
            on_node("n1") | {"matchExpressions": None}, [has(ZONE_LABEL, A)], id="beside null"
        ),
        pytest.param(
            term(has(OUTPOST, "op-1")), [has(OUTPOST, "op-1"), has(ZONE_LABEL, A)], id="Outpost"
        ),
        pytest.param(
            term(has(ZONE_ID, "use1-az1")),
            [has(ZONE_ID, "use1-az1"), has(ZONE_LABEL, A)],
            id="zone id",
        ),
        pytest.param(
            term(has(REGION_LABEL, "us-east-1")),
            [has(REGION_LABEL, "us-east-1"), has(ZONE_LABEL, A)],
            id="Region only",
        ),
        pytest.param(in_zone(A), [has(ZONE_LABEL, A)], id="the zone already"),
        pytest.param(
            in_zone(A, key=EBS_ZONE_LABEL), [has(EBS_ZONE_LABEL, A)], id="under the driver's key"
        ),
        pytest.param(
            in_zone(A, key=BETA_ZONE_LABEL), [has(BETA_ZONE_LABEL, A)], id="under the beta key"
        ),
        pytest.param(
            in_zone(A, B, key=EBS_ZONE_LABEL),
            [has(EBS_ZONE_LABEL, A, B), has(EBS_ZONE_LABEL, A)],
            id="one zone too many",
        ),
        pytest.param(
            term(has(BETA_ZONE_LABEL, B, operator="NotIn")),
            [has(BETA_ZONE_LABEL, B, operator="NotIn"), has(ZONE_LABEL, A)],
            id="all zones but one, under a key that no node may have",
        ),
        pytest.param(
            term(has(EBS_ZONE_LABEL, operator="DoesNotExist"), has(BETA_ZONE_LABEL, A, B)),
            [
                has(EBS_ZONE_LABEL, operator="DoesNotExist"),
                has(BETA_ZONE_LABEL, A, B),
                has(BETA_ZONE_LABEL, A),
            ],
            id="a key that must not be there beside one that must",
        ),
    ],
)
def test_a_term_is_narrowed_to_the_zone_under_the_key_it_asks_for(before, after):
    found = terms_in(mutated(a_pv(before)))

    assert found == [before | {"matchExpressions": after}]


APPENDED = (
    f'PersistentVolume "data": {{key: {ZONE_LABEL}, operator: In, values: [{A}]}} was appended to nodeAffinity; add it to the same terms in the manifest, or applying it again will be refused',
)


@pytest.mark.parametrize(
    ("terms", "warnings"),
    [
        pytest.param([], (), id="nothing that a manifest would take back"),
        pytest.param([in_zone(A)], (), id="nothing to narrow"),
        pytest.param([term(has(DISK, "ssd")), on_node("n1")], APPENDED, id="two terms alike"),
        pytest.param([{}], (), id="an empty term"),
        pytest.param(
            [on_node("n1"), term(has(BETA_ZONE_LABEL, A, B))],
            (APPENDED[0].replace(ZONE_LABEL, BETA_ZONE_LABEL), *APPENDED),
            id="each key",
        ),
    ],
)
def test_what_was_appended_is_told_for_the_manifest_must_say_it_too(terms, warnings):
    answer = mutate(a_pv(*terms), Found(A), LABELS, strict=False)

    assert tuple(each for each in answer.warnings if "appended" in each) == warnings


def test_every_term_is_narrowed_for_they_are_alternatives():
    after = terms_in(mutated(a_pv(term(has(DISK, "ssd")), in_zone(A), on_node("n1"))))

    assert after == [
        term(has(DISK, "ssd"), has(ZONE_LABEL, A)),
        in_zone(A),
        on_node("n1") | in_zone(A),
    ]


def test_an_empty_term_beside_another_lets_no_node_in_and_stays_so():
    assert terms_in(mutated(a_pv({}, term(has(DISK, "ssd"))))) == [
        {},
        term(has(DISK, "ssd"), has(ZONE_LABEL, A)),
    ]


def test_zones_that_an_alternative_allows_in_vain_are_closed_with_a_warning():
    wide = a_pv(in_zone(A), in_zone(B, C))

    answer = mutate(wide, Found(A), LABELS, strict=True)
    after = applied(wide, answer.patch)

    assert terms_in(after) == [in_zone(A), term(has(ZONE_LABEL, B, C), has(ZONE_LABEL, A))]
    assert answer.warnings == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but spec.nodeAffinity also allows {B} or {C}; it was narrowed to {A}',
        *APPENDED,
    )
    assert validate(after, Found(A), strict=True).why == "Consistent"
    assert validate(wide, Found(A), strict=True).warnings == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but spec.nodeAffinity also allows {B} or {C}, where no pod can mount it',
    )


MANY = [f"us-east-1{letter}" for letter in "bcdefg"]


@pytest.mark.parametrize(
    ("terms", "verdict"),
    [
        pytest.param([in_zone(B)], f"only allows {B}", id="another zone"),
        pytest.param([in_zone(B), in_zone(C)], f"only allows {B} or {C}", id="terms"),
        pytest.param([in_zone(WAVELENGTH)], f"only allows {WAVELENGTH}", id="a Wavelength Zone"),
        pytest.param([in_zone(B, key=EBS_ZONE_LABEL)], f"only allows {B}", id="driver's key"),
        pytest.param([in_zone(B, key=BETA_ZONE_LABEL)], f"only allows {B}", id="beta key"),
        pytest.param(
            [in_zone(*MANY)], f"only allows {B} or {C} or us-east-1d or 3 more", id="many"
        ),
        pytest.param(
            [term(has(DISK, "ssd"), has(ZONE_LABEL, B))], f"only allows {B}", id="and another key"
        ),
        pytest.param(
            [term(has(ZONE_LABEL, A), has(EBS_ZONE_LABEL, B))], f"only allows {B}", id="two keys"
        ),
        pytest.param(
            [term(has(REGION_LABEL, "us-west-2"))], "only allows Region us-west-2", id="Region"
        ),
        pytest.param(
            [term(has(ZONE_LABEL, A, operator="NotIn"))], "excludes that zone", id="all but this"
        ),
        pytest.param(
            [term(has(ZONE_LABEL, A, operator="NotIn"), has(REGION_LABEL, "us-east-1"))],
            "excludes that zone",
            id="all others of its Region",
        ),
        pytest.param([{}, in_zone(LOCAL)], f"only allows {LOCAL}", id="beside an empty term"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_an_affinity_that_excludes_the_zone_is_refused_with_both_named(terms, verdict, strict):
    wrong = a_pv(*terms)

    answer = validate(wrong, Found(A), strict=strict)

    assert (answer.allowed, answer.code, answer.why) == (False, 422, "ZoneConflict")
    assert answer.message == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but spec.nodeAffinity {verdict}, so '
        f"no pod could ever mount it; set the zone to {A} or leave nodeAffinity out"
    )
    assert mutate(wrong, Found(A), LABELS, strict=strict).patch == ()


def test_an_affinity_that_matches_no_node_is_refused_where_mutate_could_not_fill_it():
    answer = validate(a_pv({}), Found(A), strict=False)

    assert "spec.nodeAffinity matches no node, so no pod could ever mount it" in answer.message


@pytest.mark.parametrize(
    ("hint", "warnings"),
    [
        ("", ()),
        (A, ()),
        (
            B,
            (
                f'PersistentVolume "data": spec.awsElasticBlockStore.volumeID names zone {B}, but volume {VOLUME} is in {A}; write aws:///{VOLUME}',
            ),
        ),
    ],
)
def test_the_zone_in_an_in_tree_id_is_a_hint_that_nobody_believes(hint, warnings):
    found = a_pv(in_zone(A), handle=f"aws://{hint}/{VOLUME}", in_tree=True)

    assert validate(found, Found(A), strict=True).warnings == warnings


# Keys, words and Outposts.

BOTH_KEYS = (ZONE_LABEL, EBS_ZONE_LABEL)


def test_while_nobody_knows_the_key_of_the_next_node_each_has_a_term():
    def mutated_with_both(*terms):
        answer = mutate(a_pv(*terms), Found(A), {}, strict=False, keys=BOTH_KEYS)
        return terms_in(applied(a_pv(*terms), answer.patch))

    assert mutated_with_both() == [in_zone(A), in_zone(A, key=EBS_ZONE_LABEL)]
    assert mutated_with_both(term(has(DISK, "ssd")), in_zone(A, B, key=EBS_ZONE_LABEL)) == [
        term(has(DISK, "ssd"), has(ZONE_LABEL, A)),
        term(has(DISK, "ssd"), has(EBS_ZONE_LABEL, A)),
        term(has(EBS_ZONE_LABEL, A, B), has(EBS_ZONE_LABEL, A)),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(has(ZONE_LABEL, "rack-7"), [], id="a rack under the only key"),
        pytest.param(has(ZONE_LABEL, "rack-7", A, B), [], id="a rack among zones"),
        pytest.param(has(BETA_ZONE_LABEL, "rack-7"), [has(ZONE_LABEL, A)], id="an old key"),
        pytest.param(has(REGION_LABEL, "home"), [has(ZONE_LABEL, A)], id="a Region's word"),
    ],
)
def test_a_word_of_the_clusters_own_is_allowed_and_never_contradicted(before, after):
    pv = a_pv(term(before))

    assert terms_in(mutated(pv)) == [term(before, *after)]
    assert validate(mutated(pv), Found(A), strict=True).why == "Consistent"


ARN = "arn:aws:outposts:us-east-1:123456789012:outpost/op-0a1"
ON_OUTPOST = [
    has(ZONE_LABEL, A),
    has("topology.ebs.csi.aws.com/region", "us-east-1"),
    has("topology.ebs.csi.aws.com/partition", "aws"),
    has("topology.ebs.csi.aws.com/account-id", "123456789012"),
    has(OUTPOST, "op-0a1"),
]


@pytest.mark.parametrize("terms", [[], [{}]])
def test_a_volume_on_an_outpost_gets_the_affinity_that_the_provisioner_writes(terms):
    answer = mutate(a_pv(*terms), Found(A, ARN), LABELS, strict=False)
    after = applied(a_pv(*terms), answer.patch)

    assert terms_in(after) == [term(*ON_OUTPOST)]
    assert after["spec"]["nodeAffinity"] == zone_affinity(a_volume(zone=A, outpost_arn=ARN))
    assert validate(after, Found(A, ARN), strict=True).why == "Consistent"


def test_terms_that_let_a_pod_off_the_volumes_outpost_are_left_alone_and_warned_of():
    pv = a_pv(term(has(DISK, "ssd")), labels=LABELS)

    assert mutate(pv, Found(A, ARN), LABELS, strict=False).patch == ()
    assert validate(pv, Found(A, ARN), strict=True).warnings == (
        f'PersistentVolume "data": volume {VOLUME} is on Outpost op-0a1, but nodeAffinity does not require {OUTPOST} op-0a1; leave nodeAffinity out',
    )


def test_terms_that_ask_for_the_volumes_outpost_are_narrowed_like_any():
    pv = a_pv(term(has(OUTPOST, "op-0a1")))
    answer = mutate(pv, Found(A, ARN), {}, strict=False)

    assert terms_in(applied(pv, answer.patch)) == [term(has(OUTPOST, "op-0a1"), has(ZONE_LABEL, A))]


# A change of one that is there.


def test_of_one_that_is_changed_only_the_labels_are_corrected():
    wrong = a_pv(in_zone(B), labels={ZONE_LABEL: B})

    answer = relabel(wrong, Found(A), LABELS)

    after = applied(wrong, answer.patch)
    assert after["metadata"]["labels"] == LABELS
    assert after["spec"] == wrong["spec"]
    assert answer.warnings == (
        f'PersistentVolume "data": volume {VOLUME} is in {A}, but label {ZONE_LABEL} says {B}; the label was corrected',
    )


def test_a_change_is_never_refused_for_a_doubt():
    assert relabel(a_pv(), Doubt("why"), {}).allowed
    assert relabel(a_pv(), Missing(), LABELS).patch == ()


# Volumes that EC2 does not show.


@pytest.mark.parametrize("strict", [False, True])
def test_a_volume_that_does_not_exist_is_refused(strict):
    answer = validate(a_pv(), Missing(), strict=strict)

    assert (answer.allowed, answer.code, answer.why) == (False, 422, "VolumeMissing")
    assert answer.message == (
        f'PersistentVolume "data": EC2 has no volume {VOLUME} in this account and Region; correct '
        "spec.csi.volumeHandle, or create the volume first"
    )
    untouched = mutate(a_pv(), Missing(), {}, strict=strict)
    assert (untouched.allowed, untouched.patch) == (True, ())


@pytest.mark.parametrize("truth", [Found(A), Missing(), Doubt("no credentials")])
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_no_volume_id_is_refused_whatever_ec2_says(truth, strict):
    typo = a_pv(handle="volume-1", in_tree=True)

    answer = validate(typo, truth, strict=strict)

    assert (answer.allowed, answer.code, answer.why) == (False, 422, "NotAVolumeId")
    assert "'volume-1' in spec.awsElasticBlockStore.volumeID is not the id of" in answer.message
    assert mutate(typo, truth, LABELS, strict=strict).patch == ()


@pytest.mark.parametrize("decide", [lambda pv, t, **s: mutate(pv, t, {}, **s), validate])
def test_in_doubt_it_is_let_through_with_a_warning(decide):
    answer = decide(a_pv(in_zone(B)), Doubt("EC2 throttled the request"), strict=False)

    assert (answer.allowed, answer.why, answer.patch) == (True, "InDoubt", ())
    assert answer.warnings == (
        f'PersistentVolume "data": the zone of volume {VOLUME} cannot be determined now, so it was not checked; missing labels and node affinity are added later: EC2 throttled the request',
    )


@pytest.mark.parametrize("decide", [lambda pv, t, **s: mutate(pv, t, {}, **s), validate])
def test_in_doubt_strict_asks_to_try_again(decide):
    answer = decide(a_pv(in_zone(A)), Doubt("EC2 throttled the request"), strict=True)

    assert (answer.allowed, answer.code, answer.retry_after_s) == (False, 503, 1)
    assert answer.message == (
        f'PersistentVolume "data": the zone of volume {VOLUME} cannot be determined now: EC2 throttled the request'
    )


def test_one_whose_name_is_made_up_later_is_called_by_what_is_known_of_it():
    named = a_pv() | {"metadata": {"generateName": "data-"}}

    assert 'PersistentVolume "data-…": EC2' in validate(named, Missing(), strict=True).message
