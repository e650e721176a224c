"""The account's default KMS key: who uses it, whether it can be used, and what is not known."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from provisioner.inspect.doctor import key_rules
from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.inspect.doctor.evidence_rules import DefaultKey, KeyTry, Try
from provisioner.inspect.doctor.key_rules import ClassKey
from provisioner.inspect.doctor.right_rules import Samples
from provisioner.inspect.doctor.tries import default_key_of
from provisioner.inspect.reading.aws import Aws
from provisioner.model.errors import Ec2Error, Reason
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import checked, with_cloud

KEY = "arn:aws:kms:us-east-1:123456789012:key/mine"
YES = Try("CreateVolume", "a new volume", "DryRunOperation", "")
PLAIN, SAFE = ClassKey("plain", "", encrypted=False), ClassKey("safe", "", encrypted=True)
OWN = ClassKey("own", KEY, encrypted=True)
SAMPLES = Samples(zone="us-east-1a")


class Account:
    """AWS that answers some actions, and refuses the others."""

    def __init__(self, *, by_default: bool = False, refuses: str = "") -> None:
        self.answers = {
            "GetEbsEncryptionByDefault": {"EbsEncryptionByDefault": by_default},
            "GetEbsDefaultKmsKeyId": {"KmsKeyId": KEY},
            "DescribeKey": {"KeyMetadata": {"KeyState": "Enabled", "KeyManager": "CUSTOMER"}},
        }
        self.answers.pop(refuses, None)
        self.sent: Counter[str] = Counter()

    async def call(self, _service: str, action: str, **params: Any) -> dict[str, Any]:
        self.sent[action] += 1
        if params.get("DryRun"):
            raise Ec2Error(Reason.INVALID_REQUEST, "", action=action, code="DryRunOperation")
        if action not in self.answers:
            text = f"UnauthorizedOperation: no {action}"
            raise Ec2Error(Reason.PERMISSION_DENIED, text, action=action)
        return cast("dict[str, Any]", self.answers[action])

    async def default_key(self, *classes: ClassKey) -> DefaultKey | None:
        me = cast("Aws", self)
        return await default_key_of(me, me, classes, SAMPLES)


async def test_classes_that_name_no_key_use_the_default_one_if_they_are_encrypted():
    found = await Account().default_key(PLAIN, SAFE, OWN)

    assert found is not None
    assert (found.classes, found.tried and found.tried.key) == (("safe",), KEY)


async def test_an_account_that_encrypts_everything_uses_it_for_all_of_them():
    found = await Account(by_default=True).default_key(PLAIN, SAFE, OWN)

    assert found is not None
    assert found.classes == ("plain", "safe")


async def test_nothing_is_asked_that_no_class_needs():
    account = Account()

    assert await account.default_key(OWN) is None
    assert not account.sent
    assert await account.default_key(PLAIN) is None
    assert account.sent == {"GetEbsEncryptionByDefault": 1}


@pytest.mark.parametrize("action", ["GetEbsEncryptionByDefault", "GetEbsDefaultKmsKeyId"])
async def test_a_missing_right_is_said(action: str):
    found = await Account(by_default=True, refuses=action).default_key(PLAIN)

    assert found is not None
    check = of(found)
    assert check.verdict is Verdict.UNKNOWN
    assert f"no {action}" in check.proof
    assert f"ec2:{action}" in check.remedy


def of(key: DefaultKey | None) -> Check:
    return checked(with_cloud(default_key=key, tries=[YES]))["default-kms-key"]


def of_key(key: str = KEY, **told: str) -> Check:
    return of(DefaultKey(("safe", "plain"), KeyTry("", key, YES, **told)))


def test_the_key_of_aws_itself_needs_no_rights():
    assert of_key("alias/aws/ebs", refusal="AccessDeniedException: no").verdict is Verdict.OK
    assert of_key(state="Enabled", manager="AWS").verdict is Verdict.OK


def test_a_default_key_that_cannot_be_used_fails_whoever_uses_it():
    found = of_key(state="Disabled", manager="CUSTOMER")

    assert found.verdict is Verdict.FAILED
    assert found.title.endswith("by StorageClass safe and 1 more")
    assert "modify-ebs-default-kms-key-id" in found.remedy


def test_a_default_key_that_kms_does_not_show_is_unknown():
    assert of_key(refusal="AccessDeniedException: no").verdict is Verdict.UNKNOWN


def test_without_a_class_that_uses_it_there_is_no_check():
    assert "default-kms-key" not in checked(with_cloud(tries=[YES]))


def test_what_a_class_says_of_encryption_is_read_as_the_controller_reads_it():
    said: dict[str, dict[str, str]] = {
        "plain": {},
        "no": {"encrypted": "false"},
        "safe": {"Encrypted": "True"},
        "own": {"kmskeyid": KEY},
        "odd": {"encrypted": "perhaps"},
    }
    classes = [e.storage_class(name, **parameters) for name, parameters in said.items()]
    found = {each.name: each for each in key_rules.of_classes(classes, e.DRIVER)}

    assert [name for name, each in found.items() if each.encrypted] == ["safe", "own"]
    assert [name for name, each in found.items() if each.key] == ["own"]


async def test_the_strict_ec2_tells_its_default_key(
    strict_ec2: StrictEc2, aws_environment: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ENDPOINT_URL", strict_ec2.endpoint)
    aws = Aws.of_caller("us-east-1")
    try:
        first = await default_key_of(aws, aws, [SAFE], SAMPLES)
        made = await aws.call("kms", "CreateKey")
        mine = made["KeyMetadata"]["Arn"]
        await aws.call("ec2", "ModifyEbsDefaultKmsKeyId", KmsKeyId=mine)
        await aws.call("ec2", "EnableEbsEncryptionByDefault")
        then = await default_key_of(aws, aws, [PLAIN], SAMPLES)
    finally:
        aws.close()

    assert first is not None
    assert first.tried is not None
    assert first.tried.key == "alias/aws/ebs"
    assert then is not None
    assert then.tried is not None
    assert (then.tried.key, then.tried.state) == (mine, "Enabled")
