"""Client tokens of the calls that make volumes: CreateVolume and CopyVolumes."""

from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, invalid
from provisioner.sandbox.strict_ec2.records import record_of
from provisioner.sandbox.strict_ec2.world import Token

_LENGTH: Final = 64


def token_key(call: Call, zone: str) -> tuple[str, ...] | None:
    """Return what a call's token is kept under; None without a token.

    The action is not part of it: one token stands for one request (EC2's idempotency page).

    Raises: ``InvalidParameterValue`` for what cannot be a token.
    """
    token = call.params.get("ClientToken")
    if token is not None and (len(token) > _LENGTH or not token.isascii()):
        raise invalid(f"Value ({token}) for parameter clientToken is invalid.")
    if not token:
        return None
    key = (*call.scope, token)
    return (*key, zone) if call.world.settings.token_per_zone else key


def volume_of_token(call: Call, key: tuple[str, ...] | None) -> Any:
    """Return the volume that a token stands for, None for a new one.

    Raises: ``IdempotentParameterMismatch`` for other parameters, and for a volume that has gone.
    """
    token = None if key is None else call.world.tokens.get(key)
    if token is None:
        return None
    if token.fingerprint != call.params.fingerprint():
        raise Ec2Error(
            "IdempotentParameterMismatch",
            "Parameters on this idempotent request are inconsistent with parameters used in "
            "previous request(s)",
        )
    volume = call.backend.volumes.get(token.volume_id)
    if volume is None or record_of(volume).state == "deleting":
        raise Ec2Error(
            "IdempotentParameterMismatch",
            "The client token you have provided is associated with a resource that is already "
            "deleted. Please use a different client token.",
        )
    return volume


def keep_token(call: Call, key: tuple[str, ...] | None, volume: Any) -> None:
    """Let a token stand for a new volume."""
    if key is not None:
        call.world.tokens[key] = Token(call.params.fingerprint(), volume.id)
