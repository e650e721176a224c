"""What we write to claims before EC2 is asked: where a volume is being made, and what from.

The next leader then asks for the same volume. Nothing is written to a claim that has changed since
it was read.
"""

from collections.abc import Mapping

import structlog

from provisioner.controller.shared.caches import Caches
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import CLAIMS
from provisioner.model.claim import SELECTED_NODE, UNKNOWN_ZONE, Claim
from provisioner.model.data_source import Source
from provisioner.model.decision import Later
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Outcome
from provisioner.model.names import CROSS_ZONE_VOLUME, PINNED_SOURCE, PINNED_ZONE

AFTER_CONFLICT = Later(0.2)  # the claim has changed since it was seen

log = structlog.get_logger(__name__)


class ZoneAnnotations:
    """The zones written to claims, and which of them this process has written.

    Methods that return a bool return False if the claim has changed since it was read, or is gone:
    try again. They raise ``KubeError`` when refused, and at the second change in a row that our
    cache does not show: with a cache that stays behind, retrying would be a tight loop.
    """

    def __init__(self, client: KubeClient, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._written: set[str] = set()
        self._behind: set[str] = set()
        self._unsure: set[str] = set()  # the reply to what was written last was lost

    def has_written(self, uid: str) -> bool:
        """Whether this process wrote a zone to the claim and may have started a volume since."""
        return uid in self._written

    async def write(
        self, claim: Claim, zone: str, outpost_arn: str = "", source: Source | None = None
    ) -> bool:
        """Pin a zone and what Outpost in it, or ``UNKNOWN_ZONE``, and what is made into a volume.

        Without a source, the volume is an empty one.
        """
        wanted: dict[str, str | None] = {PINNED_ZONE: claim.pin(zone, outpost_arn)}
        if claim.source is not None:
            wanted[PINNED_SOURCE] = claim.note(str(source)) if source is not None else None
        is_there = all(claim.annotations.get(key) == value for key, value in wanted.items())
        done = True
        if not is_there or claim.uid in self._unsure:
            done = await self._annotate(claim, wanted)
        if done and zone != UNKNOWN_ZONE:
            self._written.add(claim.uid)
        return done

    async def write_cross_zone_volume(self, claim: Claim, volume_id: str) -> bool:
        """Write down that a snapshot of a volume may be taken for the claim.

        It stays there: all it does is make the next leader look for a snapshot first.
        """
        if claim.cross_zone_volume_id == volume_id:
            return True
        return await self._annotate(claim, {CROSS_ZONE_VOLUME: claim.note(volume_id)})

    def settle(self, uid: str) -> None:
        """Nothing is left of what was started; the next zone overwrites this one."""
        self._written.discard(uid)

    async def remove(self, claim: Claim) -> None:
        """Nothing is left of what was started: any zone may be next, for the next leader too."""
        self._written.discard(claim.uid)
        try:
            if PINNED_ZONE in claim.annotations or claim.uid in self._unsure:
                await self._annotate(claim, _unpinned(claim))
        except KubeError as error:
            log.info("the zone stays written to the claim", error=error.message)

    async def drop_node(self, claim: Claim) -> bool:
        """Ask the scheduler for another node. Only if it is certain that nothing is being made."""
        self._written.discard(claim.uid)
        return await self._annotate(claim, {SELECTED_NODE: None} | _unpinned(claim))

    def forget(self, uid: str) -> None:
        """A claim is bound or gone."""
        self._written.discard(uid)
        self._behind.discard(uid)
        self._unsure.discard(uid)

    async def _annotate(self, claim: Claim, annotations: Mapping[str, str | None]) -> bool:
        version = claim.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}
        try:
            changed = await self._client.patch(
                CLAIMS, claim.name, patch, kind=Patch.MERGE, namespace=claim.metadata.namespace
            )
        except KubeError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._unsure.add(claim.uid)
            is_behind = error.reason in CHANGED_MEANWHILE
            if not is_behind or claim.uid in self._behind:
                raise
            self._behind.add(claim.uid)
            return False
        self._behind.discard(claim.uid)
        self._unsure.discard(claim.uid)
        self._caches.claims.observe(changed)
        return True


def _unpinned(claim: Claim) -> dict[str, str | None]:
    both: dict[str, str | None] = {PINNED_ZONE: None}
    return both if claim.source is None else both | {PINNED_SOURCE: None}
