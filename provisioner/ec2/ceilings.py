"""How many IOPS a volume of a type may have in this region, learned from EC2 itself.

AWS raises these limits region by region and no call lists them. A CreateVolume that is only tried
(DryRun) with far too many is refused with a text that names the limit. The try carries our
ownership tags: AWS's recommended policies allow CreateVolume with those only.
Source: the texts are quoted in aws-ebs-csi-driver v1.64 pkg/cloud/cloud.go (read 2026-11-21).
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass

import structlog

from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.errors import NO_ANSWER, Ec2Error
from provisioner.model.tag_template import TagTemplate
from provisioner.model.volume import CreateRequest

FRESH_FOR_S = 12 * 3600.0
FAILED_FOR_S = 300.0  # a role without the right must not cost a call for every claim
TOO_MANY = 2**31 - 1
NAME = "IopsLimitDryRun"  # as the stock driver names its own
_SIZE_GIB = 4  # the least that every type with chosen IOPS has
_TOO_HIGH = re.compile(r"volume iops.*too high.*maximum is (\d{1,9})\b", re.IGNORECASE)
_TOO_HIGH_K = re.compile(r"\b(\d{1,6})K IOPS\b", re.IGNORECASE)

_Place = tuple[str, str | None]  # type, and ARN of the outpost

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    iops: int | None
    until_s: float


class Ceilings:
    """The ceilings of one region, and of each outpost in use.

    A type costs one call in twelve hours, however many ask meanwhile.
    """

    def __init__(
        self,
        volumes: Volumes,
        *,
        cluster_id: str,
        extra_tags: Iterable[TagTemplate],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call nothing yet.

        Args:
            volumes: the edge.
            cluster_id: "" for none.
            extra_tags: a policy of the account may ask for them.
            clock: monotonic seconds.
        """
        self._volumes = volumes
        self._tags = tried_tags(cluster_id, extra_tags)
        self._clock = clock
        self._known: dict[_Place, _Known] = {}
        self._asking: dict[_Place, asyncio.Task[int | None]] = {}

    async def of(self, request: CreateRequest) -> int | None:
        """The most IOPS that such a volume may have; None: EC2 does not say.

        ``request`` is of a type whose IOPS can be chosen. The answer for its zone is used for the
        whole region.

        Raises:
            Ec2Error: EC2 cannot be asked just now, and nothing is known from before.
        """
        place = _place(request)
        known = self._known.get(place)
        if known is not None and self._clock() < known.until_s:
            return known.iops
        asking = self._asking.get(place)
        if asking is None:
            # A context of its own: its log lines are not about the claim that asked first.
            asking = asyncio.create_task(
                self._ask(request), name=f"ceiling of {request.volume_type}", context=Context()
            )
            self._asking[place] = asking
            asking.add_done_callback(lambda done: self._asked(place, done))
        return await asyncio.shield(asking)

    def learn(self, request: CreateRequest, refusal: Exception) -> None:
        """A CreateVolume was refused; its text may name the ceiling when no dry run could."""
        iops = ceiling_in(refusal) if isinstance(refusal, Ec2Error) else None
        if iops is not None:
            self._remember(request, iops, FRESH_FOR_S)

    async def close(self) -> None:
        """Stop asking."""
        asking = list(self._asking.values())
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _asked(self, place: _Place, done: asyncio.Task[int | None]) -> None:
        self._asking.pop(place, None)
        if not done.cancelled():
            done.exception()  # the caller may have gone by then

    async def _ask(self, request: CreateRequest) -> int | None:
        tried = CreateRequest(
            client_token="",
            zone=request.zone,
            outpost_arn=request.outpost_arn,
            size_gib=_SIZE_GIB,
            volume_type=request.volume_type,
            iops=TOO_MANY,
            tags=self._tags,
        )
        try:
            refusal = await self._volumes.dry_run(tried)
        except Ec2Error as failure:
            # A request that is frozen now could not be lowered later.
            if failure.reason in NO_ANSWER and _place(request) not in self._known:
                raise
            return self._unknown(request, failure.message)
        iops = ceiling_in(refusal) if refusal is not None else None
        if refusal is not None and iops is None:
            return self._unknown(request, refusal.message)
        log.info("learned how many IOPS this region gives", type=request.volume_type, iops=iops)
        return self._remember(request, iops, FRESH_FOR_S)

    def _unknown(self, request: CreateRequest, why: str) -> int | None:
        """Go on with what was known, if anything was; ask again before long."""
        before = self._known.get(_place(request))
        log.warning(
            "cannot learn how many IOPS this region gives; requests for more are sent unchanged",
            type=request.volume_type,
            known=before.iops if before else None,
            error=why,
        )
        return self._remember(request, before.iops if before else None, FAILED_FOR_S)

    def _remember(self, request: CreateRequest, iops: int | None, for_s: float) -> int | None:
        self._known[_place(request)] = _Known(iops, self._clock() + for_s)
        return iops


def _place(request: CreateRequest) -> _Place:
    return request.volume_type, request.outpost_arn


def tried_tags(cluster_id: str, extra_tags: Iterable[TagTemplate]) -> tuple[tuple[str, str], ...]:
    """All tags that a volume of ours has: what the role may create, it may also try."""
    owner = tags.Owner("kube-system", NAME, NAME, "Delete")
    extra: dict[str, str] = {}
    for template in extra_tags:
        with suppress(ValueError):  # made for the names of real claims
            extra |= tags.rendered([template], owner)
    return tags.of_new_volume(owner, cluster_id=cluster_id, extra=extra)


def ceiling_in(refusal: Ec2Error) -> int | None:
    """The most IOPS that a refused CreateVolume names; None when it is about something else.

    Either text may come for either type: io2's depends on the zone (aws-ebs-csi-driver #2781).
    """
    if found := _TOO_HIGH.search(refusal.message):
        return int(found[1])
    if found := _TOO_HIGH_K.search(refusal.message):
        return int(found[1]) * 1000
    return None
