"""The reconciler: persistent volumes that the webhook did not review get what they lack.

They were made while no replica answered, while EC2 did not, before the webhook was installed, or in
a zone that had no node yet. One replica works, by a lease; two at once would do no harm, because
each write names the version that it was decided on.

The persistent volumes are those of the caches of reviews: a replica that begins to repair lists
none again. Thousands have the same few placements, so each is kept once, as the document that the
rules judge: whether something is to be done about 10,000 of them is told without asking the API
server for one.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import msgspec
import structlog

from provisioner import clock
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.kube.informer import Informer
from provisioner.kube.lease import Leases
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import Resource
from provisioner.model.backoff import Backoff
from provisioner.model.decision import SETTLED, Next
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject
from provisioner.model.node_affinity import zones_named
from provisioner.slices import in_slices
from provisioner.tell_once import TellOnce
from webhook.metrics import WebhookMetrics
from webhook.model.cluster_view import NodeView, VolumeView
from webhook.model.review import Json
from webhook.repairs import rules
from webhook.repairs.rules import LabelBackoff, Repair
from webhook.reviews import persistent_volume_zone_rules as zone_rules
from webhook.reviews.caches import Kept
from webhook.reviews.persistent_volume_rules import Doubt, Found, Missing, source_of
from webhook.reviews.persistent_volume_zone_rules import terms_in
from webhook.reviews.zone_lookup import ZoneLookup

WRONG_AFFINITY = "WrongNodeAffinity"
FOUGHT_OVER = "LabelsFoughtOver"

# As many volumes as fit into one call to EC2.
_TOGETHER = 200
# Handed over, or tried again, at once: beyond that, the API server gets no more of them.
_MOST_IN_HAND = 64
# By another webhook, a policy, or our own rights: looked at again with all others, not before.
_REFUSALS = frozenset({Reason.REJECTED, Reason.FORBIDDEN})
_ANSWER_S = 30.0
# While EC2 gives no answer.
_AGAIN = Backoff(2.0, 60.0)
_MOST_WARNED = 10_000
# Nodes come and go, and with them the labels that may be written.
_ALL_AGAIN_S = 600.0
# For so long the nodes of a look count as those of now: of 10,000 that have little in common, each
# judge takes milliseconds.
_JUDGE_FOR_S = 1.0

log = structlog.get_logger(__name__)

_KNOWN = 4096


class Whole(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A persistent volume with all of its ``spec``, as the rules take it."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def document(self) -> Json:
        """What the rules look at."""
        meta = self.metadata
        return {
            "metadata": {
                "name": meta.name,
                "labels": meta.labels,
                "resourceVersion": meta.resource_version,
                "deletionTimestamp": meta.deletion_timestamp,
            },
            "spec": self.spec,
        }


WHOLE = Resource("", "v1", "persistentvolumes", "PersistentVolume", Whole)


@lru_cache(maxsize=_KNOWN)
def needs_repair(
    placement: bytes, place: Found, writable: tuple[tuple[str, str], ...], keys: tuple[str, ...]
) -> bool:
    """Whether anything is to be done about volumes there that are placed so.

    Args:
        placement: of a ``VolumeView``.
        place: where EC2 has them.
        writable: ``zone_rules.writable`` of that zone, as items.
        keys: ``zone_rules.zone_keys`` of that zone.
    """
    return bool(rules.lacking(msgspec.json.decode(placement), "", place, dict(writable), keys))


@lru_cache(maxsize=_KNOWN)
def own_place(placement: bytes) -> Found | None:
    """The one zone that the affinity names; None if it is not one."""
    zones = list(zones_named(terms_in(msgspec.json.decode(placement))) or ())
    return Found(zones[0]) if len(zones) == 1 and zones[0] else None


def _placed(kept: Kept[VolumeView] | None) -> VolumeView | None:
    """What is kept of a persistent volume that may be repaired."""
    return kept.view if kept is not None and kept.view.placement else None


def _place(placed: VolumeView) -> tuple[str, bytes]:
    return placed.volume_id, placed.placement


class Repairs:
    """Repairs persistent volumes whenever this replica holds the lease.

    Args:
        client: of the API server.
        volumes: the persistent volumes on EBS; filled before ``run``.
        nodes: the views of all nodes as they are now, those that are alike once.
        lookup: tells the zones of volumes.
        leases: the one lease; losing it ends nothing but the repairs.
        events: where warnings go.
        metrics: counts what was done.
        driver: whose volumes these are, besides in-tree ones.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        volumes: Informer[Kept[VolumeView]],
        nodes: Callable[[], Collection[NodeView]],
        lookup: ZoneLookup,
        leases: Leases,
        events: EventRecorder,
        metrics: WebhookMetrics,
        driver: str,
    ) -> None:
        self.client = client
        self.volumes = volumes
        self.nodes = nodes
        self.lookup = lookup
        self.metrics = metrics
        self.driver = driver
        self.label_backoff = LabelBackoff()
        self._leases = leases
        self._events = events
        # Learned from the first refusal; tried again with everything else: it may be upgraded.
        self.affinity_is_fixed = False
        # Warnings that were given: once is enough.
        self._warned = TellOnce(most=_MOST_WARNED)
        self._term: _Term | None = None
        volumes.subscribe(self._changed)

    async def run(self) -> None:
        """Take the lease, work for as long as it is ours, and again."""
        while True:
            await self._leases.acquire()
            self.metrics.leader.set(1)
            log.info("repairing persistent volumes that the webhook did not review")
            self._term = _Term(self)
            working = asyncio.create_task(self._term.run(), name="repairs")
            holding = asyncio.create_task(self._leases.hold(), name="lease of repairs")
            try:
                await asyncio.wait({working, holding}, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()  # it never ends by itself but by a mistake
            finally:
                self._term = None
                self.metrics.leader.set(0)
                for task in (working, holding):
                    task.cancel()
                await asyncio.gather(working, holding, return_exceptions=True)

    def _changed(self, old: Kept[VolumeView] | None, new: Kept[VolumeView] | None) -> None:
        before, now = _placed(old), _placed(new)
        if now is None and old is not None:
            self.label_backoff.forget(old.name)
        changed = new or old
        if self._term is not None and changed is not None:
            self._term.changed(changed.name, before, now)

    def judge(self) -> Callable[[VolumeView, Found | None], bool]:
        """Whether a persistent volume says all that it can about a place, by the nodes of now."""

        @cache
        def known(zone: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
            nodes = self.nodes()
            return tuple(sorted(zone_rules.writable(zone, nodes).items())), zone_rules.zone_keys(
                zone, nodes
            )

        def fits(placed: VolumeView, place: Found | None) -> bool:
            return place is not None and not needs_repair(
                placed.placement, place, *known(place.zone)
            )

        return fits

    def warn(self, found: Whole, reason: str, message: str) -> None:
        """Tell people once, by an event, what only they can repair."""
        if not self._warned.is_news((found.uid, message)):
            return
        regarding = Regarding.of(found, WHOLE.kind)
        self._events.record(regarding, warning=True, reason=reason, message=message)
        self.metrics.repairs.labels("warned").inc()
        log.warning(
            "cannot repair a persistent volume completely",
            persistent_volume=found.name,
            why=message,
        )


class _Term:
    """One time for which the lease is held: what there is, what to look at, what to repair."""

    def __init__(self, of: Repairs) -> None:
        self._of = of
        self._queue = KeyedQueue("repairs", self._repair, of.metrics)
        # To look at, by name; False if its own affinity may be believed for the moment.
        self._pending: dict[str, bool] = {}
        # Of these EC2 has shown the volume where their affinity says. A volume never moves.
        self._confirmed: set[str] = set()
        self._fits = of.judge()
        self._fits_until_s = -math.inf
        self._wake = asyncio.Event()
        self._in_hand: set[str] = set()
        self._slots = asyncio.Semaphore(_MOST_IN_HAND)
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._queue.run, self._look, self._look_at_all):
                tasks.create_task(work(), name=work.__qualname__)

    def changed(self, name: str, before: VolumeView | None, now: VolumeView | None) -> None:
        """Look at a persistent volume that has come, or was placed otherwise.

        What appears was looked at by the webhook or written by a provisioner. If it is complete,
        EC2 is asked about it with all others, and not once for each: the controller lives on the
        same quota.
        """
        is_same = before is not None and now is not None and _place(before) == _place(now)
        if not is_same:
            self._confirmed.discard(name)
            if now is not None:
                self._add(name, ask=False)

    def _add(self, name: str, *, ask: bool) -> None:
        self._pending[name] = ask or self._pending.get(name, False)
        self._wake.set()

    async def _look_at_all(self) -> None:
        while True:
            async for kept in in_slices(self._of.volumes.values()):
                if _placed(kept) is not None:
                    self._add(kept.name, ask=True)
            await asyncio.sleep(_ALL_AGAIN_S)
            self._of.affinity_is_fixed = False

    async def _look(self) -> None:
        doubts = 0
        while True:
            while not self._pending:
                self._wake.clear()
                await self._wake.wait()
            chunk = dict(islice(self._pending.items(), _TOGETHER))
            for name in chunk:
                del self._pending[name]
            doubtful = await self._look_at(chunk)
            if not doubtful:
                doubts = 0
                continue
            for name in doubtful:
                self._add(name, ask=True)
            await asyncio.sleep(_AGAIN.pause_s(doubts))
            doubts += 1

    async def _look_at(self, chunk: Mapping[str, bool]) -> list[str]:
        """Hand over those that need a repair; the names of those about which EC2 did not answer."""
        fits = self._judge()
        asked = {
            name: placed
            for name, ask in chunk.items()
            if (placed := _placed(self._of.volumes.get(name))) is not None
            and (
                (ask and name not in self._confirmed)
                or not fits(placed, own_place(placed.placement))
            )
        }
        await asyncio.sleep(0)  # also if nothing is to be asked, of 100,000 together
        truths = await self._of.lookup.zones(placed.volume_id for placed in asked.values())
        doubtful = []
        for name, placed in asked.items():
            match truths[placed.volume_id]:
                case Doubt():
                    doubtful.append(name)
                case Missing():
                    self._of.metrics.repairs.labels("volume_missing").inc()
                case Found() as truth if not fits(placed, truth):
                    await self._hand_over(name)
                case truth:
                    self._confirm(name, placed, truth)
        return doubtful

    def _judge(self) -> Callable[[VolumeView, Found | None], bool]:
        if clock.now_s() > self._fits_until_s:
            self._fits = self._of.judge()
            self._fits_until_s = clock.now_s() + _JUDGE_FOR_S
        return self._fits

    def _confirm(self, name: str, placed: VolumeView, truth: Found) -> None:
        """Ask no more where the affinity says the same; one on an Outpost says more than a zone."""
        now = _placed(self._of.volumes.get(name))
        is_same = now is not None and _place(now) == _place(placed)
        if is_same and own_place(placed.placement) == truth:
            self._confirmed.add(name)

    async def _hand_over(self, name: str) -> None:
        rest_s = self._of.label_backoff.rest_s(name, clock.now_s())
        if rest_s > 0.0:  # nobody waits for it: it has no place among those in hand
            self._queue.add(name, after_s=rest_s)
            return
        while len(self._in_hand) >= _MOST_IN_HAND:
            self._room.clear()
            await self._room.wait()
        self._in_hand.add(name)
        self._queue.add(name)

    async def _repair(self, name: str) -> Next:
        """Repair one persistent volume as it is now; the queue tries again what fails."""
        try:
            async with self._slots:
                await self._repair_this(await self._of.client.get(WHOLE, name))
        except KubeError as error:
            if error.reason in _REFUSALS:
                log.warning("cannot repair", persistent_volume=name, error=error.message)
                self._of.metrics.repairs.labels("refused").inc()
            elif error.reason is not Reason.OBJECT_NOT_FOUND:
                self._of.metrics.repairs.labels("failed").inc()
                raise
        finally:
            # Also of what is tried again: as many failing ones must not keep the others waiting.
            self._in_hand.discard(name)
            self._room.set()
        return SETTLED

    async def _repair_this(self, found: Whole) -> None:
        document = found.document
        source = source_of(document, self._of.driver)
        if source is None:
            return
        deadline = clock.now_s() + _ANSWER_S
        truth = await self._of.lookup.zone(source.volume_id, deadline=deadline)
        if not isinstance(truth, Found):
            self._add(found.name, ask=True)
            return
        nodes = self._of.nodes()
        writable, keys = (
            zone_rules.writable(truth.zone, nodes),
            zone_rules.zone_keys(truth.zone, nodes),
        )
        todo = rules.lacking(document, source.volume_id, truth, writable, keys)
        corrected = todo.correction is not None and await self._correct(found.name, todo)
        if not corrected:
            if todo.warning:
                self._of.warn(found, WRONG_AFFINITY, todo.warning)
            patch = todo.merge_patch()
            if patch is None:
                return
            await self._of.client.patch(WHOLE, found.name, patch, kind=Patch.MERGE)
        if todo.labels and self._of.label_backoff.wrote(found.name, todo.labels, clock.now_s()):
            self._of.warn(found, FOUGHT_OVER, rules.fought_over(todo.labels, truth.zone))
        self._of.metrics.repairs.labels("repaired").inc()
        log.info(
            "repaired",
            persistent_volume=found.name,
            volume=source.volume_id,
            zone=truth.zone,
            labels=sorted(todo.labels),
            node_affinity=corrected or todo.node_affinity is not None,
        )

    async def _correct(self, name: str, todo: Repair) -> bool:
        """Replace a wrong node affinity; False where the API server does not allow that."""
        if self._of.affinity_is_fixed:
            return False
        patch = todo.merge_patch(correct=True)
        assert patch is not None  # noqa: S101 -- it has a correction
        try:
            await self._of.client.patch(WHOLE, name, patch, kind=Patch.MERGE)
        except KubeError as error:
            if error.reason not in _REFUSALS:
                raise
            # By the API server's validation, for it has not the gate: the same for all others.
            self._of.affinity_is_fixed = True
            return False
        return True
