"""Lists fetched live, shared by all who ask at about the same time.

Deleting a volume needs proof that nothing else names it, and a cache is no proof. One list
answers everybody who asked before it began, so 1,000 deletions cost some dozen lists.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.ec2.coalescer import Coalescer
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import ATTACHMENTS, PERSISTENT_VOLUMES
from provisioner.model.attachment import Attachment
from provisioner.model.errors import KubeError, Reason
from provisioner.model.persistent_volume import PersistentVolume

_WINDOW_S = 0.02
_PACE_S = 0.1
# The API server has two thirds of the time for others, or at least so long between two lists:
# a rest in proportion to slow lists would be longer than the last look before a call may take.
_SHARE = 3
_REST_MAX_S = 2.0
_PACE_AFTER_A_FAILURE_S = 1.0
# While deletions go on, lists are fetched again and again at their pace, and nobody waits for the
# next one whose object a list of the last seconds shows: else each list would let 64 calls pass.
_RENEW_S = 0.1
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
        self._coalescer = Coalescer[Snapshot](self._answer, window_s=_WINDOW_S, fresh_for_s=0.0)
        self._latest: tuple[float, Snapshot] | None = None
        self._not_before_s = 0.0

    async def snapshot(self, *, since: str | None = None) -> Snapshot:
        """A snapshot that was begun after this call, or after what ``since`` tells.

        Args:
            since: take one of the last ten seconds too, if it was begun after this
                resourceVersion was written: then it shows an object at this version or a later
                one. A newer one is fetched meanwhile.

        Raises:
            KubeError: the lists could not be read whole; nobody may conclude anything.
        """
        if since is not None and self._latest is not None and since.isdecimal():
            at_s, latest = self._latest
            if latest.version >= int(since):
                if _now_s() - at_s > _RENEW_S:
                    self._coalescer.ask("")
                return latest
        return await self._coalescer.get("")

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
        """End what is under way."""
        await self._coalescer.close()

    async def _answer(self, keys: list[str]) -> dict[str, Snapshot]:
        """Fetch, at a pace that leaves the API server time for others."""
        await asyncio.sleep(max(0.0, self._not_before_s - _now_s()))
        began_s = _now_s()
        self._not_before_s = began_s + _PACE_AFTER_A_FAILURE_S
        snapshot = await self._fetch()
        took_s = _now_s() - began_s
        self._not_before_s = began_s + max(_PACE_S, min(_SHARE * took_s, took_s + _REST_MAX_S))
        self._latest = latest = _now_s(), snapshot
        asyncio.get_running_loop().call_later(_REUSE_S, self._forget, latest)
        return dict.fromkeys(keys, snapshot)

    def _forget(self, old: tuple[float, Snapshot]) -> None:
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
