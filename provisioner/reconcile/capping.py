"""Capping: plans are kept under the region's ceiling of IOPS, which EC2 is asked for if need be."""

from collections.abc import Callable

from provisioner.decide import capping as rules
from provisioner.decide.provision import Plan, Refuse
from provisioner.ec2.ceilings import Ceilings
from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import StorageError
from provisioner.model.volume import CreateRequest
from provisioner.settings import Settings


class Capping:
    """Plans whose IOPS may be above some region's ceiling wait until this region's is known."""

    def __init__(self, volumes: Volumes, settings: Settings) -> None:
        self._ceilings = Ceilings(
            volumes, cluster_id=settings.cluster_id, extra_tags=settings.extra_tags
        )

    async def planned(self, freeze: Callable[..., Plan | Refuse]) -> Plan | Refuse:
        """A plan under the ceiling; ``freeze`` makes it, given an ``iops_ceiling`` or none."""
        planned = freeze()
        if isinstance(planned, Refuse):
            return planned
        request = planned.request
        if not rules.depends_on_region(request.volume_type, request.iops):
            return planned
        ceiling = await self._ceilings.of(request)
        return planned if ceiling is None else freeze(iops_ceiling=ceiling)

    def learn(self, request: CreateRequest, refusal: StorageError) -> None:
        """EC2 has refused a request; the next plan takes to heart what it says about IOPS."""
        self._ceilings.learn(request, refusal)

    async def close(self) -> None:
        """Stop asking."""
        await self._ceilings.close()
