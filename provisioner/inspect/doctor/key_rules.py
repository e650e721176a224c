"""The KMS keys of classes: which key each uses, and what KMS and EC2's DryRun say of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from provisioner.classes.storage_class_rules import is_encrypted
from provisioner.inspect.doctor.check_rules import Check, Finding, Verdict, ok, unknown
from provisioner.inspect.doctor.evidence_rules import DefaultKey, Evidence, KeyTry
from provisioner.inspect.doctor.right_rules import AS_CONTROLLER, REFUSED
from provisioner.model.key_rights import RIGHTS_ON_KEY
from provisioner.model.storage_class import StorageClass

_KEY = "kmskeyid"  # names of parameters are not case-sensitive
# AWS's own key, until somebody sets another one as the default. Its policy lets everybody in the
# account use it through EBS. Source: EBS user guide, "How Amazon EBS encryption works" and "Amazon
# EBS encryption requirements"; KMS developer guide, "AWS managed keys" (read 2026-11-24).
AWS_OWN = "alias/aws/ebs"
_AWS = "AWS"
# EC2 checks the key after its answer (ec2-ebs reference; aws-ebs-csi-driver #3010).
_LIMIT = "EC2 uses the key only after its answer, so a dry run cannot show a missing right on it"


@dataclass(frozen=True, slots=True)
class ClassKey:
    """What a class says of encryption.

    Attributes:
        name: of the class.
        key: its ``kmsKeyId``, "" for none.
        encrypted: whether its volumes are encrypted, whatever the account's default is.
    """

    name: str
    key: str
    encrypted: bool


def of_classes(classes: Iterable[StorageClass], driver: str) -> list[ClassKey]:
    """What the driver's classes say."""
    return [_of_class(each) for each in classes if each.is_of(driver)]


def _of_class(storage_class: StorageClass) -> ClassKey:
    said = {key.lower(): value for key, value in (storage_class.parameters or {}).items()}
    key = said.get(_KEY, "")
    return ClassKey(storage_class.name, key, bool(key) or is_encrypted(said))


def checks(seen: Evidence) -> Iterator[Check]:
    """One for each key that a class names, and one for the account's default key if it is used."""
    if seen.cloud.refused or not seen.cloud.tries:
        return
    for key in seen.cloud.keys:
        found = _key(key, seen)
        title = f"the KMS key of StorageClass {key.name} can be used"
        yield Check(f"kms-{key.name}", found.verdict, title, found.proof, found.remedy)
    default = seen.cloud.default_key
    if default is not None:
        found = _default(default, seen)
        title = f"the account's default KMS key for EBS can be used, by {_named(default.classes)}"
        yield Check("default-kms-key", found.verdict, title, found.proof, found.remedy)


def _named(classes: Iterable[str]) -> str:
    first, *more = classes
    rest = f" and {len(more)} more" if more else ""
    return f"StorageClass {first}{rest}"


def _default(default: DefaultKey, seen: Evidence) -> Finding:
    if default.tried is None:
        return unknown(
            f"which key that is, or whether it is used at all, is not known: {default.refusal}",
            "allow yourself ec2:GetEbsEncryptionByDefault and ec2:GetEbsDefaultKmsKeyId "
            "(manifests/iam/cli-policy.json)",
        )
    if default.tried.key.endswith(AWS_OWN) or default.tried.manager == _AWS:
        return ok(f"{default.tried.key} is AWS's own: who may create volumes may use it")
    found = _key(default.tried, seen)
    if found.verdict is not Verdict.FAILED:
        return found
    remedy = f"{found.remedy}, or set another default key (aws ec2 modify-ebs-default-kms-key-id)"
    return Finding(found.verdict, found.proof, remedy)


def _key(key: KeyTry, seen: Evidence) -> Finding:
    """The key's own state first: it is a fact, whoever asks. A refusal is one of the caller."""
    if key.state and key.state != "Enabled":
        text = f"key {key.key} is {key.state}: EC2 creates volumes and takes them back"
        return Finding(Verdict.FAILED, text, "enable the key, or name another in a new class")
    if key.refusal.startswith("NotFoundException"):
        text = f"KMS in {seen.cloud.region} does not have {key.key}: {key.refusal}"
        if seen.is_confirmed_cloud:
            return Finding(Verdict.FAILED, text, "name a key that exists in a new class")
        return unknown(text, "see the checks region and account first")
    who, code = seen.cloud.tried_as, key.creation.code
    if code in REFUSED and _creation_is_refused(seen):
        text = f"CreateVolume is refused with any key: see iam-CreateVolume. {_LIMIT}"
        if key.state == "Enabled":
            return ok(f"{key.key} is enabled. {text}")
        return unknown(
            f"KMS does not show {key.key} to {who}: {key.refusal or 'not asked'}. {text}"
        )
    if code in REFUSED or code.startswith("KMS"):
        proof = f"CreateVolume DryRun with {key.key} as {who}: {code}"
        if seen.cloud.is_controllers:
            return Finding(Verdict.FAILED, proof, _key_remedy(key.key))
        return unknown(f"{proof}; this is not the controller's identity", AS_CONTROLLER)
    if key.state == "Enabled":
        return ok(f"{key.key} is enabled; CreateVolume DryRun: {code or 'not tried'}. {_LIMIT}")
    return unknown(
        f"KMS does not show {key.key} to {who}: {key.refusal or 'not asked'}. {_LIMIT}",
        _key_remedy(key.key),
    )


def _creation_is_refused(seen: Evidence) -> bool:
    return any(each.action == "CreateVolume" and each.code in REFUSED for each in seen.cloud.tries)


def _key_remedy(key: str) -> str:
    return (
        f"allow the controller {RIGHTS_ON_KEY} on {key} (manifests/iam/kms-policy.json), and in "
        "the key's policy"
    )
