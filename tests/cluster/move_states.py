"""In which states the cluster may be after a move in which somebody has acted."""

from __future__ import annotations

from dataclasses import dataclass, field

NOTES = ("held-for-move", "policy-before-move", "left-by-move")


@dataclass(frozen=True, slots=True)
class State:
    """What there is of a moved claim.

    ``claim``: the volume that it is Bound to, "" if there is no such claim; ``objects``: the policies
    of the PersistentVolumes; ``volumes``: those in EC2; ``move``: its phase, None if it is gone;
    ``left``: snapshots and notes of the move.
    """

    claim: str
    objects: dict[str, str]
    volumes: frozenset[str]
    move: str | None
    left: list[str] = field(default_factory=list)


def kept(move: str | None = "Aborted") -> State:
    """All is as it was before the move."""
    return State("old", {"old": "Delete"}, frozenset({"old"}), move)


def moved(move: str | None = "Done") -> State:
    """The claim has the new volume, and the old one is kept."""
    return State("new", {"old": "Retain", "new": "Delete"}, frozenset({"old", "new"}), move)


def gone(move: str | None = "Aborted") -> State:
    """The claim is deleted with its volume, as without a move."""
    return State("", {}, frozenset(), move)


def only_old(move: str | None = "Done") -> State:
    """The moved claim is deleted with its new volume; the old one is kept as promised."""
    return State("", {"old": "Retain"}, frozenset({"old"}), move)


def both(move: str | None = None) -> State:
    """The claim cannot be created again; nothing is deleted."""
    return State("", {"old": "Retain", "new": "Delete"}, frozenset({"old", "new"}), move)


# Where it pauses, and in which phase that is.
PHASE_AT = {
    "PATCH volumemoves/status #1": "",
    "PATCH volumemoves #1": "Planned",
    "PATCH persistentvolumes #2": "Held",
    "CreateSnapshot #1": "Snapshotting",
    "CreateVolume #1": "Creating",
    "PATCH volumemoves/status #6": "Creating",
    "DELETE persistentvolumeclaims #1": "Swapping",
    "POST persistentvolumeclaims #1": "Swapping",
    "DeleteSnapshot #1": "Cleaning",
}
# Until the swap, the claim has its old volume.
UNTIL_SWAP = frozenset(
    {"", "Planned", "Warming", "Held", "Snapshotting", "Creating", "Checking", "Copying"}
)
