"""Encryption of new volumes: the key is checked only after EC2 has answered, as in real EC2."""

from dataclasses import dataclass
from typing import Any

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error
from provisioner.sandbox.strict_ec2.render import reply

_AWS_OWN = "alias/aws/ebs"


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a volume is encrypted; with a key that cannot be used it will vanish after creation."""

    encrypted: bool
    key_id: str | None = None
    key_is_unusable: bool = False


def encryption_of(call: Call, source: Any = None) -> Encryption:
    """Read what a request asks for, with the region's default applied.

    ``source``: the snapshot or volume that a volume is made of. An encrypted one makes an encrypted
    volume, with the same key unless another is named.

    Raises: ``InvalidParameterDependency`` for a key without Encrypted.
    """
    inherited = source is not None and bool(source.encrypted)
    encrypted = (
        inherited
        or call.params.boolean("Encrypted")
        or bool(call.backend.ebs_encryption_by_default)
    )
    named = call.params.get("KmsKeyId")
    if named and not encrypted:
        raise Ec2Error(
            "InvalidParameterDependency",
            "The parameter KmsKeyId requires the parameter Encrypted to be set.",
        )
    if not encrypted:
        return Encryption(encrypted=False)
    key_id = named or (source.kms_key_id if inherited else None) or _default_key(call.backend)
    arn = _usable_key(call.backend, key_id)
    return Encryption(encrypted=True, key_id=arn or key_id, key_is_unusable=arn is None)


def get_ebs_default_kms_key_id(call: Call) -> str:
    """AWS's own key by its alias, until ModifyEbsDefaultKmsKeyId (moto's) has set another one.

    Source: AWS CLI reference, get-ebs-default-kms-key-id and reset-ebs-default-kms-key-id.
    """
    chosen = call.backend.default_kms_key_id
    aws_own = _usable_key(call.backend, _AWS_OWN)
    key = chosen if chosen and chosen != aws_own else _AWS_OWN
    return reply("GetEbsDefaultKmsKeyId", f"<kmsKeyId>{key}</kmsKeyId>")


def _default_key(backend: Any) -> str:
    if not backend.default_kms_key_id:
        backend._create_default_encryption_key()  # noqa: SLF001 (moto has no other way to it)
    return str(backend.default_kms_key_id)


def _usable_key(backend: Any, key_id: str) -> str | None:
    """Return the ARN of a key that exists and is neither disabled nor about to be deleted."""
    kms = motos.kms.kms_backends[backend.account_id][backend.region_name]
    try:
        key = kms.describe_key(key_id)
    except Exception:  # moto raises several kinds for one meaning: there is no such key
        return None
    return str(key.arn) if key.key_state == "Enabled" else None
