"""Review pods and their bindings: judged by the caches, refused only on proof.

A denial stands only if the objects that it rests on, read from the API server itself, lead to the
same denial: a cache may be late.
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
from webhook.model.cluster_view import (
    NO_EVIDENCE,
    ClaimView,
    ClusterView,
    Evidence,
    NodeView,
    References,
    Verdict,
    VolumeView,
    collect,
)
from webhook.model.pod import Pod
from webhook.model.review import (
    Answer,
    Json,
    Request,
    RequestOf,
    Trouble,
    allow,
    deny,
    inside,
    unchecked,
)
from webhook.reviews import pod_binding_rules, pod_gate_rules, pod_rules
from webhook.reviews.caches import Caches, claim_view, node_view, volume_view
from webhook.reviews.persistent_volume_rules import Doubt, Found
from webhook.reviews.zone_lookup import ZoneLookup

# A node attaches some forty volumes; of a pod that names more of them inline, EC2 is asked about
# the first ones only.
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

    def cluster(self, references: References, zones: Mapping[str, str]) -> ClusterView:
        """All that is known by now of what a rule wants."""
        nodes: Mapping[str, NodeView | None] = self._caches.nodes_by_name
        return collect(
            references,
            claim=self._claim,
            volume=self._volume,
            backed_by=self._caches.backed_by,
            storage_class=self._caches.storage_class,
            nodes={**nodes, **self._nodes} if self._nodes else nodes,
            node_views=self._caches.node_views(),
            zones=zones,
        )

    def lacking(self, references: References, node: str) -> Evidence:
        """What a rule wants and the caches do not have: it may be too new for them."""
        bound = [view.volume_name for key in references.claims if (view := self._claim(key))]
        volumes = {name for name in bound if name}
        return self.unread(
            Evidence(
                claims=frozenset(key for key in references.claims if self._claim(key) is None),
                volumes=frozenset(name for name in volumes if self._volume(name) is None),
                nodes=frozenset({node} if node and self._caches.node(node) is None else ()),
            )
        )

    def unread(self, evidence: Evidence) -> Evidence:
        """Those of the objects that were not read yet."""
        return Evidence(
            claims=evidence.claims - self._claims.keys(),
            volumes=evidence.volumes - self._volumes.keys(),
            nodes=evidence.nodes - self._nodes.keys(),
        )

    async def read(self, evidence: Evidence) -> None:
        """Read these objects; one that is not there is known to be not there.

        Raises:
            KubeError: one of them could not be read.
            TooManyReadsError: nothing was read.
        """
        if len(evidence.claims) + len(evidence.volumes) + len(evidence.nodes) > MOST_READS:
            raise TooManyReadsError
        reads = (
            *map(self._read_claim, evidence.claims),
            *map(self._read_volume, evidence.volumes),
            *map(self._read_node, evidence.nodes),
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
        references: what the rule asks for.
        judge: the rule.
        target: the node that was chosen, "" while none is. With a node there is no time left in
            which caches could catch up, so what they lack is read.
    """

    title: str
    references: References
    judge: Callable[[ClusterView], Verdict]
    target: str = ""


class PodReviews:
    """Reviews pods, and bindings of pods to nodes.

    Args:
        client: reads what a denial rests on.
        caches: everything else.
        lookup: tells where inline volumes are.
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
        self._client = client
        self._caches = caches
        self._lookup = lookup
        self._metrics = metrics
        self._driver = driver
        self._strict = strict

    async def review_pod(self, request: RequestOf[Pod], deadline: float) -> Answer:
        """Whether a new pod could be where its volumes are."""
        namespace, holder_of = request.namespace, self._caches.held.move_of
        read = pod_gate_rules.without_held(request.object or Pod(), holder_of, namespace)
        case = Case(
            f"pod {namespace}/{request.name or read.name}",
            pod_rules.references(read, namespace),
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
            pod_rules.references(bound, namespace),
            partial(pod_binding_rules.judge, document, bound, namespace=namespace),
            target,
        )
        return await self._review(case, deadline)

    async def _review(self, case: Case, deadline: float) -> Answer:
        if case.references == References():
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
        inline = list(islice(case.references.inline, _MOST_INLINE))
        if not inline:
            return {}, []
        now = clock.now_s()
        until = now + (deadline - now) * _EC2_SHARE
        asked = (self._lookup.zone(each, deadline=until, inline=True) for each in inline)
        truths = dict(zip(inline, await asyncio.gather(*asked), strict=True))
        zones = {each: truth.zone for each, truth in truths.items() if isinstance(truth, Found)}
        doubts = [
            f"the zone of volume {each} cannot be determined now, so it was not checked: "
            f"{truth.why}"
            for each, truth in truths.items()
            if isinstance(truth, Doubt)
        ]
        return zones, doubts

    async def _proved(self, case: Case, zones: Mapping[str, str], deadline: float) -> Answer:
        """Judge by the caches; before a denial, by what it rests on as it is now."""
        view = LiveView(self._client, self._caches, self._driver)
        doubted = False
        while True:
            cluster = view.cluster(case.references, zones)
            verdict = case.judge(cluster)
            answer, unread = verdict.answer, view.unread(verdict.evidence)
            doubted = doubted or unread != NO_EVIDENCE
            if case.target:
                unread |= view.lacking(case.references, case.target)
            if unread == NO_EVIDENCE:
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await view.read(unread)
            except (KubeError, TimeoutError, TooManyReadsError) as error:
                return self._unproved(case.title, answer, error)
        if not answer.allowed:
            proof = cluster.only(verdict.evidence)
            answer = pod_rules.explained(case.judge(proof).answer, proof.volumes, self._lookup.seen)
        if doubted:
            outcome = "overturned" if answer.allowed else "confirmed"
            self._metrics.live_reads.labels(outcome).inc()
        return answer

    def _unproved(self, title: str, answer: Answer, error: Exception) -> Answer:
        """Answer a review for which the API server did not show what it takes."""
        self._metrics.live_reads.labels("failed").inc()
        _log.warning("could not read what a review needs", review=title, error=_told(error))
        why = f"ebs-webhook could not read {title} and the objects it uses: {_cause(error)}"
        if self._strict:
            return deny("Unproved", f"{why}; try again", code=503, retry_after_s=1)
        said = f", so it did not refuse this: {answer.message}" if not answer.allowed else ""
        return allow("Unproved", warnings=[*answer.warnings, f"{why}{said}"])


def _name_of(request: Request) -> str:
    """The name of what is reviewed, "" if the API server has still to make it up."""
    return request.name or str(inside(request.object, "metadata", "name") or "")


def _told(error: Exception) -> str:
    return error.message if isinstance(error, KubeError) else _cause(error)


def _cause(error: Exception) -> str:
    match error:
        case KubeError():
            return error.reason
        case TooManyReadsError():
            return "too many objects"
        case _:
            return "no answer in time"
