"""Which KMS key could not be used: the sentence and the advice follow EC2's own answer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from provisioner.ec2.errors import refusal
from provisioner.inspect.explain import key_rules
from provisioner.inspect.explain.chain_rules import Link
from provisioner.inspect.explain.view_rules import SnapshotView
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Reason
from provisioner.model.key_rights import KEY_RIGHTS
from tests.builders import a_class
from tests.documents import ROOT
from tests.inspect.explain.views import chains, claim_view, refused, view

KEY = "arn:aws:kms:us-east-1:123456789012:key/k"
DENIED = (
    "CreateVolume (1 GiB gp3 in us-east-1a): EC2 answered KMSKeyAccessDenied: User: "
    "arn:aws:sts::123456789012:assumed-role/ebs-controller/i-1 is not authorized to perform: "
    "kms:CreateGrant; check that the KMS key exists, is enabled and allows the controller's role"
)


def of_answer(text: str, **claim: Any) -> Link:
    told = refused(Reason.KEY_UNUSABLE, text)
    found = view(claims=(claim_view(said=(told,), **claim),), region="us-east-1")
    (chain,) = chains(found)
    assert chain.cause is Reason.KEY_UNUSABLE
    return chain.links[0]


def with_key(name: str = "kmsKeyId") -> dict[str, Any]:
    return {"storage_class": a_class(parameters={name: KEY})}


ENCRYPTED = {"storage_class": a_class(parameters={"Encrypted": "true"})}


def test_a_missing_right_names_the_role_and_the_key_of_the_class():
    link = of_answer(DENIED, **with_key())
    assert f"KMS key {KEY} (kmsKeyId of class " in link.sentence
    assert "for role ebs-controller: a right is missing" in link.sentence
    assert "does not exist" not in link.sentence
    assert "kms:CreateGrant" in link.remedy
    assert link.command == "kubectl ebs doctor --as-controller"


def test_without_a_kmskeyid_the_default_key_is_named_and_nothing_is_to_be_corrected_there():
    link = of_answer("EC2 answered KMSKeyNotFound: no such key", **ENCRYPTED)
    assert "The account's default KMS key for EBS in us-east-1 (class " in link.sentence
    assert "sets no kmsKeyId" in link.sentence
    assert "modify-ebs-default-kms-key-id" in link.remedy
    assert link.command.startswith("aws ec2 get-ebs-default-kms-key-id")


@pytest.mark.parametrize("claim", [ENCRYPTED, {"encrypts_by_default": True}])
def test_the_default_key_is_named_where_ec2_tells_it(claim: dict[str, Any]):
    link = of_answer("EC2 answered KMSKeyNotFound: no such key", default_key=KEY, **claim)
    assert f"KMS key {KEY} (the account's default KMS key for EBS in us-east-1: " in link.sentence
    assert "modify-ebs-default-kms-key-id" in link.remedy
    assert link.command == f"aws kms describe-key --key-id {KEY} --region us-east-1"


def test_no_key_is_named_where_neither_the_class_nor_the_account_encrypts():
    link = of_answer(DENIED, encrypts_by_default=False)
    assert link.sentence == (
        "EC2 may not use a KMS key (which one is not known: class fast does not ask for "
        "encryption, and the account does not encrypt by default in us-east-1) for role "
        "ebs-controller: a right is missing."
    )


def test_whether_the_account_encrypts_may_be_unknown():
    link = of_answer("EC2 answered KMSKeyNotFound: no such key")
    assert "A KMS key (the account's default one for EBS in us-east-1, if the " in link.sentence
    assert "class fast sets neither encrypted nor kmsKeyId" in link.sentence
    assert "modify-ebs-default-kms-key-id" not in link.remedy
    assert link.command.startswith("aws ec2 get-ebs-encryption-by-default")


def test_a_volume_without_encryption_that_ec2_took_back_is_not_blamed_on_a_key():
    told = refused(Reason.VOLUME_NOT_FOUND)
    found = claim_view(said=(told,), encrypts_by_default=False)
    (chain,) = chains(view(claims=(found,)))
    assert "default KMS key" not in chain.links[0].sentence


def test_the_rights_are_those_of_the_policy_for_the_key_wherever_they_are_named():
    path = ROOT / "manifests" / "iam" / "kms-policy.json"
    statements = json.loads(path.read_text())["Statement"]
    actions = [each["Action"] for each in statements]
    rights = {r for each in actions for r in ([each] if isinstance(each, str) else each)}
    assert {*KEY_RIGHTS} == rights
    event = refusal("CreateVolume", "1 GiB", "KMSKeyNotFound", "no such key").message
    for said in (event, of_answer(DENIED).remedy):
        assert all(each in said for each in rights)


@pytest.mark.parametrize(
    ("claim", "asks"),
    [
        ({"said": (refused(Reason.KEY_UNUSABLE),)}, True),
        ({"said": (refused(Reason.VOLUME_NOT_FOUND),)}, True),
        ({"said": (refused(Reason.KEY_UNUSABLE),), **with_key("KMSKEYID")}, False),
        ({"said": (refused(Reason.QUOTA_EXCEEDED),)}, False),
        ({}, False),
        ({"said": (refused(Reason.KEY_UNUSABLE),), "storage_class": None}, False),
    ],
)
def test_the_default_key_is_asked_for_only_if_it_may_be_the_one(claim: Any, *, asks: bool):
    assert key_rules.uses_default_key(claim_view(**claim)) is asks


def test_an_encrypted_snapshot_brings_its_own_key():
    ebs = EbsSnapshot("snap-1", "vol-1", SnapshotState.COMPLETED, 1, encrypted=True)
    link = of_answer(DENIED, snapshot=SnapshotView("shop/snap", ebs=ebs))
    assert "the KMS key of source snapshot snap-1" in link.sentence


@pytest.mark.parametrize(
    ("text", "sentence", "remedy"),
    [
        ("EC2 answered KMSKeyNotFound: no such key", "does not exist", "parameters cannot be"),
        (f"EC2 answered KMSInvalidState: {KEY} is disabled", "is disabled.", "Enable the key."),
        (
            f"EC2 answered KMSInvalidStateException: {KEY} is pending deletion.",
            "is to be deleted",
            "Cancel the deletion",
        ),
        (
            (
                "EC2 accepted volume vol-1 and then dropped it, as it does when it cannot use a KMS "
                "key: check that it exists and is enabled"
            ),
            "does not say why",
            "Check that the key exists and is enabled",
        ),
    ],
)
def test_the_sentence_follows_ec2s_answer(text: str, sentence: str, remedy: str):
    link = of_answer(text, **with_key("KmsKeyID"))
    assert KEY in link.sentence
    assert sentence in link.sentence
    assert remedy in link.remedy
    assert link.command == f"aws kms describe-key --key-id {KEY} --region us-east-1"


def test_a_volume_that_ec2_took_back_names_its_key():
    told = refused(Reason.VOLUME_NOT_FOUND)
    about = replace(claim_view(said=(told,)), **with_key())
    (chain,) = chains(view(claims=(about,)))
    assert KEY in chain.links[0].sentence
