"""Volumes that the controller may not use, told before the controller changes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from provisioner.inspect.doctor import probes
from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.inspect.doctor.evidence_rules import Try
from provisioner.inspect.doctor.right_rules import by_tags, is_taken
from provisioner.inspect.reading.aws import Aws
from provisioner.model.names import CLAIM_NAME, MADE_BY_DRIVER, VOLUME_NAME
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.volume import Volume
from tests.documents import page
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.account import Account, asked
from tests.inspect.doctor.evidence import CLOUD, CLUSTER, SOUND, checked
from tests.test_iam import OF_VOLUMES, allows, rendered, volume

BARE = {"Name": "by hand"}
OF_EARLY_DRIVER = {VOLUME_NAME: "pvc-1"}
YES, NO = "DryRunOperation", "UnauthorizedOperation"


def of(tags: Mapping[str, str], code: str = "", **changes: Any) -> Check:
    return of_several({e.VOLUME: tags}, {e.VOLUME: code} if code else {}, **changes)


def of_several(
    volumes: Mapping[str, Mapping[str, str]], answers: Mapping[str, str], **changes: Any
) -> Check:
    """Of volumes with these tags, by id, of which these were tried as the controller."""
    owners = [named(each) for each in volumes]
    found = {each: e.volume(volume_id=each, tags=tags) for each, tags in volumes.items()}
    by_tags = [Try("AttachVolume", each, code, "as asked") for each, code in answers.items()]
    cloud = replace(CLOUD, volumes=found, by_tags=by_tags, **changes)
    seen = replace(SOUND, cluster=replace(CLUSTER, volumes=owners), cloud=cloud)
    return checked(seen)["volume-tags"]


def named(volume_id: str) -> PlacedVolume:
    source = {"driver": e.DRIVER, "volumeHandle": volume_id}
    return e.read(PlacedVolume, {"metadata": {"name": f"pv-{volume_id}"}, "spec": {"csi": source}})


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
def test_it_is_as_strict_as_the_policy_that_it_names(tags: dict[str, str]):
    policy = rendered("controller-policy.json")
    allowed = {allows(policy, action, volume(), ResourceTag=tags) for action in OF_VOLUMES}

    assert allowed == {is_taken(tags)}


@pytest.mark.parametrize("tags", [BARE, OF_EARLY_DRIVER])
def test_a_volume_that_the_policy_does_not_take_is_named_with_the_command(tags: dict[str, str]):
    """As somebody else, whose rights prove nothing, it is only a warning."""
    found = of(tags, YES, is_controllers=False)

    assert found.verdict is Verdict.WARNING
    assert f"{e.VOLUME} of PersistentVolume pv-{e.VOLUME}" in found.proof
    command = f"create-tags --resources {e.VOLUME} --tags Key=ebs.csi.aws.com/cluster,Value=true"
    assert command in found.command


def test_it_fails_where_the_controllers_role_is_refused_such_a_volume():
    found = of(BARE, NO)

    assert (found.verdict, "UnauthorizedOperation" in found.proof) == (Verdict.FAILED, True)


@pytest.mark.parametrize("code", [YES, "VolumeInUse"])
def test_a_role_with_a_policy_without_conditions_needs_no_tags(code: str):
    assert of(BARE, code).verdict is Verdict.OK


def test_the_clusters_tag_alone_is_enough_only_where_the_role_accepts_it():
    tags = {"kubernetes.io/cluster/production": "owned"}

    assert of(tags).verdict is Verdict.WARNING
    assert of(tags, NO).verdict is Verdict.FAILED
    assert of(tags, YES).verdict is Verdict.OK


def test_a_role_for_one_cluster_that_is_refused_the_drivers_tag_is_told_another_policy():
    """There, the tag that the volume has already would not help."""
    found = of({MADE_BY_DRIVER: "true"}, NO)

    assert found.verdict is Verdict.FAILED
    assert found.command == ""
    assert "manifests/iam/controller-policy.json" in found.remedy
    assert of({MADE_BY_DRIVER: "true"}, "NoAnswer").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ({"vol-a": YES}, Verdict.WARNING),
        ({"vol-a": YES, "vol-b": NO}, Verdict.FAILED),
        ({"vol-a": YES, "vol-b": YES}, Verdict.OK),
    ],
)
def test_a_volume_speaks_only_for_those_with_tags_of_the_same_keys(
    answers: dict[str, str], verdict: Verdict
):
    volumes = {"vol-a": {"KubernetesCluster": "k"}, "vol-a2": {"KubernetesCluster": "x"}}
    found = of_several({**volumes, "vol-b": BARE}, answers)

    assert found.verdict is verdict
    assert "vol-a" not in found.command


def test_one_volume_of_each_set_of_keys_is_tried_and_no_more_than_ten():
    volumes = [e.volume(volume_id=f"vol-{n}", tags={f"team-{n}": "a"}) for n in range(20)]
    taken = e.volume(volume_id="vol-taken")
    alike = e.volume(volume_id="vol-alike", tags={"team-1": "b"})
    elsewhere = e.volume(volume_id="vol-elsewhere", tags=BARE, zone="us-east-1b")

    def tried(*several: Volume) -> list[str]:
        return [volume_id for volume_id, _ in by_tags(several, {e.ZONE: e.INSTANCE})]

    assert tried(taken, *volumes[:2], alike, elsewhere) == ["vol-0", "vol-1", "vol-taken"]
    assert len(tried(*volumes)) == 10


@pytest.mark.parametrize("unseen", [{"volumes": {}}, {"instances": {}}])
def test_another_account_passes_no_gate(unseen: dict[str, Any]):
    found = checked(e.with_cloud(**unseen))["volume-tags"]

    assert (found.verdict, "another account" in found.proof) == (Verdict.UNKNOWN, True)


def test_without_persistent_volumes_of_the_driver_there_is_nothing_to_check():
    assert checked(e.with_cluster(volumes=[]))["volume-tags"].verdict is Verdict.SKIPPED


def test_the_command_names_no_more_volumes_than_fit_and_says_so():
    ids = [f"vol-{number:017x}" for number in range(101)]
    found = of_several(dict.fromkeys(ids, BARE), {})

    assert found.command.count("vol-") == 100
    assert "run this check again" in found.remedy


async def test_the_right_is_tried_on_a_volume_without_tags_too(monkeypatch: pytest.MonkeyPatch):
    account = Account()
    monkeypatch.setattr(Aws, "of_caller", lambda _: account)

    cloud, _, _, _ = await asked(CLUSTER, probes.Identity(e.DRIVER, role="arn:role"))

    assert account.tried.count(("AttachVolume", e.VOLUME)) == 1
    assert "iam-AttachVolume" in checked(replace(SOUND, cloud=cloud))
    assert checked(replace(SOUND, cloud=cloud))["volume-tags"].verdict is Verdict.FAILED


def test_who_migrates_is_told_before_the_stock_controller_goes():
    before, goes, _ = page("migrate").partition("**The stock controller goes**")
    command = of(BARE).command.replace(e.VOLUME, "VOLUME")

    assert goes
    assert "`volume-tags`" in before
    assert command in before
