"""The webhook's handlers over an API server and an EC2 in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.webhook.edges import Ec2, Kube, running, settled
from webhook.metrics import WebhookMetrics
from webhook.model import pod as pods
from webhook.model.review import Answer, Json, RequestOf
from webhook.reviews.caches import Caches
from webhook.reviews.handlers import Handlers
from webhook.reviews.zone_lookup import ZoneLookup

DRIVER = "ebs.csi.aws.com"
BUDGET_S = 3.0
PATHS = {
    "mutate": "/mutate/persistentvolumes",
    "validate": "/validate/persistentvolumes",
    "claim": "/validate/persistentvolumeclaims",
    "pod": "/validate/pods",
    "new pod": "/mutate/pods",
    "binding": "/validate/bindings",
    "class": "/validate/storageclasses",
}


@dataclass
class World:
    """What a story is told in. ``strict``: of the handlers; ``filled``: the caches have it all.

    ``follows_moves``: of the caches.
    """

    kube: Kube = field(default_factory=Kube)
    ec2: Ec2 = field(default_factory=Ec2)
    strict: bool = False
    filled: bool = True
    follows_moves: bool = False
    metrics: WebhookMetrics = field(default_factory=WebhookMetrics)
    took_s: float = 0.0
    _clock: Clock = lambda: 0.0
    _handlers: Handlers | None = None

    def tell(self, story: Callable[[], Awaitable[Any]]) -> Any:
        """Run a story that asks for reviews; virtual seconds pass in no time."""
        return in_virtual_time(lambda clock: self._told(story, clock))

    def answer(self, about: str, obj: Json, **more: Any) -> Answer:
        """One review and nothing else."""
        answer: Answer = self.tell(lambda: self.review(about, obj, **more))
        return answer

    async def review(self, about: str, obj: Json, *, operation: str = "CREATE") -> Answer:
        assert self._handlers is not None
        meta = obj.get("metadata")
        request = RequestOf[Any](
            uid="u",
            operation=operation,
            object=pods.read(obj) if about.endswith("pod") else obj,
            name=str(meta.get("name") or "") if isinstance(meta, dict) else "",
            namespace="shop",
        )
        began = self._clock()
        answer = await self._handlers.by_path()[PATHS[about]](request, began + BUDGET_S)
        self.took_s = self._clock() - began
        return answer

    def live_reads(self) -> dict[str, float]:
        """How denials from the cache ended, by outcome."""
        samples = {
            outcome: self.metrics.registry.get_sample_value(
                "ebs_webhook_live_reads_total", {"outcome": outcome}
            )
            for outcome in ("confirmed", "overturned", "failed")
        }
        return {outcome: value for outcome, value in samples.items() if value}

    async def _told(self, story: Callable[[], Awaitable[Any]], clock: Clock) -> Any:
        self._clock = clock
        caches = Caches(self.kube.client, self.metrics, DRIVER, follows_moves=self.follows_moves)
        lookup = ZoneLookup(self.ec2.volumes, self.metrics)
        self._handlers = Handlers(
            self.kube.client,
            caches,
            lookup,
            metrics=self.metrics,
            driver=DRIVER,
            strict=self.strict,
        )
        try:
            if not self.filled:
                return await story()
            async with running(caches):
                await settled()
                return await story()
        finally:
            await lookup.close()
