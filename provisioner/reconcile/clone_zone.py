"""Clone zone: where a clone is made, beside its source, with what the cluster says of its pods."""

from collections.abc import Awaitable, Callable

from provisioner.decide import clone as rules
from provisioner.decide import failover, zones
from provisioner.decide.consumers import Ties
from provisioner.decide.storage_class import ReadClass
from provisioner.ec2.zones import ZoneNames
from provisioner.model.claim import Claim
from provisioner.model.volume import Volume
from provisioner.model.zone import Place
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.consumers import WaitingPods

Found = zones.Chosen | zones.NoZone | failover.Moved


class BesideSource:
    """Chooses the places of clones.

    ``ties`` tells where the other volumes of a claim's pods are, as ``ZoneChoice`` knows it.
    """

    def __init__(
        self,
        driver: str,
        caches: Caches,
        zone_names: ZoneNames,
        waiting_pods: WaitingPods,
        ties: Callable[..., Awaitable[Ties]],
    ) -> None:
        self._driver = driver
        self._caches = caches
        self._zone_names = zone_names
        self._waiting_pods = waiting_pods
        self._ties = ties

    async def choose(
        self,
        claim: Claim,
        read_class: ReadClass,
        cloned: Volume,
        refusals: failover.Refusals,
        *,
        node: tuple[str, bool],
    ) -> Found | None:
        """The place of a clone of a volume; None: any other, to which it comes by a snapshot.

        ``node``: the one that says where its pods are, "" for any, and whether they are there.

        Raises:
            StorageError: something could not be read.
        """
        found = await self._choose(claim, read_class, rules.place_of(cloned), refusals, node)
        if not read_class.storage_class.clones_across_zones:
            return found
        return found if isinstance(found, zones.Chosen) else None

    async def may_follow(self, claim: Claim, read_class: ReadClass, cloned: Volume) -> bool:
        """Whether a clone of a volume may be made in the place that is written to its claim.

        Raises:
            Ec2Error: the class names zone ids, and EC2 could not be asked which zones they are.
        """
        pin = Place(claim.pinned_zone, claim.pinned_outpost_arn)
        needs_names = zones.needs_zone_names(read_class)
        names = await self._zone_names.by_id() if needs_names else None
        return rules.may_follow(read_class, pin, rules.place_of(cloned), names)

    async def _choose(
        self,
        claim: Claim,
        read_class: ReadClass,
        source: Place,
        refusals: failover.Refusals,
        node: tuple[str, bool],
    ) -> Found:
        name, is_settled = node
        if not name:
            needs_names = zones.needs_zone_names(read_class)
            names = await self._zone_names.by_id() if needs_names else None
            found = zones.candidates(read_class, self._caches.registered_places(), names)
            return rules.at_once(read_class, source, found, refusals)
        on, csi_node = await self._caches.node(name), await self._caches.csi_node(name)
        where = zones.for_selected_node(read_class, self._driver, name, on, csi_node)
        if on is None or isinstance(where, zones.NoZone):
            return where
        # Of two clones that can only be beside their sources, neither waits for the other.
        crosses = read_class.storage_class.clones_across_zones
        ties = await self._ties(claim, clones=crosses)
        consumers = self._waiting_pods.consumers(claim, ties, read_class)
        held = [ties.hold(pod, source, on) for pod in consumers.pods]
        # The scheduler may have chosen the node for one of several pods; there is no other place.
        is_held = any(held) if crosses else bool(held) and all(held)
        return rules.for_node(
            name, where, source, consumers, refusals, is_settled=is_settled, is_held=is_held
        )
