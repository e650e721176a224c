"""Who answers each path: pods and bindings in ``pods``, all other objects here.

Persistent volumes are judged by where EC2 has their volumes, claims and StorageClasses by the
caches, and pods are held back by the cache of VolumeMoves. Nothing here changes anything, so a dry
run is a review like any other.
"""

from collections.abc import Mapping

from provisioner.kube.client import KubeClient
from webhook.metrics import WebhookMetrics
from webhook.model.cluster_view import collect
from webhook.model.pod import Pod
from webhook.model.review import (
    Answer,
    Handler,
    Request,
    RequestOf,
    Trouble,
    allow,
    unchecked,
)
from webhook.reviews import (
    claim_rules,
    persistent_volume_rules,
    pod_gate_rules,
    storage_class_rules,
)
from webhook.reviews import persistent_volume_zone_rules as zone_rules
from webhook.reviews.caches import Caches
from webhook.reviews.persistent_volume_rules import Found
from webhook.reviews.pods import PodReviews
from webhook.reviews.zone_lookup import ZoneLookup


class Handlers:
    """The handlers of all paths.

    Args:
        client: reads what a denial rests on.
        caches: everything else.
        lookup: tells where volumes are.
        metrics: counts live reads.
        driver: whose volumes these are, besides in-tree ones.
        strict: refuse what cannot be checked, in a way that makes clients try again.
    """

    def __init__(
        self,
        client: KubeClient,
        caches: Caches,
        lookup: ZoneLookup,
        *,
        metrics: WebhookMetrics,
        driver: str,
        strict: bool,
    ) -> None:
        self._caches = caches
        self._lookup = lookup
        self._driver = driver
        self._strict = strict
        self._pods = PodReviews(
            client, caches, lookup, metrics=metrics, driver=driver, strict=strict
        )

    def by_path(self) -> Mapping[str, Handler]:
        """All handlers."""
        return {
            "/mutate/persistentvolumes": self.mutate_volume,
            "/mutate/pods": self.hold_pod,
            "/validate/persistentvolumes": self.validate_volume,
            "/validate/persistentvolumeclaims": self.review_claim,
            "/validate/pods": self._pods.review_pod,
            "/validate/bindings": self._pods.review_binding,
            "/validate/storageclasses": self.review_class,
        }

    async def mutate_volume(self, request: Request, deadline: float) -> Answer:
        """Labels and node affinity for a new persistent volume, labels for one that changes."""
        document = request.object or {}
        source = persistent_volume_rules.source_of(document, self._driver)
        if source is None:
            return allow("NothingToDo")
        truth = await self._lookup.zone(source.volume_id, deadline=deadline, existing=True)
        zone = truth.zone if isinstance(truth, Found) else ""
        # Without all nodes no label is known to be safe; repairs add it when they are known.
        is_known = bool(zone) and await self._caches.synced_by(deadline)
        nodes = self._caches.node_views() if is_known else ()
        writable, keys = (
            zone_rules.writable(zone, nodes),
            zone_rules.zone_keys(zone, nodes),
        )
        if request.operation == "UPDATE":
            return persistent_volume_rules.relabel(document, truth, writable)
        return persistent_volume_rules.mutate(
            document, truth, writable, strict=self._strict, keys=keys
        )

    async def hold_pod(self, request: RequestOf[Pod], _: float) -> Answer:
        """A scheduling gate for a new pod of a claim that is moved."""
        pod = request.object or Pod()
        return pod_gate_rules.hold(pod, self._caches.held.move_of, request.namespace)

    async def validate_volume(self, request: Request, deadline: float) -> Answer:
        """Whether a new persistent volume says where its volume is."""
        document = request.object or {}
        source = persistent_volume_rules.source_of(document, self._driver)
        if source is None:
            return allow("NothingToDo")
        truth = await self._lookup.zone(source.volume_id, deadline=deadline, existing=True)
        return persistent_volume_rules.validate(document, truth, strict=self._strict)

    async def review_claim(self, request: Request, deadline: float) -> Answer:
        """Warnings about a new claim."""
        if not await self._caches.synced_by(deadline):
            return unchecked(Trouble.BUDGET, strict=False)
        document, namespace = request.object or {}, request.namespace
        cluster = collect(
            claim_rules.references(document, namespace),
            claim=self._caches.claim,
            volume=self._caches.volume,
            backed_by=self._caches.backed_by,
            storage_class=self._caches.storage_class,
            nodes=self._caches.nodes_by_name,
            node_views=self._caches.node_views(),
        )
        return claim_rules.judge(document, cluster, namespace=namespace)

    async def review_class(self, request: Request, _: float) -> Answer:
        """Whether a new class can ever work."""
        # What is impossible is so wherever nodes are; without them there is less to warn of.
        nodes = self._caches.node_views() if self._caches.is_synced else None
        return storage_class_rules.judge(request.object or {}, nodes, driver=self._driver)
