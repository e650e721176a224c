"""Fail-over: what EC2 has refused each claim, and where its volume is made instead."""

from provisioner.decide.failover import NO_REFUSALS, Refusals
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume import CreateRequest
from provisioner.model.zone import Place
from provisioner.reconcile.zone_state import ZoneState


class FailOver:
    """The refusals of claims, by UID.

    A refusal is noted only once it is certain that nothing was made: whoever reads it here may
    make the volume in another place. Nothing of this outlives the process; one that comes after
    us counts anew.
    """

    def __init__(self, state: ZoneState) -> None:
        self._state = state
        self._refusals: dict[str, Refusals] = {}

    def of(self, uid: str) -> Refusals:
        """What a claim was refused so far."""
        return self._refusals.get(uid, NO_REFUSALS)

    def doubtful(self, volume_type: str) -> dict[Place, Reason]:
        """Where volumes of a type were refused to anybody lately, and why."""
        return self._state.refusing(volume_type)

    def refused(self, uid: str, request: CreateRequest, error: StorageError) -> Refusals:
        """EC2 has no room for a claim's volume there, and surely none was made; all so far."""
        place = place_of(request)
        others_too = place in self._state.refusing(request.volume_type)
        found = self.of(uid).and_in(place, error.reason, others_too=others_too)
        self._refusals[uid] = found
        self._state.refused(place, request.volume_type, error.reason)
        return found

    def begin_anew(self, uid: str) -> None:
        """A claim is bound or gone, or has waited for long enough to ask everywhere again."""
        self._refusals.pop(uid, None)


def place_of(request: CreateRequest) -> Place:
    """Where a request asks for a volume."""
    return Place(request.zone, request.outpost_arn or "")
