"""AWS where a role has the prescribed policy, and one volume is a person's."""

from collections import Counter
from typing import Any, cast

from provisioner.inspect.command_line import Readers
from provisioner.inspect.doctor import probes
from provisioner.inspect.doctor.evidence_rules import ClusterEvidence
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.volume import Volume, VolumeState
from tests.inspect.doctor import evidence as e

_INSTANCE = {
    "InstanceId": e.INSTANCE,
    "State": {"Name": "running"},
    "Placement": {"AvailabilityZone": e.ZONE},
}
_VOLUME = Volume(e.VOLUME, VolumeState.AVAILABLE, e.ZONE, 1)


class Account:
    """One identity.

    Attributes:
        tried: the calls that were sent with DryRun, and on which volume.
        failure: of every attempt to assume a role.
    """

    region = "us-east-1"

    def __init__(self, arn: str = "person", *, failure: Ec2Error | None = None) -> None:
        self.sent: Counter[str] = Counter()
        self.ahead_s: dict[str, float] = {}
        self.tried: list[tuple[str, str]] = []
        self.failure = failure
        self._arn = arn

    async def assume(self, role: str) -> "Account":
        if self.failure is not None:
            raise self.failure
        other = Account(role)
        other.tried = self.tried
        return other

    async def assume_by_token(self, role: str, token: str) -> "Account":
        return await self.assume(f"{role} by {token}")

    async def call(self, service: str, action: str, **params: Any) -> dict[str, Any]:
        del service
        if params.get("DryRun"):
            on = params.get("VolumeId", "")
            self.tried.append((action, on))
            code = "UnauthorizedOperation" if on else "DryRunOperation"
            raise Ec2Error(Reason.PERMISSION_DENIED, "as asked", action=action, code=code)
        if action == "DescribeInstances":
            return {"Reservations": [{"Instances": [_INSTANCE]}]}
        return {"Arn": self._arn}

    async def read_all(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class Ec2:
    """It has one volume, with no tags."""

    region = Account.region

    async def call(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"Volumes": [_VOLUME]}


async def asked(
    cluster: ClusterEvidence, identity: probes.Identity, client: Any = None
) -> probes.Found:
    """What this account tells of a cluster; ``Aws.of_caller`` must give one of these."""
    reader = Cluster(cast("Any", client))
    readers = Readers(reader, Cloud(cast("Any", Ec2()), Metrics()))
    return await probes.ask(readers, cluster, identity)
