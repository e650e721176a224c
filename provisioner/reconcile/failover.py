"""Fail-over: what EC2 has refused each claim, and where its volume is made instead."""

import asyncio
import math
from collections.abc import Collection

from provisioner.decide.failover import AGAIN_S, NO_REFUSALS, Refusals
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume import CreateRequest
from provisioner.model.zone import Place
from provisioner.reconcile.zone_state import ZoneState


class FailOver:
    """The refusals of claims, by UID.

    A refusal is noted only once it is certain that nothing was made: whoever reads it here may
    make the volume in another place. Nothing of this outlives the process; one that comes after
    us counts anew. A claim that has to wait keeps its refusals for as long as it waits, whoever
    wakes it meanwhile: only a place that has not refused it is asked sooner.
    """

    def __init__(self, state: ZoneState) -> None:
        self._state = state
        self._refusals: dict[str, Refusals] = {}
        self._rests_until_s: dict[str, float] = {}

    def of(self, uid: str) -> Refusals:
        """What a claim was refused since it was last asked for everywhere."""
        if self._rests_until_s.get(uid, math.inf) <= asyncio.get_running_loop().time():
            self.begin_anew(uid)
        return self._refusals.get(uid, NO_REFUSALS)

    def doubtful(self, volume_type: str) -> dict[Place, Reason]:
        """Where volumes of a type were refused to anybody lately, and why."""
        return self._state.refusing(volume_type)

    def refused(
        self, uid: str, request: CreateRequest, error: StorageError, siblings: Collection[str]
    ) -> Refusals:
        """EC2 has no room for a claim's volume there, and surely none was made; all so far.

        ``siblings``: the UIDs of the other claims of its pods.
        """
        place = place_of(request)
        others_too = self._state.has_refused_others(place, request.volume_type, siblings)
        found = self.of(uid).and_in(place, error.reason, others_too=others_too)
        self._refusals[uid] = found
        self._state.refused(place, request.volume_type, error.reason, by=uid)
        return found

    def rest_s(self, uid: str) -> float:
        """A claim waits, because there is no place that has not refused it: for how long yet."""
        now_s = asyncio.get_running_loop().time()
        until_s = self._rests_until_s.get(uid)
        if until_s is not None:
            return until_s - now_s
        self._rests_until_s[uid] = now_s + AGAIN_S
        return AGAIN_S

    def begin_anew(self, uid: str) -> None:
        """A claim is bound or gone, or is asked for everywhere again."""
        self._refusals.pop(uid, None)
        self._rests_until_s.pop(uid, None)


def place_of(request: CreateRequest) -> Place:
    """Where a request asks for a volume."""
    return Place(request.zone, request.outpost_arn or "")
