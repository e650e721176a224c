"""STS beside EC2: a role that IAM does not have cannot be assumed, as in AWS and not in moto.

Source: STS API reference, AssumeRole and AssumeRoleWithWebIdentity, "Errors" (read 2026-11-23).
"""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4
from xml.sax.saxutils import escape

from provisioner.sandbox.strict_ec2 import motos

_ACTIONS: Final = frozenset({"AssumeRole", "AssumeRoleWithWebIdentity"})
STATUS: Final = 403


def refusal(flat: Mapping[str, str], account: str) -> bytes | None:
    """Return what STS has against a call; None if moto may answer it."""
    action, role = flat.get("Action", ""), flat.get("RoleArn", "")
    if action not in _ACTIONS or role in _known(account):
        return None
    if action == "AssumeRole":
        who = f"User: arn:aws:iam::{account}:user/sandbox is not authorized to perform: "
        text = f"{who}sts:AssumeRole on resource: {role}"
    else:
        text = f"Not authorized to perform sts:{action}"
    return (
        '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>'
        f"<Type>Sender</Type><Code>AccessDenied</Code><Message>{escape(text)}</Message></Error>"
        f"<RequestId>{uuid4()}</RequestId></ErrorResponse>"
    ).encode()


def _known(account: str) -> set[str]:
    return {str(role.arn) for role in motos.iam.iam_backends[account]["aws"].roles.values()}
