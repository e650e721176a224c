"""Volumes that the policies of manifests/iam do not take, told before the controller changes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from provisioner.inspect.doctor import probes
from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.inspect.doctor.evidence_rules import Try
from provisioner.inspect.doctor.right_rules import is_taken
from provisioner.inspect.reading.aws import Aws
from provisioner.model.names import CLAIM_NAME, MADE_BY_DRIVER, VOLUME_NAME
from tests.documents import page
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.account import Account, asked
from tests.inspect.doctor.evidence import CLOUD, CLUSTER, SOUND, checked
from tests.test_iam import OF_VOLUMES, POLICIES, allows, rendered, volume

BARE = {"Name": "by hand"}
OF_EARLY_DRIVER = {VOLUME_NAME: "pvc-1"}
YES, NO = "DryRunOperation", "UnauthorizedOperation"


def of(tags: Mapping[str, str], **changes: Any) -> Check:
    cloud = replace(CLOUD, volumes={e.VOLUME: e.volume(tags=tags)}, **changes)
    return checked(replace(SOUND, cloud=cloud))["volume-tags"]


@pytest.mark.parametrize(
    "tags",
    [
        BARE,
        OF_EARLY_DRIVER,
        {MADE_BY_DRIVER: "false"},
        {MADE_BY_DRIVER: "true"},
        {CLAIM_NAME: "data"},
        {"kubernetes.io/cluster/production": "owned"},
        {"kubernetes.io/cluster/production": "shared"},
    ],
)
def test_it_is_as_strict_as_the_policies(tags: dict[str, str]):
    policies = [rendered(each, cluster_id="production") for each in POLICIES]
    allowed = {
        any(allows(policy, action, volume(), ResourceTag=tags) for policy in policies)
        for action in OF_VOLUMES
    }

    assert allowed == {is_taken(tags, "production")}


@pytest.mark.parametrize("tags", [BARE, OF_EARLY_DRIVER])
def test_a_volume_that_the_policy_does_not_take_is_named_with_the_command(tags: dict[str, str]):
    """As somebody else, whose rights prove nothing, it is only a warning."""
    found = of(tags, is_controllers=False, untagged=Try("AttachVolume", e.VOLUME, YES, ""))

    assert found.verdict is Verdict.WARNING
    assert f"{e.VOLUME} of PersistentVolume pv-1" in found.proof
    command = f"create-tags --resources {e.VOLUME} --tags Key=ebs.csi.aws.com/cluster,Value=true"
    assert command in found.remedy


def test_it_fails_where_the_controllers_role_is_refused_such_a_volume():
    found = of(BARE, untagged=Try("AttachVolume", e.VOLUME, NO, "You are not authorized."))

    assert (found.verdict, "UnauthorizedOperation" in found.proof) == (Verdict.FAILED, True)


@pytest.mark.parametrize("code", [YES, "VolumeInUse"])
def test_a_role_with_a_policy_without_conditions_needs_no_tags(code: str):
    assert of(BARE, untagged=Try("AttachVolume", e.VOLUME, code, "")).verdict is Verdict.OK


def test_the_command_names_no_more_volumes_than_fit_and_says_so():
    ids = [f"vol-{number:017x}" for number in range(101)]
    owner = e.persistent_volume()
    cluster = replace(CLUSTER, volumes=[named(owner, each) for each in ids])
    volumes = {each: e.volume(volume_id=each, tags=BARE) for each in ids}
    seen = replace(SOUND, cluster=cluster, cloud=replace(CLOUD, volumes=volumes))
    remedy = checked(seen)["volume-tags"].remedy

    assert remedy.count("vol-") == 100
    assert "run this check again" in remedy


def named(owner: Any, volume_id: str) -> Any:
    source = {"driver": e.DRIVER, "volumeHandle": volume_id}
    return e.read(type(owner), {"metadata": {"name": volume_id}, "spec": {"csi": source}})


async def test_the_right_is_tried_on_a_volume_without_tags_too(monkeypatch: pytest.MonkeyPatch):
    account = Account()
    monkeypatch.setattr(Aws, "of_caller", lambda _: account)

    cloud, _, _, _ = await asked(CLUSTER, probes.Identity(e.DRIVER, role="arn:role"))

    assert account.tried.count(("AttachVolume", e.VOLUME)) == 1
    assert "iam-AttachVolume" in checked(replace(SOUND, cloud=cloud))
    assert checked(replace(SOUND, cloud=cloud))["volume-tags"].verdict is Verdict.FAILED


def test_who_migrates_is_told_before_the_stock_controller_goes():
    before, goes, _ = page("migrate").partition("**The stock controller goes**")
    command = of(BARE).remedy.replace(e.VOLUME, "VOLUME").partition(" (docs")[0]

    assert goes
    assert "`volume-tags`" in before
    assert command in before
