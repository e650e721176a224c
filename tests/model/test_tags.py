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
        ("k" * 129 + "=v", "too long"),
        ("k=" + "v" * 257, "too long"),
        ("a=1,a=2", "given twice"),
        (",".join(f"k{i}=v" for i in range(40)), "EC2 allows 50"),
    ],
)
def test_refuses_extra_tags_that_ec2_or_we_could_not_keep(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        tags.parse_extra(text)
