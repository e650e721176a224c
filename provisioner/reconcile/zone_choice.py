"""Zone choice: the zone in which a claim's volume is made, from the pin, the node or the class."""

from collections.abc import Callable

from provisioner.decide import zones
from provisioner.decide.storage_class import ReadClass
from provisioner.ec2.zones import ZoneNames
from provisioner.model.claim import Claim
from provisioner.model.node import CsiNode, Node
from provisioner.model.zone import zone_of
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.pins import Pins
from provisioner.reconcile.takeover import Takeover


class ZoneChoice:
    """Chooses zones; remembers the claims that found none, until a node could help them.

    ``wake`` has a claim looked at again.
    """

    def __init__(
        self,
        *,
        driver: str,
        caches: Caches,
        zone_names: ZoneNames,
        pins: Pins,
        takeover: Takeover,
        wake: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._caches = caches
        self._zone_names = zone_names
        self._pins = pins
        self._takeover = takeover
        self._wake = wake
        self._without_zone: set[str] = set()

    def subscribe(self) -> None:
        """Have claims without a zone looked at when a node registers or gets its zone."""
        self._caches.csi_nodes.subscribe(self._registration_changed)
        self._caches.nodes.subscribe(self._node_changed)

    async def choose(self, claim: Claim, read_class: ReadClass) -> zones.Chosen | zones.NoZone:
        """The zone of a claim for which nothing is under way in this process.

        Raises:
            Ec2Error: the class names zone ids, and EC2 could not be asked which zones they are.
        """
        where = await self._choose(claim, read_class)
        if isinstance(where, zones.NoZone):
            self._without_zone.add(claim.uid)
        return where

    async def is_elsewhere(self, node_name: str, zone: str) -> bool:
        """Whether a node is surely in another zone."""
        node = await self._caches.node(node_name)
        of_node = zone_of(node.labels) if node is not None else None
        return of_node is not None and of_node != zone

    def forget(self, uid: str) -> None:
        """A claim is bound or gone."""
        self._without_zone.discard(uid)

    async def _choose(self, claim: Claim, read_class: ReadClass) -> zones.Chosen | zones.NoZone:
        # Anybody can write an annotation; it counts only where something may have been begun.
        begun = self._pins.has_written(claim.uid) or self._takeover.may_have_begun(claim.uid)
        if claim.pinned_zone and begun:
            return zones.Chosen(claim.pinned_zone, claim.pinned_outpost_arn)
        if not claim.selected_node:
            needs_names = zones.needs_zone_names(read_class)
            names = await self._zone_names.by_id() if needs_names else None
            places = self._caches.registered_places()
            return zones.for_any_node(read_class, claim.name, places, names)
        name = claim.selected_node
        node, csi_node = await self._caches.node(name), await self._caches.csi_node(name)
        return zones.for_selected_node(read_class, self._driver, name, node, csi_node)

    def _registration_changed(self, old: CsiNode | None, new: CsiNode | None) -> None:
        """The node plugin has registered: claims that waited for that can go on."""
        driver = self._driver
        if new is not None and new.driver(driver) and not (old and old.driver(driver)):
            self._look_again()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node has got its zone label: the cloud controller may be late, or our cache."""
        zone = zone_of(new.labels) if new is not None else None
        if zone is not None and (old is None or zone != zone_of(old.labels)):
            self._look_again()

    def _look_again(self) -> None:
        for uid in self._without_zone:
            self._wake(uid)
