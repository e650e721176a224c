"""Encryption of new volumes: the key is checked only after EC2 has answered, as in real EC2."""

from dataclasses import dataclass
from typing import Any

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a volume is encrypted; with an unknown key it will vanish after creation."""

    encrypted: bool
    key_id: str | None = None
    key_is_unknown: bool = False


def encryption_of(call: Call) -> Encryption:
    """Read what a CreateVolume asks for, with the account's default applied.

    Raises: ``InvalidParameterDependency`` for a key without Encrypted.
    """
    key_id = call.params.get("KmsKeyId")
    snapshot = call.backend.snapshots.get(call.params.get("SnapshotId") or "")
    encrypted = (
        call.params.boolean("Encrypted")
        or bool(snapshot is not None and snapshot.encrypted)
        or bool(call.backend.ebs_encryption_by_default)
    )
    if key_id and not encrypted:
        raise Ec2Error(
            "InvalidParameterDependency",
            "The parameter KmsKeyId requires the parameter Encrypted to be set.",
        )
    if not encrypted:
        return Encryption(encrypted=False)
    if not key_id:
        return Encryption(encrypted=True, key_id=_default_key(call.backend))
    arn = _known_key(call.backend, key_id)
    return Encryption(encrypted=True, key_id=arn or key_id, key_is_unknown=arn is None)


def _default_key(backend: Any) -> str:
    if not backend.default_kms_key_id:
        backend._create_default_encryption_key()  # noqa: SLF001 (moto has no other way to it)
    return str(backend.default_kms_key_id)


def _known_key(backend: Any, key_id: str) -> str | None:
    kms = motos.kms.kms_backends[backend.account_id][backend.region_name]
    try:
        return str(kms.describe_key(key_id).arn)
    except Exception:  # moto raises several kinds for one meaning: there is no such key
        return None
