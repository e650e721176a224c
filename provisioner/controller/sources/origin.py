"""Sources: all that a claim with a data source needs before its volume can be made.

The source is read from the caches, or live if they lack it. What was sent is frozen: if a volume
exists for the claim already, its own source counts, even if the objects have changed since. The
source that is written beside the zone does not count: the owner of a claim can edit it, and could
have a volume made from anyone's snapshot. It only says that a volume may have been started, so that
EC2 is searched before the claim is refused.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from provisioner import clock
from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.claims import source_rules as rules
from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.claims.zone_annotations import ZoneAnnotations
from provisioner.controller.ownership.takeover import GOING, Takeover
from provisioner.controller.placement import clone_rules as clones
from provisioner.controller.placement.flow import ZoneChoice
from provisioner.controller.shared.services import Services
from provisioner.controller.sources.cross_zone import CrossZoneClones, Tags
from provisioner.controller.sources.finalizers import SourceFinalizers
from provisioner.model.claim import CLAIM_KIND, SNAPSHOT_KIND, Claim, DataSource
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.data_source import Source
from provisioner.model.decision import Later, Refuse, Settled, WhenWoken
from provisioner.model.errors import Reason, StorageError
from provisioner.model.meta import KubeObject
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume
from provisioner.model.volume_snapshot import VolumeSnapshot, VolumeSnapshotContent
from provisioner.model.zone import Place

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a volume is made from.

    Attributes:
        source: None: an empty volume.
        cloned: the volume that is to be copied, where no copy is there yet.
        is_started: EC2 may have been asked for the volume already.
        made: the volume, if it is there already.
    """

    source: Source | None = None
    cloned: Volume | None = None
    is_started: bool = False
    made: Volume | None = None


class Sources:
    """What volumes are made from.

    ``wake`` queues a claim; ``in_flight`` gives the UIDs of the claims for which volumes are being
    made; ``is_in_use`` whether one of them is made from a source, given as ``Claim.source_key``.

    Attributes:
        finalizers: on the sources.
        cross_zone_clones: the snapshots by which clones come to other zones.
    """

    def __init__(
        self,
        services: Services,
        *,
        annotations: ZoneAnnotations,
        takeover: Takeover,
        zones: ZoneChoice,
        events: ClaimEvents,
        in_flight: Callable[[], Collection[str]],
        is_in_use: Callable[[str], bool],
        wake: Callable[[str], None],
    ) -> None:
        self._driver = services.settings.driver
        self._caches = services.caches
        self._reads = services.volume_reads
        self._lookups = services.lookups
        self._annotations = annotations
        self._takeover = takeover
        self._zones = zones
        self._events = events
        self._wake = wake
        self._looking_since_s: dict[str, float] = {}
        self._queue = CloneQueue(wake)
        self._waits_for_turn: set[str] = set()
        self.finalizers = SourceFinalizers(services, is_in_use=is_in_use)
        self.cross_zone_clones = CrossZoneClones(
            services, annotations=annotations, events=events, in_flight=in_flight
        )

    def subscribe(self) -> None:
        """Wake the claims that wait for a snapshot or for another claim."""
        self._caches.snapshots.subscribe(self._snapshot_changed)
        self._caches.contents.subscribe(self._content_changed)
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.persistent_volumes.subscribe(self._persistent_volume_changed)

    async def origin_of(
        self, claim: Claim, named: DataSource, read_class: ReadClass, made: Volume | None
    ) -> Origin | Refuse | Later:
        """What a claim's volume is made from, or why there is none.

        ``Later``: it is not known yet; ask again, with what was made by then.

        Args:
            claim: has a volume in the making, or none yet.
            named: its data source.
            read_class: its class.
            made: what the leader before us has made for it.

        Raises:
            StorageError: it could not be read.
        """
        if made is not None and (made.snapshot_id or made.source_volume_id):
            return _of_volume(made)
        with self._events.reporting(claim):
            found = await self._of_objects(claim, named, read_class)
        is_inherited = claim.pinned_zone and claim.uid in self._takeover.claims
        started = claim.pinned_source if is_inherited else None
        if isinstance(found, Refuse):
            return found if started is None else await self.find_started(claim) or found
        if started is not None:
            is_started = started.is_same(found.source) and _is_pinned_beside(claim, found.cloned)
            found = replace(found, is_started=is_started)
        if found.cloned is None or await self._may_use_pinned_zone(claim, read_class, found.cloned):
            return found
        return await self._outside_its_class(claim, found)

    async def _may_use_pinned_zone(
        self, claim: Claim, read_class: ReadClass, cloned: Volume
    ) -> bool:
        """Whether a clone may be made in the place that is written to its claim, if any is."""
        if not claim.pinned_zone or not self._zones.may_have_started(claim):
            return True
        with self._events.reporting(claim):
            return await self._zones.may_use_pinned_zone(claim, read_class, cloned)

    async def _outside_its_class(self, claim: Claim, found: Origin) -> Origin | Later:
        """The zone that is written to the claim does not count from now on.

        Something may have been started there all the same, by another class of that name.
        """
        started = await self.find_started(claim)
        if started is not None:
            return started
        self._takeover.settle(claim.uid)
        self._annotations.settle(claim.uid)
        return Origin(found.source, found.cloned)

    async def find_started(self, claim: Claim) -> Origin | Later | None:
        """What a volume is made from that was started for a claim before us; None: there is none.

        ``Later``: EC2 may not show it yet.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        with self._events.reporting(claim):
            named = await self._lookups.find(claim.persistent_volume_name)
        there = [each for each in named if each.state not in GOING]
        if there:
            return _of_volume(min(there, key=lambda volume: volume.volume_id))
        now_s = clock.now_s()
        looked_s = now_s - self._looking_since_s.setdefault(claim.uid, now_s)
        return Later(LOOK_AGAIN_S) if looked_s < CONSISTENCY_S else None

    async def source_in(
        self,
        claim: Claim,
        read_class: ReadClass,
        origin: Origin,
        where: Place,
        tags: Tags,
    ) -> Source | Refuse | Later | None:
        """What EC2 makes the volume from in that place; None: an empty volume.

        ``tags``: what the volume will have.

        The source of the claim is held from now on. A refusal may be that it is another claim's
        turn.

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
        if cloned is None or origin.is_started:
            return origin.source
        if where != cloned.place:
            return await self.cross_zone_clones.source_of(
                claim, read_class, cloned.volume_id, where.zone, tags
            )
        return self._not_its_turn(claim, cloned.volume_id) or origin.source

    def _not_its_turn(self, claim: Claim, volume_id: str) -> Refuse | None:
        ahead = self._queue.ahead_of(claim, volume_id)
        if not ahead:
            return None
        self._waits_for_turn.add(claim.uid)
        return Refuse(
            Reason.COPY_RATE,
            f"EC2 makes one copy of volume {volume_id} at a time; waiting for claim {ahead}, which "
            "came first",
            settled=True,
            normal=True,
        )

    async def in_turn(self, uid: str, looking: Awaitable[T]) -> T:
        """The result of a pass over a claim, which may take its turn.

        The turn is over, or the place in the queue lost, unless something was started, another pass
        is due soon, or only the turn is missing: a claim that waits for a node must not hold up the
        others.
        """
        self._waits_for_turn.discard(uid)
        goes_on = False
        try:
            found = await looking
            goes_on = not isinstance(found, WhenWoken | Settled) or uid in self._waits_for_turn
        finally:
            if not goes_on:
                self._queue.leave(uid)
        return found

    def ended(self, claim: Claim, *, keeps_its_turn: bool = False) -> None:
        """Nothing is being made for a claim any more; its turn is over unless it keeps it."""
        self.finalizers.release(claim)
        if not keeps_its_turn:
            self._queue.leave(claim.uid)

    def forget(self, uid: str) -> None:
        """A claim is bound or gone."""
        self._waits_for_turn.discard(uid)
        self._queue.leave(uid)
        self._looking_since_s.pop(uid, None)
        self.cross_zone_clones.forget(uid)

    async def close(self) -> None:
        """Stop asking EC2."""
        await self.cross_zone_clones.close()

    async def _of_objects(
        self, claim: Claim, source: DataSource, read_class: ReadClass
    ) -> Origin | Refuse:
        if not source.is_snapshot:
            return await self._clone(claim, source.name, read_class)
        found = await self._snapshot(claim, source.name)
        return found if isinstance(found, Refuse) else Origin(found)

    async def _snapshot(self, claim: Claim, name: str) -> Source | Refuse:
        caches, content = self._caches, None
        snapshot = await caches.snapshot(claim.metadata.namespace, name)
        if snapshot is not None:
            content = await caches.content(snapshot.content_name)
        return rules.of_snapshot(
            claim, snapshot, content, driver=self._driver, is_served=caches.has_snapshots
        )

    async def _clone(self, claim: Claim, name: str, read_class: ReadClass) -> Origin | Refuse:
        caches, persistent_volume = self._caches, None
        cloned = await caches.named_claim(claim.metadata.namespace, name)
        if cloned is not None:
            persistent_volume = await caches.persistent_volume(cloned.spec.volume_name)
        found = rules.of_claim(claim, cloned, persistent_volume, driver=self._driver)
        if isinstance(found, Refuse):
            return found
        volume = await self._reads.volume(found.volume_id)
        wrong = clones.refusal(read_class, found.volume_id, volume)
        if wrong is not None or volume is None:
            return wrong or Origin()
        return Origin(replace(found, size_gib=volume.size_gib), volume)

    def _snapshot_changed(self, old: VolumeSnapshot | None, new: VolumeSnapshot | None) -> None:
        self._wake_those_of(SNAPSHOT_KIND, (new or old or KubeObject()).key)

    def _content_changed(
        self, old: VolumeSnapshotContent | None, new: VolumeSnapshotContent | None
    ) -> None:
        content = new or old
        if content is not None:
            self._wake_those_of(SNAPSHOT_KIND, content.snapshot_key)

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        """Annotations of a claim change often; what matters is what it is bound to."""
        if old is None or new is None or (old.status, old.spec) != (new.status, new.spec):
            self._wake_those_of(CLAIM_KIND, (new or old or KubeObject()).key)

    def _persistent_volume_changed(
        self, old: PersistentVolume | None, new: PersistentVolume | None
    ) -> None:
        volume = new or old
        holder = volume.spec.claim_ref if volume is not None else None
        if holder is not None and (old is None or new is None or old.phase != new.phase):
            self._wake_those_of(CLAIM_KIND, f"{holder.namespace}/{holder.name}")

    def _wake_those_of(self, kind: str, key: str) -> None:
        for claim in self._caches.claims.keyed("source", f"{kind} {key}"):
            if not claim.spec.volume_name:
                self._wake(claim.uid)


class CloneQueue:
    """The claims that are cloned from each volume, in the order in which they came.

    EC2 makes one copy of a volume at a time, so its clones wait their turn.
    Source: EBS user guide "Copy an Amazon EBS volume" (read 2026-11-21).

    It is kept in memory: the next process starts an empty queue, and claims whose copy may have
    been started are not queued (see ``Sources.source_in``). ``wake`` queues a claim.
    """

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._lines: dict[str, dict[str, str]] = {}  # by volume: the claims' keys by their UIDs
        self._volume_of: dict[str, str] = {}

    def ahead_of(self, claim: Claim, volume_id: str) -> str:
        """The claim whose turn it is instead, as ``namespace/name``; "" when it is this one's.

        A claim keeps its place until it leaves.
        """
        if self._volume_of.get(claim.uid, volume_id) != volume_id:
            self.leave(claim.uid)
        self._volume_of[claim.uid] = volume_id
        line = self._lines.setdefault(volume_id, {})
        line.setdefault(claim.uid, claim.key)
        first = next(iter(line))
        return "" if first == claim.uid else line[first]

    def leave(self, uid: str) -> None:
        """A claim has got its copy, is gone, or cannot have one: the next one's turn."""
        volume_id = self._volume_of.pop(uid, None)
        if volume_id is None:
            return
        line = self._lines[volume_id]
        was_first = next(iter(line)) == uid
        del line[uid]
        if not line:
            del self._lines[volume_id]
        elif was_first:
            self._wake(next(iter(line)))


def _is_pinned_beside(claim: Claim, cloned: Volume | None) -> bool:
    """Whether the place written to a claim is one where the copy may have been started."""
    return cloned is None or claim.pinned_place == cloned.place


def _of_volume(made: Volume) -> Origin:
    of_copy = "" if made.snapshot_id else made.source_volume_id
    source = Source(snapshot_id=made.snapshot_id, volume_id=of_copy)
    return Origin(source, is_started=True, made=made)
