"""Planning: from a claim and its class to an attempt whose zone is pinned; nothing is sent yet."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from provisioner import clock
from provisioner.classes import iops_rules
from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.claims.zone_annotations import AFTER_CONFLICT, ZoneAnnotations
from provisioner.controller.modifying import class_rules
from provisioner.controller.ownership.takeover import Takeover
from provisioner.controller.placement.zone_choice import ZoneChoice
from provisioner.controller.placement.zone_rules import NoZone
from provisioner.controller.provisioning import rules
from provisioner.controller.provisioning.creation_rules import Attempt, inherited, with_volume
from provisioner.controller.shared.services import Services
from provisioner.controller.sources.origin import Origin, Sources
from provisioner.ec2.ceilings import Ceilings
from provisioner.model.claim import UNKNOWN_ZONE, Claim
from provisioner.model.decision import Later, Refuse
from provisioner.model.errors import Reason, StorageError
from provisioner.model.storage_class import StorageClass, VolumeAttributesClass
from provisioner.model.volume import Volume
from provisioner.model.zone import Place

_Revision = tuple[str, str]


class Planning:
    """Freezes what is made for claims, and writes down where before EC2 hears of it.

    Attributes:
        classes: as they were read, once a revision.
        ceilings: the most IOPS that the region gives.
    """

    def __init__(
        self,
        services: Services,
        *,
        annotations: ZoneAnnotations,
        takeover: Takeover,
        zones: ZoneChoice,
        sources: Sources,
        events: ClaimEvents,
        wake: Callable[[str], None],
    ) -> None:
        settings = self._settings = services.settings
        self._caches = services.caches
        self._annotations = annotations
        self._takeover = takeover
        self._zones = zones
        self._sources = sources
        self._events = events
        self._wake = wake
        self.classes = Classes()
        self.ceilings = Ceilings(
            services.volumes, cluster_id=settings.cluster_id, extra_tags=settings.extra_tags
        )

    def subscribe(self) -> None:
        """Have claims looked at whose VolumeAttributesClass was missing."""
        self._caches.attributes_classes.subscribe(self._attributes_class_changed)

    def _attributes_class_changed(
        self, _: VolumeAttributesClass | None, new: VolumeAttributesClass | None
    ) -> None:
        if new is not None:
            for claim in self._caches.claims.keyed("attributes_class", new.name):
                if not claim.spec.volume_name:
                    self._wake(claim.uid)

    async def plan(
        self, claim: Claim, storage_class: StorageClass
    ) -> Attempt | NoZone | Refuse | Later:
        """An attempt to begin, or why there is none now.

        Raises:
            StorageError: the class cannot be read, or nothing can be told or written now.
        """
        read_class = self._read(claim, storage_class)
        if claim.attributes_class_name:
            found = await self._caches.attributes_class(claim.attributes_class_name)
            born_with = class_rules.with_class(
                claim, read_class, found, driver=self._settings.driver
            )
            if isinstance(born_with, Refuse):
                return born_with
            read_class = born_with
        made = await self._made_before_us(claim)
        if isinstance(made, Later):
            return made
        claim = self._caches.claim(claim.uid) or claim  # a doubt may have been written to it
        origin = await self._origin(claim, read_class, made)
        if isinstance(origin, Refuse | Later):
            return origin
        made = made or origin.made
        where = await self._zones.choose(claim, read_class, made, origin.cloned)
        if isinstance(where, NoZone):
            return where
        begun = None
        try:
            begun = await self._begun(claim, read_class, where, made, origin)
        finally:
            if not isinstance(begun, Attempt):
                self._zones.is_open(claim.uid)
        return begun

    async def _origin(
        self, claim: Claim, read_class: ReadClass, made: Volume | None
    ) -> Origin | Refuse | Later:
        """As ``Sources.origin_of``; a pin that a clone may not follow does not count from now on.

        Something may have been begun there all the same, by another class of that name.
        """
        origin = await self._sources.origin_of(
            claim, read_class, made, may_have_begun=self._takeover.may_have_begun(claim.uid)
        )
        if not isinstance(origin, Origin) or origin.cloned is None:
            return origin
        if not claim.pinned_zone or not self._zones.may_have_begun(claim):
            return origin
        with self._events.looking(claim):
            if await self._zones.may_follow(claim, read_class, origin.cloned):
                return origin
        begun = await self._sources.begun(claim)
        if begun is not None:
            return begun
        self._takeover.settle(claim.uid)
        self._annotations.settle(claim.uid)
        return Origin(origin.source, origin.cloned)

    async def _begun(
        self,
        claim: Claim,
        read_class: ReadClass,
        where: Place,
        made: Volume | None,
        origin: Origin,
    ) -> Attempt | Refuse | Later:
        freeze = partial(
            rules.plan,
            read_class=read_class,
            zone=where.zone,
            outpost_arn=where.outpost_arn,
            cluster_id=self._settings.cluster_id,
            extra_tags=self._settings.extra_tags,
            default_file_system=self._settings.default_file_system,
        )
        planned = await self._under_ceiling(partial(freeze, claim, source=origin.source))
        if isinstance(planned, Refuse):
            return planned  # before a snapshot is taken for it, or its turn to be copied
        source = await self._sources.source_in(claim, read_class, origin, where)
        if isinstance(source, Refuse | Later):
            return source
        claim = self._caches.claim(claim.uid) or claim  # what it is made from may be noted on it
        if source is not origin.source:
            planned = await self._under_ceiling(partial(freeze, claim, source=source))
        if isinstance(planned, Refuse):
            return planned
        if not await self._annotations.write(claim, where.zone, where.outpost_arn, source):
            return AFTER_CONFLICT
        self._zones.written(claim)
        attempt = Attempt(planned, started_at_s=clock.now_s())
        if made is not None:
            attempt = with_volume(attempt, made, is_shown=True)
        if claim.pinned_zone and self._takeover.may_have_begun(claim.uid):
            return inherited(attempt, _age_s(claim))  # the process before us may have sent it
        return attempt

    async def _under_ceiling(
        self, freeze: Callable[..., rules.Plan | Refuse]
    ) -> rules.Plan | Refuse:
        """A plan whose IOPS are under the region's ceiling, which EC2 is asked for if need be.

        ``freeze`` makes it, given an ``iops_ceiling`` or none.

        Raises:
            Ec2Error: EC2 could not be asked, so nothing may be frozen.
        """
        planned = freeze()
        if isinstance(planned, Refuse):
            return planned
        request = planned.request
        if not iops_rules.depends_on_region(request.volume_type, request.iops):
            return planned
        with self._events.looking(planned.claim):
            ceiling = await self.ceilings.of(request)
        return planned if ceiling is None else freeze(iops_ceiling=ceiling)

    async def _made_before_us(self, claim: Claim) -> Volume | Later | None:
        """As ``Takeover.volume_of``, with the doubt written to the claim.

        Before the first look, as EC2 may not answer for long. A pin stays: it may be of one of ours
        that has searched for a minute already and then begun the volume there.
        """
        if self._takeover.is_in_doubt(claim) and not claim.pinned_zone:
            if not await self._annotations.write(claim, UNKNOWN_ZONE):
                return AFTER_CONFLICT
            claim = self._caches.claim(claim.uid) or claim
        with self._events.looking(claim):
            return await self._takeover.volume_of(claim)

    def _read(self, claim: Claim, storage_class: StorageClass) -> ReadClass:
        try:
            return self.classes.read(storage_class)
        except StorageError as error:
            self._events.failed(claim, error)
            raise


class Classes:
    """Each revision of a class is read once, however many claims name it; the newest is kept."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[_Revision, ReadClass | str]] = {}

    def read(self, storage_class: StorageClass) -> ReadClass:
        """The class as it is used.

        Raises:
            StorageError: INVALID_CLASS, with one sentence.
        """
        meta = storage_class.metadata
        revision = (meta.uid, meta.resource_version)
        known = self._read.get(storage_class.name)
        if known is None or known[0] != revision:
            known = (revision, _read(storage_class))
            self._read[storage_class.name] = known
        if isinstance(known[1], str):
            raise StorageError(Reason.INVALID_CLASS, f"class {storage_class.name!r}: {known[1]}")
        return known[1]

    def forget(self, name: str) -> None:
        """The class is gone."""
        self._read.pop(name, None)


def _read(storage_class: StorageClass) -> ReadClass | str:
    try:
        return read(storage_class)
    except ValueError as error:
        return str(error)


def _age_s(claim: Claim) -> float:
    created_at = claim.metadata.creation_timestamp
    return float("inf") if created_at is None else (datetime.now(UTC) - created_at).total_seconds()
