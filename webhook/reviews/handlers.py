"""One handler a path: gathers what a rule wants to know, asks the rule, proves what it refuses.

Persistent volumes are judged by where EC2 has their volumes, pods and bindings by the caches; a
denial stands only if the objects that it rests on, read from the API server itself, say the same.
Nothing here changes anything, so a dry run is a review like any other.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import structlog

from provisioner import clock
from provisioner.kube.client import KubeClient, find
from provisioner.kube.resources import CLAIMS, NODES, PLACED_VOLUMES, Resource
from provisioner.model.errors import KubeError
from provisioner.model.meta import KubeObject
from webhook.metrics import WebhookMetrics
from webhook.model import pod as pods
from webhook.model.cluster_view import ClaimView, NodeView, VolumeView
from webhook.model.pod import Pod
from webhook.model.review import (
    Answer,
    Handler,
    Json,
    Request,
    RequestOf,
    Trouble,
    allow,
    deny,
    inside,
    unchecked,
)
from webhook.reviews import (
    claim_rules,
    label_rules,
    persistent_volume_rules,
    pod_binding_rules,
    pod_rules,
    readings,
    storage_class_rules,
)
from webhook.reviews.caches import Caches, claim_view, node_view, volume_view
from webhook.reviews.persistent_volume_rules import Doubt, Found
from webhook.reviews.persistent_volume_words import explained
from webhook.reviews.readings import NO_OBJECT, Basis, Readings, Verdict, Wanted
from webhook.reviews.zone_lookup import ZoneLookup

# A node attaches some forty volumes; whoever names more of them inline asks EC2 for nothing.
_MOST_INLINE = 64
# Of a review's time; the rest is for reading what a denial rests on.
_EC2_SHARE = 0.5

_log = structlog.get_logger(__name__)

# A node attaches some forty volumes; a pod that names hundreds is not worth as many reads.
MOST_READS = 256


class TooManyReadsError(Exception):
    """So many objects would have to be read that the API server is spared them."""


class PodDocument(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod with all of its ``spec``, as the rules take it."""

    spec: dict[str, Any] | None = None

    @property
    def document(self) -> Json:
        """What the rules look at."""
        meta = self.metadata
        return {"metadata": {"name": meta.name, "namespace": meta.namespace}, "spec": self.spec}


PODS = Resource("", "v1", "pods", "Pod", PodDocument)


class LiveView:
    """Looks into the caches for what it has not read."""

    def __init__(self, client: KubeClient, caches: Caches, driver: str) -> None:
        self._client = client
        self._caches = caches
        self._driver = driver
        self._claims: dict[str, ClaimView | None] = {}
        self._volumes: dict[str, VolumeView | None] = {}
        self._nodes: dict[str, NodeView | None] = {}

    def readings(self, wanted: Wanted, zones: Mapping[str, str]) -> Readings:
        """All that is known by now of what a rule wants."""
        nodes: Mapping[str, NodeView | None] = self._caches.nodes_by_name
        return readings.gathered(
            wanted,
            claim=self._claim,
            volume=self._volume,
            backed_by=self._caches.backed_by,
            storage_class=self._caches.storage_class,
            nodes={**nodes, **self._nodes} if self._nodes else nodes,
            zones=zones,
        )

    def lacking(self, wanted: Wanted, node: str) -> Basis:
        """What a rule wants and the caches do not have: it may be too new for them."""
        bound = [view.volume_name for key in wanted.claims if (view := self._claim(key))]
        volumes = {name for name in bound if name}
        return self.unread(
            Basis(
                claims=frozenset(key for key in wanted.claims if self._claim(key) is None),
                volumes=frozenset(name for name in volumes if self._volume(name) is None),
                nodes=frozenset({node} if node and self._caches.node(node) is None else ()),
            )
        )

    def unread(self, basis: Basis) -> Basis:
        """Those of the objects that were not read yet."""
        return Basis(
            claims=basis.claims - self._claims.keys(),
            volumes=basis.volumes - self._volumes.keys(),
            nodes=basis.nodes - self._nodes.keys(),
        )

    async def read(self, basis: Basis) -> None:
        """Read these objects; one that is not there is known to be not there.

        Raises:
            KubeError: one of them could not be read.
            TooManyReadsError: nothing was read.
        """
        if len(basis.claims) + len(basis.volumes) + len(basis.nodes) > MOST_READS:
            raise TooManyReadsError
        reads = (
            *map(self._read_claim, basis.claims),
            *map(self._read_volume, basis.volumes),
            *map(self._read_node, basis.nodes),
        )
        for failure in await asyncio.gather(*reads, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _read_claim(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        found = await find(self._client, CLAIMS, name, namespace)
        self._claims[key] = None if found is None else claim_view(found)

    async def _read_volume(self, name: str) -> None:
        found = await find(self._client, PLACED_VOLUMES, name)
        self._volumes[name] = None if found is None else volume_view(found, self._driver)

    async def _read_node(self, name: str) -> None:
        found = await find(self._client, NODES, name)
        # Whether the driver is there does not matter to where the node is.
        self._nodes[name] = None if found is None else node_view(found, has_driver=False)

    def _claim(self, key: str) -> ClaimView | None:
        return self._claims[key] if key in self._claims else self._caches.claim(key)

    def _volume(self, name: str) -> VolumeView | None:
        return self._volumes[name] if name in self._volumes else self._caches.volume(name)


@dataclass(frozen=True, slots=True)
class Case:
    """One review of something that is to be on a node.

    Attributes:
        title: what it is about, for log lines.
        wanted: what the rule asks for.
        judge: the rule.
        target: the node that was chosen, "" while none is. With a node there is no time left in
            which caches could catch up, so what they lack is read.
    """

    title: str
    wanted: Wanted
    judge: Callable[[Readings], Verdict]
    target: str = ""


class Handlers:
    """The handlers of all paths.

    Args:
        client: reads what a denial rests on.
        caches: everything else.
        lookup: tells where volumes are.
        metrics: counts live reads.
        driver: whose volumes these are, besides in-tree ones.
        strict: refuse what cannot be told, in a way that has it tried again.
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
        self._client = client
        self._caches = caches
        self._lookup = lookup
        self._metrics = metrics
        self._driver = driver
        self._strict = strict

    def by_path(self) -> Mapping[str, Handler]:
        """All handlers."""
        return {
            "/mutate/persistentvolumes": self.mutate_volume,
            "/validate/persistentvolumes": self.validate_volume,
            "/validate/persistentvolumeclaims": self.review_claim,
            "/validate/pods": self.review_pod,
            "/validate/bindings": self.review_binding,
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
        nodes = self._caches.nodes() if is_known else ()
        writable, keys = label_rules.writable(zone, nodes), label_rules.zone_keys(zone, nodes)
        if request.operation == "UPDATE":
            return persistent_volume_rules.relabel(document, truth, writable)
        return persistent_volume_rules.mutate(
            document, truth, writable, strict=self._strict, keys=keys
        )

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
        view = LiveView(self._client, self._caches, self._driver)
        readings = view.readings(claim_rules.wanted(document, namespace), {})
        return claim_rules.judge(document, readings, namespace=namespace)

    async def review_pod(self, request: RequestOf[Pod], deadline: float) -> Answer:
        """Whether a new pod could be where its volumes are."""
        read, namespace = request.object or Pod(), request.namespace
        case = Case(
            f"pod {namespace}/{request.name or read.name}",
            pod_rules.wanted(read, namespace),
            partial(pod_rules.judge, read, namespace=namespace, strict=self._strict),
        )
        return await self._review(case, deadline)

    async def review_binding(self, request: Request, deadline: float) -> Answer:
        """Whether a pod may be bound to a node; a Binding tells the pod's name alone."""
        document, namespace, name = request.object or {}, request.namespace, _name_of(request)
        target = pod_binding_rules.target_of(document)
        if not target or not name:
            return allow("NothingToDo")
        try:
            async with asyncio.timeout_at(deadline):
                found = await find(self._client, PODS, name, namespace)
        except (KubeError, TimeoutError) as error:
            return self._unproved(f"pod {namespace}/{name}", allow("ZonesAgree"), error)
        if found is None:
            return allow("NothingToDo")  # the API server says so itself
        bound = pods.read(found.document)
        case = Case(
            f"binding of pod {namespace}/{name}",
            pod_rules.wanted(bound, namespace),
            partial(pod_binding_rules.judge, document, bound, namespace=namespace),
            target,
        )
        return await self._review(case, deadline)

    async def review_class(self, request: Request, _: float) -> Answer:
        """Whether a new class can ever work."""
        # What is impossible is so wherever nodes are; without them there is less to warn of.
        nodes = self._caches.nodes() if self._caches.is_synced else None
        return storage_class_rules.judge(request.object or {}, nodes, driver=self._driver)

    async def _review(self, case: Case, deadline: float) -> Answer:
        if case.wanted == Wanted():
            return allow("NothingToDo")
        if not await self._caches.synced_by(deadline):
            return unchecked(Trouble.BUDGET, strict=self._strict)
        zones, doubts = await self._zones(case, deadline)
        answer = await self._proved(case, zones, deadline)
        if answer.allowed and doubts:
            return replace(answer, warnings=(*answer.warnings, *doubts))
        return answer

    async def _zones(self, case: Case, deadline: float) -> tuple[dict[str, str], list[str]]:
        """The zones of inline volumes, and what is to be said about those that EC2 did not tell."""
        inline = list(islice(case.wanted.inline, _MOST_INLINE))
        if not inline:
            return {}, []
        now = clock.now_s()
        until = now + (deadline - now) * _EC2_SHARE
        asked = (self._lookup.zone(each, deadline=until, inline=True) for each in inline)
        truths = dict(zip(inline, await asyncio.gather(*asked), strict=True))
        zones = {each: truth.zone for each, truth in truths.items() if isinstance(truth, Found)}
        doubts = [
            f"where volume {each} is cannot be told now, so its zone was not checked: {truth.why}"
            for each, truth in truths.items()
            if isinstance(truth, Doubt)
        ]
        return zones, doubts

    async def _proved(self, case: Case, zones: Mapping[str, str], deadline: float) -> Answer:
        """Judge by the caches; before a denial, by what it rests on as it is now."""
        view = LiveView(self._client, self._caches, self._driver)
        doubted = False
        while True:
            readings = view.readings(case.wanted, zones)
            verdict = case.judge(readings)
            answer, unread = verdict.answer, view.unread(verdict.basis)
            doubted = doubted or unread != NO_OBJECT
            if case.target:
                unread |= view.lacking(case.wanted, case.target)
            if unread == NO_OBJECT:
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await view.read(unread)
            except (KubeError, TimeoutError, TooManyReadsError) as error:
                return self._unproved(case.title, answer, error)
        if not answer.allowed:
            proof = readings.only(verdict.basis)
            answer = explained(case.judge(proof).answer, proof.volumes, self._lookup.seen)
        if doubted:
            outcome = "overturned" if answer.allowed else "confirmed"
            self._metrics.live_reads.labels(outcome).inc()
        return answer

    def _unproved(self, title: str, answer: Answer, error: Exception) -> Answer:
        """Answer a review for which the API server did not show what it takes."""
        self._metrics.live_reads.labels("failed").inc()
        _log.warning("could not read what a review needs", review=title, error=_told(error))
        why = f"ebs-webhook could not read {title} and what it uses: {_reason(error)}"
        if self._strict:
            return deny("Unproved", f"{why}; try again", code=503, retry_after_s=1)
        said = f", so it did not refuse this: {answer.message}" if not answer.allowed else ""
        return allow("Unproved", warnings=[*answer.warnings, f"{why}{said}"])


def _name_of(request: Request) -> str:
    """The name of what is reviewed, "" if the API server has still to make it up."""
    return request.name or str(inside(request.object, "metadata", "name") or "")


def _told(error: Exception) -> str:
    return error.message if isinstance(error, KubeError) else _reason(error)


def _reason(error: Exception) -> str:
    match error:
        case KubeError():
            return error.reason
        case TooManyReadsError():
            return "they are too many objects"
        case _:
            return "no answer in time"
