"""What EC2 says when it says no.

One exception, rendered as EC2's XML at the edge.
The wording follows public issues and aws-ebs-csi-driver where they quote it; texts that nobody
quotes are our own and no client should read them.
"""

from uuid import uuid4
from xml.sax.saxutils import escape


class Ec2Error(Exception):
    """A refusal by EC2: a stable code, a sentence, and an HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    def xml(self) -> str:
        """Return the reply body as EC2 words it."""
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Response><Errors><Error><Code>{escape(self.code)}</Code>"
            f"<Message>{escape(self.message)}</Message></Error></Errors>"
            f"<RequestID>{uuid4()}</RequestID></Response>"
        )


def missing(parameter: str) -> Ec2Error:
    """Return the refusal of a request without ``parameter`` (its lower-case wire name)."""
    return Ec2Error("MissingParameter", f"The request must contain the parameter {parameter}")


def invalid(message: str) -> Ec2Error:
    """Return the refusal of a value."""
    return Ec2Error("InvalidParameterValue", message)


def combination(message: str) -> Ec2Error:
    """Return the refusal of values that exclude each other."""
    return Ec2Error("InvalidParameterCombination", message)


def dry_run() -> Ec2Error:
    """Return the reply to a valid request that carries DryRun."""
    return Ec2Error(
        "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412
    )


def volumes_not_found(volume_ids: list[str]) -> Ec2Error:
    """Return the refusal that names the missing ids, and only those."""
    match volume_ids:
        case [volume_id]:
            text = f"The volume '{volume_id}' does not exist."
        case _:
            text = f"The volumes '{', '.join(volume_ids)}' do not exist."
    return Ec2Error("InvalidVolume.NotFound", text)


def snapshots_not_found(snapshot_ids: list[str]) -> Ec2Error:
    """Return the refusal that names the missing ids, and only those."""
    match snapshot_ids:
        case [snapshot_id]:
            text = f"The snapshot '{snapshot_id}' does not exist."
        case _:
            text = f"The snapshots '{', '.join(snapshot_ids)}' do not exist."
    return Ec2Error("InvalidSnapshot.NotFound", text)


def instance_not_found(instance_id: str) -> Ec2Error:
    """Return the refusal of an instance id that EC2 does not know."""
    return Ec2Error("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")


def instances_not_found(instance_ids: list[str]) -> Ec2Error:
    """Return the refusal that names the missing ids, and only those."""
    match instance_ids:
        case [instance_id]:
            return instance_not_found(instance_id)
        case _:
            text = f"The instance IDs '{', '.join(instance_ids)}' do not exist"
    return Ec2Error("InvalidInstanceID.NotFound", text)


def throttled() -> Ec2Error:
    """Return what an empty token bucket answers."""
    return Ec2Error("RequestLimitExceeded", "Request limit exceeded.", status=503)
