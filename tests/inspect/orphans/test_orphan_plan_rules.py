"""Which volumes are orphans of a cluster, and which of a plan may be deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.inspect.orphans.orphan_plan_rules import (
    Delete,
    Gone,
    Kept,
    Plan,
    Surroundings,
    claim_of,
    ids_in,
    plan,
    read_plan,
    sign_of_another,
    signs_of_life,
    summary,
    text_of,
    verdict,
    why_kept,
    wrong_place,
)
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume, VolumeState
from tests.builders import INSTANCE, UID, VOLUME, ZONE

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DEAD = "old"
ACCOUNT = "111122223333"
HERE = "0b1c"
TAGS = {
    f"kubernetes.io/cluster/{DEAD}": "owned",
    "ebs.csi.aws.com/cluster-name": DEAD,
    "CSIVolumeName": f"pvc-{UID}",
    "kubernetes.io/created-for/pvc/namespace": "shop",
    "kubernetes.io/created-for/pvc/name": "data",
}
AROUND = Surroundings(DEAD, {}, frozenset(), {}, frozenset(), NOW)
ORPHAN = Volume(
    VOLUME,
    VolumeState.AVAILABLE,
    ZONE,
    8,
    created_at=NOW - timedelta(days=2),
    tags=TAGS,
)
ATTACHED = (InstanceAttachment(INSTANCE, "/dev/sdf", AttachmentState.ATTACHED),)


def planned() -> Plan:
    return plan([ORPHAN], AROUND, region="us-east-1", account=ACCOUNT, cluster_uid=HERE)


def test_a_detached_volume_of_a_claim_that_nothing_names_is_an_orphan():
    assert why_kept(ORPHAN, AROUND) == ""
    assert claim_of(TAGS) == "shop/data"


@pytest.mark.parametrize(
    ("volume", "around", "why"),
    [
        (replace(ORPHAN, tags={}), {}, "not tagged as owned"),
        (replace(ORPHAN, tags=TAGS | {f"kubernetes.io/cluster/{DEAD}": "shared"}), {}, "owned"),
        (replace(ORPHAN, tags=TAGS | {"kubernetes.io/cluster/b": "shared"}), {}, "cluster/b"),
        (replace(ORPHAN, tags=TAGS | {"ebs.csi.aws.com/cluster-name": "b"}), {}, "says b"),
        (replace(ORPHAN, tags={f"kubernetes.io/cluster/{DEAD}": "owned"}), {}, "for a claim"),
        (ORPHAN, {"named": {VOLUME: "pv-1"}}, "PersistentVolume pv-1"),
        (ORPHAN, {"claim_uids": {UID}}, "the claim"),
        (replace(ORPHAN, attachments=ATTACHED), {}, INSTANCE),
        (replace(ORPHAN, state=VolumeState.IN_USE), {}, "in-use"),
        (replace(ORPHAN, state=VolumeState.ERROR), {}, "error"),
        (replace(ORPHAN, created_at=NOW - timedelta(minutes=59)), {}, "younger than 1:00:00"),
        (replace(ORPHAN, created_at=None), {}, "younger than 1:00:00"),
    ],
)
def test_each_doubt_keeps_a_volume(volume: Volume, around: dict[str, Any], why: str):
    assert why in why_kept(volume, replace(AROUND, **around))


def test_what_the_plan_names_unchanged_is_deleted():
    assert verdict(planned().volumes[0], ORPHAN, AROUND) == Delete()


@pytest.mark.parametrize(
    "volume", [None, replace(ORPHAN, state=VolumeState.DELETING, tags={}, created_at=None)]
)
def test_what_is_gone_is_not_deleted_again(volume: Volume | None):
    assert verdict(planned().volumes[0], volume, AROUND) == Gone()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"created_at": NOW - timedelta(days=1)}, "created at"),
        ({"tags": TAGS | {"keep": "yes"}}, "keep"),
        ({"tags": {k: v for k, v in TAGS.items() if k != "CSIVolumeName"}}, "CSIVolumeName"),
        ({"size_gib": 9}, "modified"),
        ({"volume_type": "io2"}, "modified"),
        ({"attachments": ATTACHED}, "attached"),
    ],
)
def test_what_changed_since_the_plan_is_kept(changes: dict[str, Any], why: str):
    found = verdict(planned().volumes[0], replace(ORPHAN, **changes), AROUND)

    assert isinstance(found, Kept)
    assert why in found.why


STATES = st.sampled_from(list(VolumeState))
FOUND_TAGS = st.dictionaries(
    st.sampled_from([*TAGS, "kubernetes.io/cluster/b", "team"]),
    st.sampled_from(["owned", "shared", DEAD, f"pvc-{UID}", "shop", "data"]),
)
VOLUMES = st.builds(
    Volume,
    volume_id=st.just(VOLUME),
    state=STATES,
    zone=st.just(ZONE),
    size_gib=st.sampled_from([8, 9]),
    created_at=st.sampled_from([None, ORPHAN.created_at, NOW]),
    tags=st.one_of(st.just(TAGS), FOUND_TAGS),
    attachments=st.sampled_from([(), ATTACHED]),
)
AROUNDS = st.builds(
    replace,
    st.just(AROUND),
    named=st.sampled_from([{}, {VOLUME: "pv-1"}]),
    claim_uids=st.sampled_from([frozenset(), frozenset({UID})]),
)


@given(VOLUMES, AROUNDS)
def test_nothing_is_deleted_but_the_same_detached_unnamed_volume(
    volume: Volume, around: Surroundings
):
    found = verdict(planned().volumes[0], volume, around)

    same = (volume.tags, volume.size_gib, volume.created_at) == (TAGS, 8, ORPHAN.created_at)
    free = volume.state is VolumeState.AVAILABLE and not volume.attachments
    assert (found == Delete()) == (same and free and not around.named and not around.claim_uids)


@given(st.lists(VOLUMES), AROUNDS)
def test_a_plan_names_only_orphans_and_is_read_as_it_was_written(
    volumes: list[Volume], around: Surroundings
):
    each = {f"vol-{number:017x}": one for number, one in enumerate(volumes)}
    made = plan(
        [replace(one, volume_id=name) for name, one in each.items()],
        around,
        region="eu-west-1",
        account=ACCOUNT,
        cluster_uid=HERE,
    )

    assert read_plan(text_of(made)) == made
    assert {one.volume_id for one in made.volumes} == {
        name for name, one in each.items() if not why_kept(replace(one, volume_id=name), around)
    }


@pytest.mark.parametrize(
    ("volumes", "around", "sign"),
    [
        ([], {"own_ids": {DEAD: "Deployment kube-system/x runs with it"}}, "is this cluster"),
        ([], {"unread": ["kube-system/x"]}, "Deployment kube-system/x runs with cannot be read"),
        ([], {"instances": {INSTANCE}}, INSTANCE),
        ([replace(ORPHAN, attachments=ATTACHED)], {}, VOLUME),
        ([ORPHAN], {"named": {VOLUME: "pv-1"}}, "pv-1"),
    ],
)
def test_a_cluster_that_may_be_alive_is_told_by_its_signs(
    volumes: list[Volume], around: dict[str, Any], sign: str
):
    assert sign in " ".join(signs_of_life(volumes, replace(AROUND, **around)))


def test_a_dead_cluster_shows_no_sign_of_life():
    assert signs_of_life([ORPHAN], replace(AROUND, own_ids={"new": "…"})) == []


@pytest.mark.parametrize(
    ("volumes", "around", "sign"),
    [
        ([ORPHAN], {"instances": {"i-0b", "i-0a"}}, "instance i-0a has its tag and is no node"),
        ([ORPHAN, replace(ORPHAN, attachments=ATTACHED)], {}, f"attached to {INSTANCE}, which is"),
        ([replace(ORPHAN, attachments=ATTACHED)], {"named": {VOLUME: "pv-1"}}, ""),
        ([ORPHAN], {}, ""),
    ],
)
def test_an_id_that_only_tags_tell_is_anothers_if_its_instances_are_no_nodes_here(
    volumes: list[Volume], around: dict[str, Any], sign: str
):
    found = sign_of_another(volumes, replace(AROUND, **around), {"i-0here"})

    assert sign in found
    assert bool(found) == bool(sign)


@pytest.mark.parametrize(
    ("volumes", "instances"),
    [
        ([], {INSTANCE, "i-0joins"}),
        ([replace(ORPHAN, attachments=ATTACHED)], set()),  # a node's root volume
    ],
)
def test_an_id_whose_instances_are_nodes_here_is_this_clusters(
    volumes: list[Volume], instances: set[str]
):
    around = replace(AROUND, instances=instances)

    assert sign_of_another(volumes, around, {INSTANCE}) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no plan"),
        (b"\xff", "no plan"),
        (b"[]", "no plan"),
        (b"[" * 100_000, "no plan"),
        (text_of(msgspec.structs.replace(planned(), version=1)), "version"),
        (b'{"kind": "OrphanPlan", "version": 1, "cluster_id": "old"}', "again with --plan"),
        (text_of(msgspec.structs.replace(planned(), kind="List")), "version"),
        (text_of(msgspec.structs.replace(planned(), cluster_id="")), "no cluster"),
        (text_of(msgspec.structs.replace(planned(), asked_cluster_uid="")), "no cluster"),
        (text_of(msgspec.structs.replace(planned(), account="")), "no account"),
        (text_of(msgspec.structs.replace(planned(), cluster_id="a*")), "characters"),
        (text_of(msgspec.structs.replace(planned(), volumes=planned().volumes * 2)), "twice"),
        (text_of(planned()).replace(VOLUME.encode(), b"--all"), "no volume id"),
        (text_of(msgspec.structs.replace(planned(), min_age_s=-1.0)), "min_age_s"),
        (text_of(planned()).replace(b'"tags"', b'"labels"'), "no plan"),
    ],
)
def test_what_is_no_plan_is_refused_in_a_sentence(text: bytes, why: str):
    with pytest.raises(ValueError, match=why):
        read_plan(text)


@pytest.mark.parametrize(
    ("account", "region", "cluster_uid", "why"),
    [
        (ACCOUNT, "us-east-1", HERE, ""),
        ("444455556666", "us-east-1", HERE, f"account {ACCOUNT}, but these credentials are of 444"),
        (ACCOUNT, "us-west-2", HERE, "region us-east-1, but us-west-2"),
        (ACCOUNT, "", HERE, "none is asked: give --region us-east-1"),
        (ACCOUNT, "us-east-1", "9f9f", "beside another cluster"),
    ],
)
def test_a_plan_is_for_one_account_one_region_and_beside_one_cluster(
    account: str, region: str, cluster_uid: str, why: str
):
    found = wrong_place(planned(), account, region, cluster_uid)

    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    "changes",
    [
        {"tags": TAGS | {"team": "shop"}},
        {"size_gib": 9},
        {"created_at": NOW},
        {"volume_type": "io2"},
    ],
)
def test_an_entry_that_somebody_has_edited_deletes_nothing(changes: dict[str, Any]):
    edited = msgspec.structs.replace(planned().volumes[0], **changes)

    assert isinstance(verdict(edited, ORPHAN, AROUND), Kept)


def test_an_edited_cluster_id_deletes_nothing():
    assert isinstance(verdict(planned().volumes[0], ORPHAN, replace(AROUND, cluster_id="b")), Kept)


def test_the_summary_counts_volumes_and_their_size():
    assert summary(planned().volumes) == "1 volume, 8 GiB"
    assert summary(()) == "0 volumes, 0 GiB"


@pytest.mark.parametrize(
    ("tags", "ids"),
    [
        ({"kubernetes.io/cluster/a": "owned", "ebs.csi.aws.com/cluster-name": "a"}, {"a"}),
        ({"ebs.csi.aws.com/cluster-name": "a"}, {"a"}),
        ({"KubernetesCluster": "a"}, {"a"}),
        ({"kubernetes.io/cluster/a": "shared", "team": "a", "KubernetesCluster": ""}, set()),
    ],
)
def test_any_tag_that_a_driver_writes_tells_the_cluster_of_a_volume(
    tags: dict[str, str], ids: set[str]
):
    assert ids_in(tags) == ids
