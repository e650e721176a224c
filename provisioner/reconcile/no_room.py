"""No room: what becomes of a claim whose zone EC2 refuses, or for which there is no zone now."""

from collections.abc import Callable

from provisioner.decide import zones
from provisioner.model.claim import Claim
from provisioner.model.errors import StorageError
from provisioner.model.volume import CreateRequest
from provisioner.reconcile.claim_events import ClaimEvents
from provisioner.reconcile.failover import place_of
from provisioner.reconcile.pins import CONFLICT_S, Pins
from provisioner.reconcile.zone_choice import ZoneChoice

ELSEWHERE_S = -1.0  # look again at once: in another zone


class NoRoom:
    """Asks for another node or another zone, or has the claim wait.

    Both methods answer the seconds until the next look, None when an event will bring it. ``count``
    logs and counts what is not tried again, with a word on what is done instead.
    """

    def __init__(
        self,
        pins: Pins,
        choice: ZoneChoice,
        events: ClaimEvents,
        count: Callable[[StorageError, str], None],
    ) -> None:
        self._pins = pins
        self._choice = choice
        self._events = events
        self._count = count

    async def refused(
        self, claim: Claim, asked: CreateRequest, error: StorageError
    ) -> float | None:
        """EC2 has refused a zone, and surely nothing is left there.

        Raises:
            KubeError: what was written to the claim cannot be taken back.
        """
        refusals = self._choice.refused(claim, asked, error)
        if claim.selected_node and not refusals.exclude(place_of(asked)):
            if await self._choice.is_elsewhere(claim.selected_node, asked.zone):
                await self._pins.remove(claim)  # the scheduler's newer choice was not tried yet
                return CONFLICT_S
            return await self._choose_again(claim, error)
        self._pins.settle(claim.uid)
        self._count(error, "another zone is looked for")
        return ELSEWHERE_S

    async def nowhere(self, claim: Claim, where: zones.NoZone) -> float | None:
        """There is no zone for a claim now.

        Raises:
            StorageError: it has to wait.
        """
        again_s = where.retry_after_s
        error = StorageError(where.reason, where.message, retry_after_s=again_s)
        self._events.failed(claim, error, once=again_s is not None)
        if where.choose_again:
            return await self._choose_again(claim, error)
        if again_s is not None:  # it was refused wherever it was begun
            await self._pins.remove(claim)
        raise error

    async def _choose_again(self, claim: Claim, why: StorageError) -> float | None:
        if not await self._pins.drop_node(claim):
            return CONFLICT_S
        self._count(why, "another node is asked for")
        return None
