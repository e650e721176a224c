"""Sources: all that a claim with a data source needs before its volume can be made."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from provisioner.decide.clone import place_of
from provisioner.decide.creation import Attempt
from provisioner.decide.provision import Refuse
from provisioner.decide.storage_class import ReadClass
from provisioner.decide.zones import Chosen
from provisioner.ec2.lookups import NameLookUps, VolumeReads
from provisioner.ec2.snapshots import Snapshots
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim
from provisioner.model.data_source import Source
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume import Volume
from provisioner.model.zone import Place
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.claim_events import ClaimEvents
from provisioner.reconcile.clone_queue import CloneQueue
from provisioner.reconcile.crossing import Crossings
from provisioner.reconcile.data_source import DataSources, Origin
from provisioner.reconcile.pins import Pins
from provisioner.reconcile.source_finalizers import SourceFinalizers
from provisioner.settings import Settings

T = TypeVar("T")


class Sources:
    """What volumes are made from.

    ``wake`` has a claim looked at again; ``attempts`` are those under way, by claim UID.

    Attributes:
        finalizers: on the sources.
        crossings: the snapshots by which clones come to other zones.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        client: KubeClient,
        caches: Caches,
        reads: VolumeReads,
        lookups: NameLookUps,
        snapshots: Snapshots,
        pins: Pins,
        events: ClaimEvents,
        metrics: Metrics,
        attempts: Mapping[str, Attempt],
        wake: Callable[[str], None],
    ) -> None:
        self._events = events
        self._data = DataSources(
            driver=settings.driver, caches=caches, reads=reads, lookups=lookups, wake=wake
        )
        self._queue = CloneQueue(wake)
        self._waits_for_turn: set[str] = set()
        self.finalizers = SourceFinalizers(
            driver=settings.driver,
            client=client,
            caches=caches,
            metrics=metrics,
            in_flight=lambda: {each.plan.claim.source_key for each in attempts.values()},
        )
        self.crossings = Crossings(
            settings=settings,
            caches=caches,
            snapshots=snapshots,
            pins=pins,
            events=events,
            in_flight=lambda: attempts,
        )

    def subscribe(self) -> None:
        """Have claims looked at when what they are made from changes."""
        self._data.subscribe()

    async def origin_of(
        self, claim: Claim, read_class: ReadClass, made: Volume | None, *, may_have_begun: bool
    ) -> Origin | Refuse | float:
        """As ``DataSources.origin_of``; its user is told what cannot be read."""
        try:
            return await self._data.origin_of(
                claim, read_class, made, may_have_begun=may_have_begun
            )
        except StorageError as error:
            self._events.cannot_look(claim, error)
            raise

    async def begun(self, claim: Claim) -> Origin | float | None:
        """As ``DataSources.begun``; its user is told what cannot be read."""
        try:
            return await self._data.begun(claim)
        except StorageError as error:
            self._events.cannot_look(claim, error)
            raise

    async def source_in(
        self, claim: Claim, read_class: ReadClass, origin: Origin, where: Chosen
    ) -> Source | Refuse | float | None:
        """What EC2 makes the volume from in that place; None: an empty volume.

        The source of the claim is held from now on. A refusal may be that it is another claim's
        turn; a number: ask again after so many seconds.

        Raises:
            StorageError: it cannot be told, or the source cannot be held.
        """
        if origin.source is None or origin.made is not None:
            return origin.source
        try:
            await self.finalizers.hold(claim)
        except StorageError as error:
            self._events.failed(claim, error)
            raise
        cloned = origin.cloned
        if cloned is None or origin.is_begun:
            return origin.source
        if Place(where.zone, where.outpost_arn) != place_of(cloned):
            return await self.crossings.source_of(claim, read_class, cloned.volume_id, where.zone)
        ahead = self._queue.ahead_of(claim, cloned.volume_id)
        if not ahead:
            return origin.source
        self._waits_for_turn.add(claim.uid)
        return Refuse(
            Reason.COPY_RATE,
            f"EC2 makes one copy of volume {cloned.volume_id} at a time, and claim {ahead} came "
            "first; this one is next in line or behind it",
            settled=True,
            normal=True,
        )

    async def in_turn(self, uid: str, looking: Awaitable[T]) -> T:
        """What a look at a claim comes to that may take its turn.

        The turn is over, or the place in line lost, unless something was begun, is to be looked at
        again soon, or waits for the turn alone: who waits for a node must not hold up the others.
        """
        self._waits_for_turn.discard(uid)
        goes_on = False
        try:
            found = await looking
            goes_on = found is not None or uid in self._waits_for_turn
        finally:
            if not goes_on:
                self._queue.leave(uid)
        return found

    def ended(self, claim: Claim, *, is_next: bool = False) -> None:
        """Nothing is being made for a claim any more; ``is_next``: its turn is not over yet."""
        self.finalizers.release(claim)
        if not is_next:
            self._queue.leave(claim.uid)

    def forget(self, uid: str) -> None:
        """A claim is bound or gone."""
        self._waits_for_turn.discard(uid)
        self._queue.leave(uid)
        self._data.forget(uid)
        self.crossings.forget(uid)

    async def close(self) -> None:
        """Stop asking EC2."""
        await self.crossings.close()
