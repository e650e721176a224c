"""One EC2 request: an action and its flat query parameters (``Filter.1.Value.2=x``)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.sandbox.strict_ec2.errors import Ec2Error, invalid, missing

_ID = re.compile(r"[a-z]+-([0-9a-f]{8}|[0-9a-f]{17})")
_WRONG = "Value ({id}) for parameter {parameter} is invalid. Expected: '{prefix}...'."
_MALFORMED = {
    "vol-": "InvalidVolumeID.Malformed",
    "snap-": "InvalidSnapshotID.Malformed",
    "i-": "InvalidInstanceID.Malformed",
}
# Parameters that hold ids, with or without a number after them: prefix, and EC2's name in its text.
_IDS = {
    "InstanceId": ("i-", "instanceId"),
    "SnapshotId": ("snap-", "snapshotId"),
    "SourceSnapshotId": ("snap-", "sourceSnapshotId"),
    "SourceVolumeId": ("vol-", "sourceVolumeId"),
    "VolumeId": ("vol-", "volumeId"),
}
_NOT_PART_OF_THE_REQUEST = ("Action", "Version", "ClientToken", "DryRun", "AWSAccessKeyId")


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of one call, in the query protocol's own names."""

    flat: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """Return a parameter, None when absent."""
        return self.flat.get(name)

    def required(self, name: str) -> str:
        """Return a parameter.

        Raises: ``MissingParameter`` when it is absent or empty.
        """
        value = self.flat.get(name)
        if not value:
            raise missing(name[0].lower() + name[1:])
        return value

    def integer(self, name: str) -> int | None:
        """Return a whole number, None when absent.

        Raises: ``InvalidParameterValue`` for anything else.
        """
        value = self.flat.get(name)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise invalid(f"Value ({value}) for parameter {name} is invalid.") from None

    def boolean(self, name: str) -> bool:
        """Return a flag; absent is false.

        Raises: ``InvalidParameterValue`` for what is neither true nor false.
        """
        match (self.flat.get(name) or "false").lower():
            case "true":
                return True
            case "false":
                return False
            case other:
                raise invalid(f"Value ({other}) for parameter {name} is invalid.")

    def values(self, prefix: str) -> list[str]:
        """Return the list ``prefix.1``, ``prefix.2`` ... in order."""
        found: list[str] = []
        while (value := self.flat.get(f"{prefix}.{len(found) + 1}")) is not None:
            found.append(value)
        return found

    def filters(self) -> list[tuple[str, list[str]]]:
        """Return filter names with their values, as sent: the same name may come twice."""
        found: list[tuple[str, list[str]]] = []
        while (name := self.flat.get(f"Filter.{len(found) + 1}.Name")) is not None:
            found.append((name, self.values(f"Filter.{len(found) + 1}.Value")))
        return found

    def tags(self, prefix: str = "Tag") -> list[tuple[str, str | None]]:
        """Return the tags under ``prefix`` as sent; a value that was left out is None."""
        found: list[tuple[str, str | None]] = []
        while (key := self.flat.get(f"{prefix}.{len(found) + 1}.Key")) is not None:
            found.append((key, self.flat.get(f"{prefix}.{len(found) + 1}.Value")))
        return found

    def fingerprint(self) -> frozenset[tuple[str, str]]:
        """Return what EC2 compares when a client token is used again.

        Tags count as a set: aws-ebs-csi-driver sends them in the random order of a Go map and its
        repeated requests are honoured.
        """
        rest = {
            (name, value)
            for name, value in self.flat.items()
            if name not in _NOT_PART_OF_THE_REQUEST
            and not name.startswith(("X-Amz-", "TagSpecification."))
        }
        tags = self.tags("TagSpecification.1.Tag")
        return frozenset(rest | {(f"tag:{key}", value or "") for key, value in tags})


def check_ids(flat: Mapping[str, str]) -> None:
    """Refuse a call, whichever, for the first of its ids that cannot be one.

    Raises: ``InvalidParameterValue`` for the id of another thing or of nothing (quoted in
    aws-missing-tools #59), ``Invalid…ID.Malformed`` for one that only begins well
    (cloud-custodian #1738), and for whatever is no instance's (cluster-glue #29).
    """
    for name, value in flat.items():
        parameter, _, number = name.partition(".")
        if parameter in _IDS and (number or value):
            prefix, shown = _IDS[parameter]
            check_id(value, prefix, "volumes" if number and prefix == "vol-" else shown)


def check_id(value: str, prefix: str, parameter: str) -> None:
    """Refuse what is not the id of such a thing; raises as ``check_ids``."""
    if not value.startswith(prefix) and prefix != "i-":
        raise invalid(_WRONG.format(id=value, parameter=parameter, prefix=prefix))
    if not value.startswith(prefix) or _ID.fullmatch(value) is None:
        raise Ec2Error(_MALFORMED[prefix], f'Invalid id: "{value}"')
