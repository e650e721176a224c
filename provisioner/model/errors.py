"""Errors that cross a module: a stable reason, a sentence for a human, and what is known.

::

    StorageError            anything that an edge or a rule reports
     ├── Ec2Error           AWS said no, or said nothing
     ├── KubeError          the Kubernetes API said no, or said nothing
     └── NodeError          the node plugin cannot do what the kubelet asks

Each edge turns foreign errors into ours in one table. Three questions are answered here: may
something have happened (``outcome``), when is another try worth it (``retry_after_s``), and what
must the human do (``message``).
"""

from datetime import datetime
from enum import Enum, StrEnum


class Outcome(Enum):
    """What is known about the effect of a failed request."""

    NOTHING = "nothing"  # refused: the world is as before
    UNKNOWN = "unknown"  # the reply was lost: it may have been carried out, or be under way


class Reason(StrEnum):
    """Stable CamelCase reasons: in events, in log lines and as metric labels.

    docs/reference/events.md says of each what it means and what helps.
    """

    # EC2 refuses; a human or another zone can help.
    ZONE_OUT_OF_CAPACITY = "ZoneOutOfCapacity"
    TYPE_NOT_IN_ZONE = "VolumeTypeNotInZone"
    ZONE_NOT_FOUND = "ZoneNotFound"
    ZONE_NOT_ANSWERING = "ZoneNotAnswering"
    QUOTA_EXCEEDED = "QuotaExceeded"
    PERMISSION_DENIED = "PermissionDenied"
    CREDENTIALS_INVALID = "CredentialsInvalid"
    KEY_UNUSABLE = "EncryptionKeyUnusable"
    INVALID_REQUEST = "InvalidRequest"
    # EC2 refuses; the state of the world explains it.
    TOKEN_MISMATCH = "ClientTokenMismatch"  # noqa: S105 -- a reason, not a secret
    VOLUME_NOT_FOUND = "VolumeNotFound"
    INSTANCE_NOT_FOUND = "InstanceNotFound"
    VOLUME_IN_USE = "VolumeInUse"
    VOLUME_STATE = "VolumeInWrongState"
    INSTANCE_STATE = "InstanceInWrongState"
    NOT_ATTACHED = "NotAttached"
    DEVICE_IN_USE = "DeviceInUse"
    INSTANCE_FULL = "AttachmentLimitExceeded"
    ZONE_MISMATCH = "ZoneMismatch"
    NOT_YOUR_VOLUME = "VolumeOfAnotherNamespace"
    NEVER_MODIFIED = "VolumeNeverModified"
    MODIFICATION_RUNNING = "ModificationRunning"
    MODIFICATION_LIMIT = "ModificationLimitReached"
    SNAPSHOT_NOT_FOUND = "SnapshotNotFound"
    SNAPSHOT_STATE = "SnapshotInWrongState"
    SNAPSHOT_IN_USE = "SnapshotInUse"
    SNAPSHOT_LOCKED = "SnapshotLocked"
    SNAPSHOT_RATE = "SnapshotLimitReached"
    COPY_RATE = "CopyLimitReached"
    INITIALIZATION_RATE = "InitializationLimitReached"
    # Neither yes nor no.
    THROTTLED = "Throttled"
    REPLY_LOST = "ReplyLost"
    UNREACHABLE = "Unreachable"
    TIMED_OUT = "TimedOut"
    # The Kubernetes API.
    OBJECT_NOT_FOUND = "ObjectNotFound"
    OBJECT_EXISTS = "ObjectExists"
    CONFLICT = "Conflict"
    FORBIDDEN = "Forbidden"
    UNAUTHORIZED = "Unauthorized"
    REJECTED = "RejectedByApiServer"
    EXPIRED = "ResourceVersionExpired"
    UNREADABLE = "UnreadableAnswer"
    # Ours: refused before anything is sent.
    NOT_LEADING = "NotLeading"
    WRONG_CLOUD = "WrongRegionOrAccount"
    CERTIFICATE_UNUSABLE = "CertificateUnusable"
    INVALID_CLAIM = "InvalidClaim"
    INVALID_CLASS = "InvalidClass"
    CLASS_NOT_FOUND = "ClassNotFound"
    NO_ZONE = "NoUsableZone"
    NOT_SUPPORTED = "NotSupported"
    # The node.
    DEVICE_NOT_FOUND = "DeviceNotFound"
    WRONG_DEVICE = "WrongDevice"
    DEVICE_BUSY = "DeviceBusy"
    DEVICE_READ_ONLY = "DeviceReadOnly"
    NOT_BLANK = "VolumeNotBlank"
    FILE_SYSTEM_MISMATCH = "FileSystemMismatch"
    FILE_SYSTEM_DAMAGED = "FileSystemDamaged"
    FORMAT_FAILED = "FormatFailed"
    MOUNT_FAILED = "MountFailed"
    TARGET_BUSY = "TargetBusy"
    TARGET_FULL = "TargetFull"
    OPERATION_RUNNING = "OperationRunning"
    VOLUME_NOT_STAGED = "VolumeNotStaged"
    GROW_FAILED = "GrowFailed"
    METADATA_UNAVAILABLE = "MetadataUnavailable"
    PROGRAM_MISSING = "ProgramMissing"
    # Done, but not quite as asked.
    IOPS_CAPPED = "IopsCapped"
    IOPS_RAISED = "IopsRaised"


# Sets of reasons, named for what follows from them. A set that one story alone knows is there.

# An outage: the request was not refused, but the server was away, overloaded or did not accept our
# credentials. Flows retry within half a minute. (THROTTLED is the API server's: the limiter
# handles EC2's.)
RETRY_SOON = frozenset(
    {
        Reason.UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.REPLY_LOST,
        Reason.THROTTLED,
        Reason.UNAUTHORIZED,
        Reason.CREDENTIALS_INVALID,
    }
)
# Neither yes nor no: nothing may be concluded, and the same request is sent again.
NO_ANSWER = RETRY_SOON | {Reason.NOT_LEADING}
# Waiting does not help: the user is told, even if only a read failed.
NEEDS_HUMAN = frozenset({Reason.PERMISSION_DENIED, Reason.CREDENTIALS_INVALID})
# EC2 limits how many run at a time: the request waits for its turn, which is no failure.
RATE_LIMITED = frozenset({Reason.COPY_RATE, Reason.SNAPSHOT_RATE, Reason.INITIALIZATION_RATE})
# EC2 does not know an id: it is gone, not visible yet, or of another Region or account.
UNKNOWN_ID = frozenset(
    {Reason.VOLUME_NOT_FOUND, Reason.INSTANCE_NOT_FOUND, Reason.SNAPSHOT_NOT_FOUND}
)
# A Kubernetes object was changed or deleted since it was read: read it again, then decide.
CHANGED_MEANWHILE = frozenset({Reason.CONFLICT, Reason.OBJECT_NOT_FOUND})


class StorageError(Exception):
    """A failure that a flow decides about.

    Attributes:
        reason: stable name of the failure.
        message: one sentence for the user: what, where, why, what would help.
        outcome: whether something may have been carried out all the same.
        retry_after_s: when another try is worth it, in seconds; None leaves it to the backoff.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        outcome: Outcome = Outcome.NOTHING,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.outcome = outcome
        self.retry_after_s = retry_after_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reason}, {self.message!r}, {self.outcome.value})"


class Ec2Error(StorageError):
    """AWS refused a call, or its answer was lost.

    Attributes:
        code: EC2's own error code ("" when no answer was understood).
        action: the API action, for example "CreateVolume".
        retry_at: from when on EC2 says that it would do it; None if it does not say.
        between_s: so long it wants between two of them; None if it does not say.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        action: str,
        code: str = "",
        outcome: Outcome = Outcome.NOTHING,
        retry_after_s: float | None = None,
        retry_at: datetime | None = None,
        between_s: float | None = None,
    ) -> None:
        super().__init__(reason, message, outcome=outcome, retry_after_s=retry_after_s)
        self.action = action
        self.code = code
        self.retry_at = retry_at
        self.between_s = between_s


class KubeError(StorageError):
    """The Kubernetes API refused a request, or its answer was lost.

    Attributes:
        status: the HTTP status (0 when there was no answer).
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        status: int = 0,
        outcome: Outcome = Outcome.NOTHING,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason, message, outcome=outcome, retry_after_s=retry_after_s)
        self.status = status


class NodeError(StorageError):
    """The node plugin cannot do what the kubelet asks (gRPC codes: ``node/csi/server.py``)."""


class RefusedHereError(ValueError):
    """A class, or a tag, that only this controller refuses; the message is one sentence.

    aws-ebs-csi-driver 1.64, as its chart installs it, makes volumes of it: in a cluster where that
    driver leads it is no reason to deny a class.
    """


def retold(error: ValueError, text: str) -> ValueError:
    """The same refusal in other words."""
    return RefusedHereError(text) if isinstance(error, RefusedHereError) else ValueError(text)
