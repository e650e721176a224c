import re

import pytest

from provisioner.model import tags

OWNER = tags.Owner(
    claim_namespace="shop",
    claim_name="data",
    persistent_volume_name="pvc-1",
    reclaim_policy="Retain",
)


def test_without_a_cluster_id_a_volume_carries_the_drivers_tags_alone():
    assert dict(tags.of_new_volume(OWNER, cluster_id="", extra={})) == {
        "CSIVolumeName": "pvc-1",
        "ebs.csi.aws.com/cluster": "true",
        "kubernetes.io/created-for/pvc/name": "data",
        "kubernetes.io/created-for/pvc/namespace": "shop",
        "kubernetes.io/created-for/pv/name": "pvc-1",
    }


def test_with_a_cluster_id_a_volume_is_owned_and_marked():
    written = dict(tags.of_new_volume(OWNER, cluster_id="prod", extra={"team": "a"}))

    assert written["kubernetes.io/cluster/prod"] == "owned"
    assert written["ebs.csi.aws.com/cluster-name"] == "prod"
    assert written["KubernetesCluster"] == "prod"
    assert written["Name"] == "prod-dynamic-pvc-1"
    assert written["ebs-provisioner.io/unclaimed"] == "Retain"
    assert written["team"] == "a"


def test_extra_tags_win_over_the_name():
    assert dict(tags.of_new_volume(OWNER, cluster_id="c", extra={"Name": "x"}))["Name"] == "x"


def test_the_same_volume_has_the_same_request():
    one = tags.of_new_volume(OWNER, cluster_id="c", extra={"b": "1", "a": "2"})
    two = tags.of_new_volume(OWNER, cluster_id="c", extra={"a": "2", "b": "1"})

    assert one == two


def test_reads_extra_tags():
    read = tags.parse_extra("team=a, cost=b=c,empty=")

    assert tags.rendered(read, OWNER) == {"team": "a", "cost": "b=c", "empty": ""}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("team", "not of the form key=value"),
        ("=x", "not of the form key=value"),
        ("aws:x=1", "reserved"),
        ("CSIVolumeName=1", "reserved"),
        ("kubernetes.io/cluster/x=owned", "reserved"),
        ("ebs-provisioner.io/unclaimed=Delete", "reserved"),
        ("AWS:x=1", "reserved"),
        ("ebs.csi.aws.com/cluster=false", "reserved"),
        ("CSIVolumeSnapshotName=1", "reserved"),
        ("é" * 129 + "=v", "too long"),
        ("a=\x00", "character '\\\\x00', which cannot be sent"),
        ("a\n=1", "the key of tag"),
        ("a=\ud800", "which cannot be sent"),
        ("a={{ .PVCNam }}", "there is no .PVCNam"),
        ("k" * 129 + "=v", "too long"),
        ("k=" + "v" * 257, "too long"),
        ("a=1,a=2", "given twice"),
        (",".join(f"k{i}=v" for i in range(40)), "EC2 allows 50"),
    ],
)
def test_refuses_extra_tags_that_ec2_or_we_could_not_keep(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        tags.parse_extra(text)


def test_tags_are_of_all_scripts_and_as_long_as_ec2_takes_them():
    read = tags.parse_extra(f"チーム=日本語 ✓,{'k' * 128}={'é' * 256}")

    assert tags.rendered(read, OWNER) == {"チーム": "日本語 ✓", "k" * 128: "é" * 256}


def test_values_name_the_claim():
    read = tags.parse_extra("claim={{ .PVCNamespace }}/{{ .PVCName }},pv={{ .PVName }}")

    assert tags.rendered(read, OWNER) == {"claim": "shop/data", "pv": "pvc-1"}


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ('a={{ .PVCName | field "-" 1 }}', "tag 'a': function field: 'data' has no part number 1"),
        ("a={{ .PVCName }}" + "y" * 253, "of tag 'a' is too long: EC2 allows 128"),
        ("a=\n{{ .PVCName }}", "the value of tag 'a' has the character '\\n'"),
    ],
)
def test_a_value_that_ec2_would_not_take_is_refused_with_its_tag(template, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        tags.rendered(tags.parse_extra(template), OWNER)


def test_of_two_tags_with_one_key_the_later_one_counts():
    twice = (tags.parse("a=1"), tags.parse("a=2"))

    assert tags.rendered(twice, OWNER) == {"a": "2"}


def test_iops_that_grow_are_tagged_as_the_stock_driver_reads_them():
    written = dict(
        tags.of_new_volume(
            OWNER, cluster_id="", extra={}, iops_per_gib=50, iops_follow_growth=False
        )
    )

    assert written["ebs.csi.aws.com/IOPSPerGb"] == "50"
    assert written["ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify"] == "false"


def test_more_tags_than_ec2_allows_are_refused_with_their_number():
    extra = {f"k{i}": "v" for i in range(46)}

    assert len(tags.of_new_volume(OWNER, cluster_id="", extra=dict(list(extra.items())[:45]))) == 50
    with pytest.raises(ValueError, match="would have 51 tags, 46 of them of the class"):
        tags.of_new_volume(OWNER, cluster_id="", extra=extra)


def test_as_many_extra_tags_as_are_taken_always_fit():
    most = {f"k{i}": "v" for i in range(37)}
    text = ",".join(f"{key}=v" for key in most)

    assert len(tags.parse_extra(text)) == 37
    written = tags.of_new_volume(
        OWNER, cluster_id="c", extra=most, iops_per_gib=1, iops_follow_growth=True
    )
    assert len(written) <= 50
