"""Lists fetched live, shared by all who ask at about the same time.

Deleting a volume needs proof that nothing else names it, and a cache is no proof. One list
answers everybody who asked before it began: at any time at most one is under way, and one more
waits to begin, which is for all who come meanwhile. So 1,000 deletions cost some dozen lists.
"""

import asyncio
from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass

from provisioner.kube.client import KubeClient
from provisioner.kube.resources import ATTACHMENTS, PERSISTENT_VOLUMES
from provisioner.model.attachment import Attachment
from provisioner.model.errors import KubeError, Reason
from provisioner.model.persistent_volume import PersistentVolume

_WINDOW_S = 0.02
_PACE_S = 0.25
# The API server has half of the time for others, or at least so long between two lists:
# a rest in proportion to slow lists would be longer than the last look before a call may take.
_SHARE = 2
_REST_MAX_S = 2.0
_PACE_AFTER_A_FAILURE_S = 1.0
_REUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All persistent volumes and attachments as the API server had them after the question.

    ``version``: what was written up to this resourceVersion is in it. ``names_by_volume``: the
    objects that name a volume, under whichever driver: one EBS volume may have been imported twice.
    """

    version: int
    persistent_volumes: Mapping[str, PersistentVolume]
    names_by_volume: Mapping[str, frozenset[str]]
    attachments_by_persistent_volume: Mapping[str, tuple[Attachment, ...]]

    @property
    def named_volume_ids(self) -> frozenset[str]:
        """The volumes that any persistent volume names."""
        return frozenset(self.names_by_volume)


class LiveLists:
    """Live, complete lists; a list in which an object cannot be read counts as failed."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._next: asyncio.Task[Snapshot] | None = None  # not begun: whoever asks gets this one
        self._under_way: asyncio.Task[Snapshot] | None = None
        self._latest: Snapshot | None = None
        self._not_before_s = 0.0

    async def snapshot(self, *, since: str | None = None) -> Snapshot:
        """A snapshot that was begun after this call, or after what ``since`` tells.

        Args:
            since: take one of the last ten seconds too, if it was begun after this
                resourceVersion was written: then it shows an object at this version or a later
                one. No proof for what cannot be undone.

        Raises:
            KubeError: the lists could not be read whole; nobody may conclude anything.
        """
        latest = self._latest
        if latest is not None and since and since.isdecimal() and latest.version >= int(since):
            return latest
        if self._next is None:
            # Its log lines are not about whoever asked first.
            self._next = asyncio.create_task(self._list(), name="live lists", context=Context())
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._next)

    async def nobody_names(self, volume_id: str) -> None:
        """The last look before a volume without a persistent volume is deleted.

        Raises:
            KubeError: a persistent volume names it, or that cannot be told.
        """
        names = (await self.snapshot()).names_by_volume.get(volume_id)
        if names:
            message = f"persistentvolume {min(names)} names volume {volume_id}, so it is kept"
            raise KubeError(Reason.CONFLICT, message)

    async def close(self) -> None:
        """End what is under way; whoever waits for it is cancelled."""
        tasks = [task for task in (self._next, self._under_way) if task is not None]
        self._next = self._under_way = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _list(self) -> Snapshot:
        """Fetch when it is time, at a pace that leaves the API server time for others."""
        if self._under_way is not None:
            await asyncio.wait({self._under_way})
        await asyncio.sleep(max(_WINDOW_S, self._not_before_s - _now_s()))
        # Whoever asks from here on gets another one: this one may lack what they must see.
        self._under_way, self._next = self._next, None
        began_s = _now_s()
        self._not_before_s = began_s + _PACE_AFTER_A_FAILURE_S
        snapshot = await self._fetch()
        took_s = _now_s() - began_s
        self._not_before_s = began_s + max(_PACE_S, min(_SHARE * took_s, took_s + _REST_MAX_S))
        self._latest = snapshot
        asyncio.get_running_loop().call_later(_REUSE_S, self._forget, snapshot)
        return snapshot

    def _forget(self, old: Snapshot) -> None:
        """5,000 persistent volumes are not kept for nobody."""
        if self._latest is old:
            self._latest = None

    async def _fetch(self) -> Snapshot:
        persistent_volumes = await self._client.list(PERSISTENT_VOLUMES)
        attachments = await self._client.list(ATTACHMENTS)
        if persistent_volumes.unreadable or attachments.unreadable:
            raise KubeError(
                Reason.UNREADABLE,
                "a persistent volume or attachment cannot be read (see the log line about it), "
                "so it is not certain which volumes are in use; nothing is deleted meanwhile",
            )
        names: dict[str, set[str]] = {}
        for persistent_volume in persistent_volumes.items:
            volume_id = persistent_volume.named_volume
            if volume_id:
                names.setdefault(volume_id, set()).add(persistent_volume.name)
        on: dict[str, tuple[Attachment, ...]] = {}
        for attachment in attachments.items:
            name = attachment.spec.source.persistent_volume_name or ""
            on[name] = (*on.get(name, ()), attachment)
        version = persistent_volumes.resource_version
        return Snapshot(
            int(version) if version.isdecimal() else 0,
            {p.name: p for p in persistent_volumes.items},
            {volume_id: frozenset(found) for volume_id, found in names.items()},
            on,
        )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
