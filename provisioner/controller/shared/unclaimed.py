"""The tag ``unclaimed`` of volumes: which have it, and its removal, in batches.

CreateVolume writes the tag. It is removed once a persistent volume names the volume, and nothing is
attached before EC2 has confirmed that. Volumes that an earlier process left with the tag are listed
at the start; until then every volume counts as tagged.

The tag proves that nobody has written to a volume only if every controller since its creation was
one of ours (see ``model/leadership.py``): another one may have attached it. So the tag is removed
from older volumes, and the sweep for orphans never deletes these.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

import structlog

from provisioner import clock
from provisioner.controller.shared.caches import Caches
from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.claim import Claim
from provisioner.model.errors import NEEDS_HUMAN, KubeError, Reason, StorageError
from provisioner.model.leadership import Epoch
from provisioner.model.names import UNCLAIMED, VOLUME_NAME
from provisioner.model.volume import Volume

_GATHER_S = 0.25  # gathers a batch: one DeleteTags serves many volumes
_BATCH = 500
_AGAIN_S = 2.0  # after a confirmation, descriptions may still show the tag for a while
_RETRY_S = 1.0
_FRESH_S = 30.0  # what was listed at the start is trusted this long
_DENIED_AGAIN_S = 60.0

_Waiters = dict[str, Callable[[], None]]  # who -> its wake

log = structlog.get_logger(__name__)


class Leadership:
    """The epoch of this leader: the one that the leases prove, or a new one.

    A new one is younger than all claims that exist when we take over, and than all tagged volumes
    that EC2 lists then, except those that we have created since. Its beginning is only known once
    both are; until then the tag proves nothing.

    Attributes:
        epoch: since when only our controllers have led; None while that is not known.
    """

    def __init__(self) -> None:
        self.epoch: Epoch | None = None
        self._older: datetime | None = None  # the last time of what precedes a new epoch
        self._began: asyncio.Future[Epoch] | None = None

    def take_over(self, proven: Epoch | None, claims: Iterable[Claim]) -> None:
        """Take what the leases prove, and the claims that exist now."""
        self.epoch = proven
        if proven is None:
            made_at = [claim.metadata.creation_timestamp for claim in claims]
            self._older = max([datetime.now(UTC), *filter(None, made_at)])
            self._began = asyncio.get_running_loop().create_future()

    def found(self, volumes: Iterable[Volume]) -> None:
        """Begin a new epoch, if none is proven, after all tagged volumes that we did not create."""
        if self._older is None or self._began is None or self.epoch is not None:
            return
        self.epoch = Epoch.after([self._older], (volume.created_at for volume in volumes))
        self._began.set_result(self.epoch)

    async def new_epoch(self) -> Epoch | None:
        """The epoch that begins with this process, once it is known; None if one was proven."""
        return await self._began if self._began is not None else None

    def covers(self, volume: Volume) -> bool:
        """Whether the volume was created in the epoch, so that its tag proves that it is unused."""
        return self.epoch is not None and self.epoch.covers(volume.created_at)


class UnclaimedTags:
    """Which volumes have the tag, as far as this process knows. Without a cluster id none has.

    Attributes:
        leadership: for which volumes the tag proves anything.
    """

    def __init__(self, volumes: Volumes, caches: Caches, *, cluster_id: str) -> None:
        self._volumes = volumes
        self._caches = caches
        self._cluster_id = cluster_id
        self._marked: set[str] = set()
        self._unused: dict[str, Volume] = {}
        self._found_any = False
        self._learned_at_s = 0.0
        self._learned = asyncio.Event()
        self._answered = asyncio.Event()  # listed, or it cannot be before somebody acts
        self._named_before: set[str] = set()  # of an earlier process: named, still tagged
        self._in_doubt: frozenset[str] = frozenset()  # an unreadable object may name these
        self._settled = asyncio.Event()
        if not cluster_id:
            self._learned.set()
            self._answered.set()
            self._settled.set()
        self._to_clear: dict[str, _Waiters] = {}
        self._confirmed_at: dict[str, float] = {}
        # Volumes whose tag EC2 refused to remove: when to try again, and the refusal.
        self._denied: dict[str, tuple[float, StorageError]] = {}
        self._work = asyncio.Event()
        self._waiting: _Waiters = {}
        self._cleared = asyncio.Event()
        self._cleared.set()
        self._trouble: StorageError | None = None
        self.leadership = Leadership()

    @property
    def is_fresh(self) -> bool:
        """Whether what was listed at the start may be acted on without asking EC2 again."""
        return self._now() - self._learned_at_s <= _FRESH_S

    async def volume_for(self, name: str) -> Volume | None:
        """A volume that an earlier process created for this name, as it was at the start.

        Raises:
            StorageError: EC2 cannot be asked until somebody acts.
        """
        await self._known()
        found = self._unused.get(name)
        if found is not None and found.volume_id in self._in_doubt:
            await self._caches.certain(self._caches.persistent_volumes)
            if self._caches.persistent_volumes.keyed("volume", found.volume_id):
                return None
        return found

    async def found_any(self) -> bool:
        """Whether any volume had the tag at the start, so that one of ours has led before.

        Raises:
            StorageError: EC2 cannot be asked until somebody acts.
        """
        await self._known()
        return self._found_any

    async def _known(self) -> None:
        await self._answered.wait()
        why = self._trouble
        if why is not None and not self._learned.is_set():
            raise StorageError(why.reason, why.message, retry_after_s=why.retry_after_s)

    async def settled(self) -> None:
        """Return once the tag is gone from all volumes that were named at the start.

        Volumes whose tag EC2 refuses to remove are not waited for; see ``may_be_in_use``.
        """
        await self._settled.wait()

    def may_be_in_use(self, volume_id: str) -> bool:
        """Whether it was named at the start, and its tag is not off: then the tag proves nothing.

        Whether an object that cannot be read may name it is for the caller to find out.
        """
        return volume_id in self._named_before

    def note(self, volume_id: str) -> None:
        """A volume was created with the tag."""
        if self._cluster_id:
            self._marked.add(volume_id)

    def is_tagged(self, volume_id: str) -> bool:
        """Whether it may have the tag."""
        return not self._learned.is_set() or volume_id in self._marked

    def trouble_with(self, volume_id: str) -> StorageError | None:
        """Why its tag cannot be removed at present, for the user whose attachment waits."""
        _, denial = self._denied.get(volume_id, (0.0, None))
        return denial or self._trouble

    def remove(
        self, volume_id: str, wake: Callable[[], None] | None = None, *, who: str = ""
    ) -> None:
        """Have the tag removed, with those of other volumes.

        Args:
            volume_id: the volume.
            wake: called once EC2 has confirmed it, and when the reason for a delay changes.
            who: the waiter's key; the last ``wake`` of each is kept.
        """
        if not self._learned.is_set():
            if wake is not None:
                self._waiting[who] = wake
            return
        confirmed = self._confirmed_at.get(volume_id)
        if confirmed is not None and self._now() - confirmed < _AGAIN_S:
            if wake is not None:
                asyncio.get_running_loop().call_later(_AGAIN_S, wake)
            return
        self._cleared.clear()
        wakes = self._to_clear.setdefault(volume_id, {})
        if wake is not None:
            wakes[who] = wake
        self._work.set()

    async def flush(self, timeout_s: float) -> None:
        """Wait until no removal is pending, so that the next leader finds none."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._cleared.wait()
        except TimeoutError:
            log.warning(
                "some unclaimed tags are not removed yet; the next leader removes them",
                left=len(self._to_clear),
            )

    def forget(self, volume_id: str) -> None:
        """The volume was deleted."""
        self._marked.discard(volume_id)
        self._to_clear.pop(volume_id, None)
        self._denied.pop(volume_id, None)
        self._unused = {k: v for k, v in self._unused.items() if v.volume_id != volume_id}
        self._unmarked([volume_id])
        if not self._to_clear:
            self._cleared.set()

    async def run(self) -> None:
        """List tagged volumes, then remove tags until cancelled."""
        if self._learned.is_set():
            self.leadership.found([])
        while not self._learned.is_set():
            try:
                await self._learn()
            except StorageError as error:
                log.warning("cannot list unclaimed volumes yet", error=error.message)
                await self._pause(error)
        self._trouble = None
        while True:
            await self._work.wait()
            await asyncio.sleep(_GATHER_S)
            await self._clear_batch()

    async def _learn(self) -> None:
        wanted = {**tags.of_cluster(self._cluster_id), UNCLAIMED: None}
        found = await self._volumes.find(tags=wanted)
        named = await self._named(found)
        self.leadership.found(v for v in found if v.volume_id not in self._marked)
        self._found_any = any(volume.volume_id not in self._marked for volume in found)
        self._marked |= {volume.volume_id for volume in found}
        self._learned_at_s = self._now()
        self._named_before = {v.volume_id for v in found if v.volume_id in named}
        self._in_doubt = self._doubtful(frozenset(v.volume_id for v in found) - named)
        self._learned.set()
        self._answered.set()
        self._unmarked([])
        for volume in sorted(found, key=lambda volume: volume.volume_id):
            if volume.volume_id in named or not self.leadership.covers(volume):
                self.remove(volume.volume_id)
            else:
                self._unused.setdefault(volume.tags.get(VOLUME_NAME, ""), volume)
        if found:
            log.info("found unclaimed volumes", found=len(found), to_untag=len(self._to_clear))
        for wake in self._waiting.values():
            wake()
        self._waiting.clear()

    async def _named(self, found: Collection[Volume]) -> frozenset[str]:
        """Those that a persistent volume names now, by the API server."""
        persistent_volumes = self._caches.persistent_volumes
        if found:
            await self._caches.catch_up(persistent_volumes)
        ids = (volume.volume_id for volume in found)
        return frozenset(each for each in ids if persistent_volumes.keyed("volume", each))

    def _doubtful(self, unnamed: frozenset[str]) -> frozenset[str]:
        """Those that an unreadable object may name: they may be attached, but not used."""
        try:
            self._caches.check_readable(self._caches.persistent_volumes)
        except KubeError as error:
            if unnamed:
                log.warning(
                    "volumes created by the previous leader are not used for their claims yet",
                    volumes=len(unnamed),
                    error=error.message,
                )
            return unnamed
        return frozenset()

    async def _clear_batch(self) -> None:
        batch = self._next_batch()
        if not batch:
            self._work.clear()
            return
        was_denied = self._is_denied_everything()
        try:
            refused = await self._volumes.untag(batch, UNCLAIMED)
        except StorageError as error:
            log.warning("cannot remove unclaimed tags yet", volumes=len(batch), error=error.message)
            await self._pause(error)
            return
        for volume_id, denial in refused.items():
            self._set_aside(volume_id, denial)
        if len(refused) < len(batch):
            self._confirm([each for each in batch if each not in refused])
        elif was_denied:
            await self._pause(refused[batch[0]])

    def _next_batch(self) -> list[str]:
        """The volumes to ask for next; a single one while everything is denied.

        Those that were denied before come last, or a dozen of them would hold up every new one.
        """
        now = self._now()
        again = [v for v, (at_s, _) in self._denied.items() if at_s <= now]
        most = 1 if self._is_denied_everything() else _BATCH
        return [*(v for v in self._to_clear if v not in self._denied), *again][:most]

    def _set_aside(self, volume_id: str, denial: StorageError) -> None:
        """Leave it out for a while; it comes last after that."""
        waiters = self._to_clear.pop(volume_id, None)
        if waiters is None:
            return  # deleted meanwhile
        self._to_clear[volume_id] = waiters
        again_s = denial.retry_after_s or _DENIED_AGAIN_S
        self._denied.pop(volume_id, None)  # the last one among those too
        self._denied[volume_id] = self._now() + again_s, denial
        asyncio.get_running_loop().call_later(again_s, self._work.set)
        log.warning(
            "EC2 refuses to remove the unclaimed tag of a volume; until it is removed, the volume "
            "is not attached and the sweep for orphans ignores it",
            volume=volume_id,
            error=denial.message,
        )
        self._unmarked([])
        for wake in waiters.values():
            wake()

    def _is_denied_everything(self) -> bool:
        return self._trouble is not None and self._trouble.reason is Reason.PERMISSION_DENIED

    def _confirm(self, batch: list[str]) -> None:
        self._trouble = None
        self._unmarked(batch)
        now = self._now()
        self._confirmed_at = {
            k: at for k, at in self._confirmed_at.items() if now - at < _AGAIN_S
        } | dict.fromkeys(batch, now)
        for volume_id in batch:
            self._marked.discard(volume_id)
            self._denied.pop(volume_id, None)
            for wake in self._to_clear.pop(volume_id, {}).values():
                wake()
        if not self._to_clear:
            self._work.clear()
            self._cleared.set()

    async def _pause(self, error: StorageError) -> None:
        """Wake all waiters, so that they tell their users why, then wait before the next try."""
        if self._trouble is None or self._trouble.reason is not error.reason:
            self._trouble = error  # later messages differ only in the number of volumes
            for waiters in (self._waiting, *self._to_clear.values()):
                for wake in waiters.values():
                    wake()
        if error.reason in NEEDS_HUMAN:
            self._answered.set()
        await asyncio.sleep(error.retry_after_s or _RETRY_S)
        if not self._learned.is_set():
            self._answered.clear()

    def _unmarked(self, volume_ids: Iterable[str]) -> None:
        self._named_before.difference_update(volume_ids)
        if self._learned.is_set() and self._named_before <= self._denied.keys():
            self._settled.set()

    @staticmethod
    def _now() -> float:
        return clock.now_s()
