"""Which KMS key EC2 could not use, why, and what helps: chosen by EC2's own answer."""

import re
from dataclasses import dataclass
from enum import Enum, auto

from provisioner.classes.storage_class_rules import is_encrypted
from provisioner.inspect.explain import reason_rules
from provisioner.inspect.explain.chain_rules import Link
from provisioner.inspect.explain.view_rules import ClaimView, Said, View, VolumeView
from provisioner.inspect.shell_words import shell
from provisioner.model.errors import Reason
from provisioner.model.key_rights import RIGHTS_ON_KEY
from provisioner.model.storage_class import StorageClass

_PARAMETER = "kmskeyid"  # names of parameters are not case-sensitive
_ROLE = re.compile(r":(?:assumed-role|role)/([\w+=,.@-]+)")
_SHOW_DEFAULT = "aws ec2 get-ebs-default-kms-key-id"
_SHOW_BY_DEFAULT = "aws ec2 get-ebs-encryption-by-default"
_SHOW_KEY = "aws kms describe-key --key-id {}"
_TRY_RIGHTS = "kubectl ebs doctor --as-controller"


class _Why(Enum):
    """What EC2 says of the key."""

    PENDING_DELETION = auto()
    DISABLED = auto()
    MISSING = auto()
    DENIED = auto()
    UNSAID = auto()


# In this order: EC2 words a state as an invalid state, and a foreign key as one not found.
_WORDS = (
    (re.compile(r"pending ?deletion", re.IGNORECASE), _Why.PENDING_DELETION),
    (re.compile(r"\bdisabled\b|invalid ?state|KeyDisabled", re.IGNORECASE), _Why.DISABLED),
    (re.compile(r"not ?found|does not exist|no such key", re.IGNORECASE), _Why.MISSING),
    (re.compile(r"not ?authorized|access ?denied|unauthorized", re.IGNORECASE), _Why.DENIED),
)


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a volume.

    Attributes:
        words: which it is, for a sentence.
        instead: what names another one, as a sentence; "" if none can be named.
        show: the command that shows it, or says which it is.
    """

    words: str
    instead: str
    show: str


def of_claim(view: View, about: ClaimView) -> Key:
    """The key under which the volume of a claim would be created."""
    found = about.storage_class
    class_name = found.name if found else about.claim.class_name if about.claim else ""
    parameters = (found.parameters or {}) if found else {}
    named = next((text for key, text in parameters.items() if key.lower() == _PARAMETER), "")
    if named:
        return Key(
            f"KMS key {named} (kmsKeyId of class {class_name})",
            f"Delete class {class_name} and create it again with a kmsKeyId that exists in this "
            "region: parameters cannot be changed.",
            shell(_SHOW_KEY, named),
        )
    another = "or create the claim again with a class that names a key as kmsKeyId."
    snapshot = about.snapshot.ebs if about.snapshot else None
    if snapshot is not None and snapshot.encrypted:
        return Key(
            f"the KMS key of source snapshot {snapshot.snapshot_id} (class {class_name} sets no "
            "kmsKeyId)",
            f"Restore from another snapshot, {another}",
            shell("aws ec2 describe-snapshots --snapshot-ids {}", snapshot.snapshot_id),
        )
    if about.source_claim is not None:
        return Key(
            f"the KMS key of the volume of claim {about.source_claim.key}",
            f"Use another source, {another}",
            shell("kubectl ebs explain pvc {}", about.source_claim.key),
        )
    return _default(view, about, class_name, another)


def _default(view: View, about: ClaimView, class_name: str, another: str) -> Key:
    """The account's default key, as far as the volume is encrypted at all."""
    where = f" in {view.region}" if view.region else ""
    if is_unencrypted(about):
        words = (
            f"a KMS key (which one is not known: class {class_name} does not ask for encryption, "
            f"and the account does not encrypt by default{where})"
        )
        return Key(words, "", _SHOW_BY_DEFAULT)
    if about.encrypts_by_default is None and not asks_for_encryption(about.storage_class):
        words = (
            f"a KMS key (the account's default one for EBS{where}, if the account encrypts by "
            f"default: class {class_name} sets neither encrypted nor kmsKeyId)"
        )
        return Key(words, "", _SHOW_BY_DEFAULT)
    words = f"the account's default KMS key for EBS{where}"
    instead = f"Set another default key (aws ec2 modify-ebs-default-kms-key-id), {another}"
    if about.default_key:
        words = f"KMS key {about.default_key} ({words}: class {class_name} sets no kmsKeyId)"
        return Key(words, instead, shell(_SHOW_KEY, about.default_key))
    return Key(f"{words} (class {class_name} sets no kmsKeyId)", instead, _SHOW_DEFAULT)


def uses_default_key(about: ClaimView) -> bool:
    """Whether EC2 could not use a key, and nothing around the claim names one."""
    told = any(each.reason in {Reason.KEY_UNUSABLE, Reason.VOLUME_NOT_FOUND} for each in about.said)
    parameters = about.storage_class.parameters if about.storage_class else None
    named = any(each.lower() == _PARAMETER for each in parameters or {})
    snapshot = about.snapshot.ebs if about.snapshot else None
    has_source = about.source_claim is not None or (snapshot is not None and snapshot.encrypted)
    return told and not named and not has_source and about.storage_class is not None


def asks_for_encryption(storage_class: StorageClass | None) -> bool:
    """Whether volumes of a class are encrypted, whatever the account's default is."""
    return is_encrypted((storage_class.parameters or {}) if storage_class else {})


def is_unencrypted(about: ClaimView) -> bool:
    """Whether neither the class nor the account asks for encryption, so that no key is used."""
    return about.encrypts_by_default is False and not asks_for_encryption(about.storage_class)


def of_volume(volume: VolumeView) -> Key:
    """The key of a volume that exists."""
    ebs = volume.ebs
    if ebs is None or not ebs.kms_key_id:
        return Key("the KMS key of the volume", "", _TRY_RIGHTS)
    words = f"KMS key {ebs.kms_key_id} of volume {ebs.volume_id}"
    return Key(words, "", shell(_SHOW_KEY, ebs.kms_key_id))


def link(said: Said, key: Key) -> Link:
    """Why the key cannot be used, as far as EC2 says it."""
    found = next((why for words, why in _WORDS if words.search(said.text)), _Why.UNSAID)
    named = _ROLE.search(said.text)
    role = f"role {named[1]}" if named else "the controller's role"
    sentence, remedy = _told(found, key, role)
    return Link(
        Reason.KEY_UNUSABLE,
        sentence,
        reason_rules.proof_of(said),
        next=reason_rules.who_acts(Reason.KEY_UNUSABLE),
        remedy=remedy,
        command=_TRY_RIGHTS if found is _Why.DENIED else key.show,
    )


def _told(why: _Why, key: Key, role: str) -> tuple[str, str]:
    """The sentence, and what helps."""
    words = f"{key.words[0].upper()}{key.words[1:]}"
    instead = f" {key.instead}" if key.instead else ""
    if why is _Why.DENIED:
        sentence = f"EC2 may not use {key.words} for {role}: a right is missing."
        remedy = (
            f"Allow {role} {RIGHTS_ON_KEY} on the key (manifests/iam/kms-policy.json). The "
            "key's own policy has to allow it too, above all if the key is of another account."
        )
    elif why is _Why.MISSING:
        sentence = f"{words} does not exist, as EC2 says."
        where = "Check that the key is in the region and the account in which EC2 is asked."
        remedy = key.instead or where
    elif why is _Why.DISABLED:
        sentence, remedy = f"{words} is disabled.", f"Enable the key.{instead}"
    elif why is _Why.PENDING_DELETION:
        sentence = f"{words} is to be deleted, so EC2 cannot use it."
        remedy = (
            "Cancel the deletion of the key and enable it: with the key, all that is encrypted "
            "under it is lost."
        )
    else:
        sentence = f"EC2 cannot use {key.words}, and does not say why."
        remedy = (
            f"Check that the key exists and is enabled, and that {role} has {RIGHTS_ON_KEY} on "
            f"it ({_TRY_RIGHTS} tries them)."
        )
    return sentence, remedy
