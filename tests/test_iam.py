"""The AWS policies, rendered as docs say, against what the code calls and tags."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from provisioner import __file__ as package_file
from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.controller.modifying.class_rules import Change, following_of
from provisioner.ec2.ceilings import tried_tags
from provisioner.model import tags
from provisioner.model.names import (
    CLAIM_NAME,
    CLUSTER_NAME,
    IOPS_FOLLOW_GROWTH,
    IOPS_PER_GIB,
    MADE_BY_DRIVER,
    UNCLAIMED,
)
from tests.calls_in_code import ec2_actions
from tests.documents import page

PACKAGE = Path(package_file).parent
IAM = PACKAGE.parent / "manifests" / "iam"
POLICIES = ("controller-policy.json", "one-cluster-policy.json")
OF_ONE_CLUSTER = (
    "one-cluster-policy.json",
    "one-cluster-extra-tags-policy.json",
    "one-cluster-attribute-tags-policy.json",
)
PARTITIONS = ("aws", "aws-cn", "aws-us-gov")
OF_VOLUMES = (
    *("AttachVolume", "DetachVolume", "DeleteVolume"),
    *("ModifyVolume", "CopyVolumes", "CreateSnapshot"),
)
LONGEST = 6144  # characters of a managed policy, white space not counted (IAM quotas)

Policy = list[dict[str, Any]]


def rendered(name: str, partition: str = "aws", cluster_id: str = "production") -> Policy:
    text = (IAM / name).read_text()
    text = text.replace("@PARTITION@", partition).replace("@CLUSTER_ID@", cluster_id)
    statements: Policy = json.loads(text)["Statement"]
    return statements


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def allows(policy: Policy, action: str, arn: str = "*", **context: Any) -> bool:
    """IAM's verdict, as far as these policies need it; condition keys by their last part.

    The key of a tag in a condition's key is "not case-sensitive", values are, those of aws:TagKeys
    too (IAM user guide, "AWS global condition context keys", read 2026-11-22).
    """
    return any(
        f"ec2:{action}" in as_list(statement["Action"])
        and any(fnmatchcase(arn, pattern) for pattern in as_list(statement["Resource"]))
        and all(
            holds(operator, key, as_list(wanted), context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
        for statement in policy
    )


def holds(operator: str, key: str, wanted: list[str], context: dict[str, Any]) -> bool:
    place, _, name = key.partition(":")[2].partition("/")
    found = context.get(place)
    if isinstance(found, dict):  # tags: their keys are compared without regard to case
        found = next((v for k, v in found.items() if k.lower() == name.lower()), None)
    match operator:
        case "Null":
            return (found is None) == (wanted == ["true"])
        case "StringEquals":
            return found in wanted
        case "StringLike":
            return found is not None and any(fnmatchcase(found, each) for each in wanted)
        case "ForAllValues:StringNotLike":
            return not any(fnmatchcase(key, each) for key in found or () for each in wanted)
        case "ForAllValues:StringEquals":
            return set(found or ()) <= set(wanted)
    raise AssertionError(operator)


def our_tags(cluster_id: str) -> dict[str, str]:
    owner = tags.Owner("default", "data", "pvc-1", "Delete")
    return dict(tags.of_new_volume(owner, cluster_id=cluster_id, extra={}))


def volume(partition: str = "aws") -> str:
    return f"arn:{partition}:ec2:eu-central-1:111122223333:volume/vol-1"


def snapshot(partition: str = "aws") -> str:
    return f"arn:{partition}:ec2:eu-central-1::snapshot/snap-1"  # of no account


def instance(partition: str = "aws") -> str:
    return f"arn:{partition}:ec2:eu-central-1:111122223333:instance/i-1"


@pytest.mark.parametrize("name", POLICIES)
def test_the_actions_are_exactly_those_that_the_code_calls(name: str):
    actions = {action for each in rendered(name) for action in as_list(each["Action"])}

    # CreateTags is asked for by CreateVolume, which writes the tags.
    assert actions == {f"ec2:{action}" for action in ec2_actions(PACKAGE) | {"CreateTags"}}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_life_of_a_volume_is_allowed(name: str, partition: str):
    policy, made, made_id = rendered(name, partition), our_tags("production"), volume(partition)
    node = {"kubernetes.io/cluster/production": "shared"}

    assert allows(policy, "DescribeVolumes")
    assert allows(policy, "DescribeInstances")
    assert allows(policy, "DescribeInstanceTypes")
    assert allows(policy, "DescribeAvailabilityZones")
    assert allows(policy, "CreateVolume", made_id, RequestTag=made)
    assert allows(policy, "CreateTags", made_id, CreateAction="CreateVolume")
    assert allows(policy, "DeleteTags", made_id, TagKeys=[UNCLAIMED], ResourceTag=made)
    for action in ("AttachVolume", "DetachVolume"):
        assert allows(policy, action, made_id, ResourceTag=made)
        assert allows(policy, action, instance(partition), ResourceTag=node)
    assert allows(policy, "DeleteVolume", made_id, ResourceTag=made)


def snapshot_tags(cluster_id: str) -> dict[str, str]:
    return dict(tags.of_new_snapshot("snapshot-1", cluster_id=cluster_id, extra={}))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_growing_cloning_and_snapshots_are_allowed(name: str, partition: str):
    policy, made, one = rendered(name, partition), our_tags("production"), volume(partition)
    taken, tagged = snapshot(partition), snapshot_tags("production")

    for action in ("Snapshots", "VolumesModifications", "VolumeStatus", "LockedSnapshots"):
        assert allows(policy, f"Describe{action}")
    assert allows(policy, "DescribeFastSnapshotRestores")
    for action in ("ModifyVolume", "CopyVolumes", "CreateSnapshot"):
        assert allows(policy, action, one, ResourceTag=made)
    assert allows(policy, "CopyVolumes", one, RequestTag=made)
    assert allows(policy, "CreateTags", one, CreateAction="CopyVolumes")
    assert allows(policy, "CreateSnapshot", taken, RequestTag=tagged)
    assert allows(policy, "CreateTags", taken, CreateAction="CreateSnapshot")
    for action in ("CreateVolume", "DeleteSnapshot", "EnableFastSnapshotRestores", "LockSnapshot"):
        assert allows(policy, action, taken, ResourceTag=tagged)


@pytest.mark.parametrize("name", POLICIES)
def test_a_snapshot_without_tags_may_only_be_read(name: str):
    policy = rendered(name)

    assert not allows(policy, "CreateSnapshot", snapshot(), RequestTag={})
    assert not allows(policy, "CreateTags", snapshot())
    for action in ("DeleteSnapshot", "EnableFastSnapshotRestores", "LockSnapshot"):
        assert not allows(policy, action, snapshot(), ResourceTag={})
    restores_any = name == "controller-policy.json"
    assert allows(policy, "CreateVolume", snapshot(), ResourceTag={}) is restores_any


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("attribute-tags-policy.json", {CLAIM_NAME: "data"}),
        ("attribute-tags-policy.json", {MADE_BY_DRIVER: "true"}),
        ("one-cluster-attribute-tags-policy.json", tags.of_cluster("production")),
    ],
)
@pytest.mark.parametrize("action", ["CreateTags", "DeleteTags"])
def test_a_class_may_change_tags_but_none_of_ownership(
    name: str, owner: dict[str, str], action: str
):
    policy = rendered(name)

    assert allows(policy, action, volume(), ResourceTag=owner, TagKeys=["team"])
    assert not allows(policy, action, volume(), ResourceTag={}, TagKeys=["team"])
    assert not allows(policy, action, volume(), ResourceTag=owner)
    for key in our_tags("production").keys() - {"Name"}:
        assert not allows(policy, action, volume(), ResourceTag=owner, TagKeys=["team", key])


@pytest.mark.parametrize("name", POLICIES)
def test_what_may_be_created_may_be_tried(name: str):
    tried = dict(tried_tags("production", ()))

    assert allows(rendered(name), "CreateVolume", volume(), RequestTag=tried)


@pytest.mark.parametrize("name", POLICIES)
def test_a_volume_without_tags_is_left_alone(name: str):
    policy = rendered(name)

    assert not allows(policy, "CreateVolume", volume(), RequestTag={})
    assert not allows(policy, "CreateTags", volume())
    for action in OF_VOLUMES:
        assert not allows(policy, action, volume(), ResourceTag={})


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("keys", [None, [], [MADE_BY_DRIVER], [UNCLAIMED, CLUSTER_NAME]])
def test_no_tag_but_the_mark_can_be_removed(name: str, keys: list[str] | None):
    # Without any key, DeleteTags would remove all of them.
    context = {"TagKeys": keys or None, "ResourceTag": our_tags("production")}

    assert not allows(rendered(name), "DeleteTags", volume(), **context)


@pytest.mark.parametrize("name", ["extra-tags-policy.json", "one-cluster-extra-tags-policy.json"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_extra_tags_may_be_brought_to_volumes_of_ours_only(name: str, partition: str):
    policy, ours = rendered(name, partition), our_tags("production")
    arn, extra = volume(partition), ["team", "Name"]

    assert allows(policy, "CreateTags", arn, ResourceTag=ours, TagKeys=extra)
    assert not allows(policy, "CreateTags", arn, ResourceTag={}, TagKeys=extra)
    assert not allows(policy, "CreateTags", arn, ResourceTag=ours)
    assert not allows(policy, "DeleteTags", arn, ResourceTag=ours, TagKeys=extra)


@pytest.mark.parametrize("name", ["extra-tags-policy.json", "one-cluster-extra-tags-policy.json"])
@pytest.mark.parametrize("key", sorted(our_tags("production").keys() - {"Name"}))
def test_no_tag_of_ownership_may_be_added_afterwards(name: str, key: str):
    context = {"ResourceTag": our_tags("production"), "TagKeys": ["team", key]}

    assert not allows(rendered(name), "CreateTags", volume(), **context)


@pytest.mark.parametrize("of_class", ["", "one-cluster-"])
@pytest.mark.parametrize("owner", [our_tags("production"), {CLAIM_NAME: "data"}])
def test_each_tag_that_is_written_on_a_volume_that_is_there_may_be_written_and_removed(
    of_class: str, owner: dict[str, str]
):
    """A VolumeAttributesClass keeps in tags how IOPS follow the size."""
    if of_class and MADE_BY_DRIVER not in owner:
        return  # of no cluster
    policy = rendered(f"{of_class}attribute-tags-policy.json")
    asks = Attributes(
        tag_templates=(tags.parse("team=a"),), iops_per_gib=4, iops_follow_growth=True
    )
    change = Change("gold", asks)

    assert set(following_of(change)) == {IOPS_PER_GIB, IOPS_FOLLOW_GROWTH}
    for keys in (["team"], list(following_of(change)), ["team", *following_of(change)]):
        for action in ("CreateTags", "DeleteTags"):
            assert allows(policy, action, volume(), ResourceTag=owner, TagKeys=keys)


WAYS_TO_WRITE_A_KEY = (str, str.upper, str.title, str.capitalize, str.swapcase)


@pytest.mark.parametrize("write", WAYS_TO_WRITE_A_KEY)
@pytest.mark.parametrize("action", ["CreateTags", "DeleteTags"])
def test_one_clusters_role_cannot_make_another_clusters_volume_its_own(
    write: Callable[[str], str], action: str
):
    policy = [statement for name in OF_ONE_CLUSTER for statement in rendered(name)]
    foreign = our_tags("staging")

    for key in (*tags.of_cluster("production"), MADE_BY_DRIVER, "team"):
        keys = [write(key)]
        assert not allows(policy, action, volume(), ResourceTag=foreign, TagKeys=keys)


def test_the_files_for_all_clusters_would_let_it_and_are_not_for_such_a_role():
    """AWS takes ``Kubernetes.io/cluster/…`` for the tag of ownership; docs say what goes together."""
    foreign, stolen = our_tags("staging"), "Kubernetes.io/cluster/production"
    everywhere = rendered("attribute-tags-policy.json")

    assert allows(everywhere, "CreateTags", volume(), ResourceTag=foreign, TagKeys=[stolen])
    for action in OF_VOLUMES:
        policy = rendered("one-cluster-policy.json")
        assert allows(policy, action, volume(), ResourceTag=foreign | {stolen: "owned"})
    assert "Use the `one-cluster-` files together" in page("reference/iam")


def test_a_file_for_one_cluster_names_only_what_is_the_clusters():
    for name in OF_ONE_CLUSTER:
        for statement in rendered(name):
            if statement["Sid"] in {"Describe", "TagWhileCreating"}:
                continue
            assert "kubernetes.io/cluster/production" in json.dumps(statement["Condition"])


def test_one_clusters_policy_does_not_reach_another_cluster():
    policy, foreign = rendered("one-cluster-policy.json"), our_tags("staging")

    assert not allows(policy, "CreateVolume", volume(), RequestTag=foreign)
    for action in OF_VOLUMES:
        assert not allows(policy, action, volume(), ResourceTag=foreign)
    for action in ("CreateVolume", "DeleteSnapshot", "LockSnapshot"):
        assert not allows(policy, action, snapshot(), ResourceTag=snapshot_tags("staging"))
    for action in ("AttachVolume", "DetachVolume"):
        assert not allows(policy, action, instance(), ResourceTag=foreign)


def test_volumes_of_the_in_tree_plugin_can_be_used_and_deleted():
    policy = rendered("controller-policy.json")
    old = {CLAIM_NAME: "data"}

    for action in OF_VOLUMES:
        assert allows(policy, action, volume(), ResourceTag=old)


@pytest.mark.parametrize("name", POLICIES)
def test_it_fits_into_a_managed_policy(name: str):
    text = json.dumps(rendered(name, cluster_id="c" * 100), separators=(",", ":"))

    assert len(text) < LONGEST


def test_the_documented_commands_render_every_template():
    lines = re.findall(r"^sed .+$", page("reference/iam"), re.MULTILINE)
    shell = shutil.which("sh")

    assert shell is not None
    templates = {path.name for path in IAM.glob("*.json") if "@" in path.read_text()}
    assert {line.split()[-1] for line in lines} == templates
    for line in lines:
        given = line.replace("production", "eu/prod-1")  # an id may hold slashes
        done = subprocess.run(
            [shell, "-c", given], cwd=IAM, capture_output=True, text=True, check=True, timeout=10
        )
        assert "@" not in done.stdout
        assert json.loads(done.stdout)["Version"] == "2012-10-17"
