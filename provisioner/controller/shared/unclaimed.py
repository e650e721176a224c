"""The mark of a volume without an owner: known, taken off in batches, confirmed.

CreateVolume writes the mark; it comes off once a persistent volume names the volume, and nothing
is attached before EC2 has confirmed that. What a process before us has left marked is learned at
the start; until then every volume counts as marked.

A mark proves that nobody has written to the volume only if every controller since its creation was
ours (see ``model/leadership.py``): another one may have attached it. Marks of older volumes come
off, and the sweep touches none of these, with or without their marks.
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
from provisioner.model.leadership import Reign
from provisioner.model.names import UNCLAIMED
from provisioner.model.volume import Volume

_GATHER_S = 0.25  # so long a batch is gathered: one DeleteTags then serves many volumes
_BATCH = 500
_AGAIN_S = 2.0  # after a confirmation, descriptions may show the mark for a while
_RETRY_S = 1.0
_FRESH_S = 30.0  # so long what was learned at the start is taken for true
_DENIED_AGAIN_S = 60.0

_Waiters = dict[str, Callable[[], None]]  # who -> its wake

log = structlog.get_logger(__name__)


class Lineage:
    """Whether what is found at the start was made under our own reign.

    Where the leases prove none, one begins: all claims that are there when we take over are older,
    and all marked volumes that EC2 lists then and that we have not made since. Only with both is it
    known since when a later leader may trust marks, so until then no mark proves anything.

    Attributes:
        reign: since when only ours have led; None: that is not known, or not yet.
    """

    def __init__(self) -> None:
        self.reign: Reign | None = None
        self._older: list[datetime] | None = None  # times of what is older than a new reign
        self._began: asyncio.Future[Reign] | None = None

    def take_over(self, proven: Reign | None, claims: Iterable[Claim]) -> None:
        """Note what the leases prove, and which claims there are."""
        self.reign = proven
        if proven is None:
            made_at = [claim.metadata.creation_timestamp for claim in claims]
            self._older = [datetime.now(UTC), *filter(None, made_at)]
            self._began = asyncio.get_running_loop().create_future()

    def found(self, volumes: Iterable[Volume]) -> None:
        """These marked volumes, made by others, are all that there are: a new reign is known."""
        if self._older is None or self._began is None or self.reign is not None:
            return
        self.reign = Reign.after(self._older, (volume.created_at for volume in volumes))
        self._began.set_result(self.reign)

    async def new_reign(self) -> Reign | None:
        """The reign that begins with this process, once it is known; None: there was one."""
        return await self._began if self._began is not None else None

    def proves(self, volume: Volume) -> bool:
        """Whether the volume's mark, if it has one, proves that nobody has written to it."""
        return self.reign is not None and self.reign.covers(volume.created_at)


class Marks:
    """Which volumes are marked, as far as this process knows. Without a cluster id none is.

    Attributes:
        lineage: for which volumes a mark proves anything.
    """

    def __init__(self, volumes: Volumes, caches: Caches, *, cluster_id: str) -> None:
        self._volumes = volumes
        self._caches = caches
        self._cluster_id = cluster_id
        self._marked: set[str] = set()
        self._unowned: dict[str, Volume] = {}
        self._found_some = False
        self._learned_at_s = 0.0
        self._learned = asyncio.Event()
        self._answered = asyncio.Event()  # learned, or not to be learned before somebody acts
        self._left_behind: set[str] = set()  # named, and still marked by a process before us
        self._in_doubt: frozenset[str] = frozenset()  # by an object that could not be read
        self._settled = asyncio.Event()
        if not cluster_id:
            self._learned.set()
            self._answered.set()
            self._settled.set()
        self._to_clear: dict[str, _Waiters] = {}
        self._confirmed_at: dict[str, float] = {}
        # What may not be untagged, as it seemed the last time: until when nobody asks for it again,
        # and why.
        self._denied: dict[str, tuple[float, StorageError]] = {}
        self._work = asyncio.Event()
        self._waiting: _Waiters = {}
        self._cleared = asyncio.Event()
        self._cleared.set()
        self._trouble: StorageError | None = None
        self.lineage = Lineage()

    @property
    def is_fresh(self) -> bool:
        """Whether what was learned at the start may be acted on without another look."""
        return self._now() - self._learned_at_s <= _FRESH_S

    async def unowned(self, name: str) -> Volume | None:
        """A volume that a process before us made for this name, as it was at the start.

        Raises:
            StorageError: it cannot be told before somebody acts.
        """
        await self._known()
        found = self._unowned.get(name)
        if found is not None and found.volume_id in self._in_doubt:
            await self._caches.certain(self._caches.persistent_volumes)
            if self._caches.persistent_volumes.keyed("volume", found.volume_id):
                return None
        return found

    async def found_some(self) -> bool:
        """Whether any volume was marked at the start, so that one of ours has led before.

        Raises:
            StorageError: it cannot be told before somebody acts.
        """
        await self._known()
        return self._found_some

    async def _known(self) -> None:
        await self._answered.wait()
        why = self._trouble
        if why is not None and not self._learned.is_set():
            raise StorageError(why.reason, why.message, retry_after_s=why.retry_after_s)

    async def settled(self) -> None:
        """Return once no volume is marked any more that was named at the start.

        One whose mark may not be taken off is waited for no longer; see ``is_left_behind``.
        """
        await self._settled.wait()

    def is_left_behind(self, volume_id: str) -> bool:
        """Whether it was, or may have been, named at the start, and was marked: no proof."""
        return volume_id in self._left_behind or volume_id in self._in_doubt

    def note(self, volume_id: str) -> None:
        """A volume was created with the mark."""
        if self._cluster_id:
            self._marked.add(volume_id)

    def is_marked(self, volume_id: str) -> bool:
        """Whether it may carry the mark."""
        return not self._learned.is_set() or volume_id in self._marked

    def trouble_with(self, volume_id: str) -> StorageError | None:
        """Why its mark cannot be taken off at present, for the user whose attachment waits."""
        _, denial = self._denied.get(volume_id, (0.0, None))
        return denial or self._trouble

    def clear(
        self, volume_id: str, wake: Callable[[], None] | None = None, *, who: str = ""
    ) -> None:
        """Take the mark off.

        Args:
            volume_id: the volume.
            wake: called once EC2 has confirmed it, and when there is news of what prevents it.
            who: waits; one wake each is kept, however often it asks.
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
        """Wait until the marks that are to come off are off: whoever comes next must find none."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._cleared.wait()
        except TimeoutError:
            log.warning(
                "some marks stay on; the next leader takes them off", left=len(self._to_clear)
            )

    def forget(self, volume_id: str) -> None:
        """The volume was deleted."""
        self._marked.discard(volume_id)
        self._to_clear.pop(volume_id, None)
        self._denied.pop(volume_id, None)
        self._unowned = {k: v for k, v in self._unowned.items() if v.volume_id != volume_id}
        self._unmarked([volume_id])
        if not self._to_clear:
            self._cleared.set()

    async def run(self) -> None:
        """Learn what is marked, then take marks off for ever."""
        if self._learned.is_set():
            self.lineage.found([])
        while not self._learned.is_set():
            try:
                await self._learn()
            except StorageError as error:
                log.warning("cannot tell yet which volumes are unclaimed", error=error.message)
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
        self.lineage.found(v for v in found if v.volume_id not in self._marked)
        self._found_some = any(volume.volume_id not in self._marked for volume in found)
        self._marked |= {volume.volume_id for volume in found}
        self._learned_at_s = self._now()
        self._left_behind = {v.volume_id for v in found if v.volume_id in named}
        self._in_doubt = self._doubtful(frozenset(v.volume_id for v in found) - named)
        self._learned.set()
        self._answered.set()
        self._unmarked([])
        for volume in sorted(found, key=lambda volume: volume.volume_id):
            if volume.volume_id in named or not self.lineage.proves(volume):
                self.clear(volume.volume_id)
            else:
                self._unowned.setdefault(volume.tags.get(tags.VOLUME_NAME, ""), volume)
        if found:
            log.info("found volumes with the mark", marked=len(found), cleared=len(self._to_clear))
        for wake in self._waiting.values():
            wake()
        self._waiting.clear()

    async def _named(self, found: Collection[Volume]) -> frozenset[str]:
        """Those that a persistent volume names, by what the API server has now."""
        persistent_volumes = self._caches.persistent_volumes
        if found:
            await self._caches.catch_up(persistent_volumes)
        ids = (volume.volume_id for volume in found)
        return frozenset(each for each in ids if persistent_volumes.keyed("volume", each))

    def _doubtful(self, unnamed: frozenset[str]) -> frozenset[str]:
        """Those that an object may name that cannot be read: attached they may be, not taken."""
        try:
            self._caches.check_readable(self._caches.persistent_volumes)
        except KubeError as error:
            if unnamed:
                log.warning(
                    "volumes that the controller before us made are not used for their claims yet",
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
            log.warning("cannot take marks off yet", volumes=len(batch), error=error.message)
            await self._pause(error)
            return
        for volume_id, denial in refused.items():
            self._set_aside(volume_id, denial)
        if len(refused) < len(batch):
            self._confirm([each for each in batch if each not in refused])
        elif was_denied:
            await self._pause(refused[batch[0]])

    def _next_batch(self) -> list[str]:
        """Those that may be asked for; one alone while everything is denied.

        Those that were denied before are the last: else a dozen of them hold up every new one.
        """
        now = self._now()
        again = [v for v, (at_s, _) in self._denied.items() if at_s <= now]
        most = 1 if self._is_denied_everything() else _BATCH
        return [*(v for v in self._to_clear if v not in self._denied), *again][:most]

    def _set_aside(self, volume_id: str, denial: StorageError) -> None:
        """Go on without it for a while; it is the last one then."""
        waiters = self._to_clear.pop(volume_id, None)
        if waiters is None:
            return  # deleted meanwhile
        self._to_clear[volume_id] = waiters
        again_s = denial.retry_after_s or _DENIED_AGAIN_S
        self._denied.pop(volume_id, None)  # the last one among those too
        self._denied[volume_id] = self._now() + again_s, denial
        asyncio.get_running_loop().call_later(again_s, self._work.set)
        log.warning(
            "a volume's mark may not be taken off; until it is, it is not attached, and the sweep "
            "for orphans leaves it alone",
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
        """Let those who wait tell their users why, then wait until another try is worth it."""
        if self._trouble is None or self._trouble.reason is not error.reason:
            self._trouble = error  # the texts of later ones differ by the number of volumes only
            for waiters in (self._waiting, *self._to_clear.values()):
                for wake in waiters.values():
                    wake()
        if error.reason in NEEDS_HUMAN:
            self._answered.set()
        await asyncio.sleep(error.retry_after_s or _RETRY_S)
        if not self._learned.is_set():
            self._answered.clear()

    def _unmarked(self, volume_ids: Iterable[str]) -> None:
        self._left_behind.difference_update(volume_ids)
        if self._learned.is_set() and self._left_behind <= self._denied.keys():
            self._settled.set()

    @staticmethod
    def _now() -> float:
        return clock.now_s()
