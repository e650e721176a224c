"""What Kubernetes' own programs tell of themselves: where a pod or a detachment waits for them."""

from dataclasses import dataclass
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

# kube-scheduler, pkg/scheduler/metrics (v1.37.2): from the first filter until a node is chosen, of
# one pod at a time. What follows, until the pod is bound, waits for volumes and stops nobody.
_FAMILY: Final = "scheduler_scheduling_algorithm_duration_seconds"
# kube-apiserver, staging/src/k8s.io/apiserver/pkg/endpoints/metrics (v1.37.2).
_REQUESTS: Final = "apiserver_request_total{"
_STATUS_OF_NODE: Final = ('resource="nodes"', 'subresource="status"', 'verb="PATCH"')
_TIMEOUT: Final = aiohttp.ClientTimeout(total=30)


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods for which it has chosen a node, and for how many seconds it looked, all together."""

    pods: int = 0
    took_s: float = 0.0

    def __add__(self, more: "Placed") -> "Placed":
        return Placed(self.pods + more.pods, self.took_s + more.took_s)

    def __sub__(self, before: "Placed") -> "Placed":
        return Placed(self.pods - before.pods, self.took_s - before.took_s)

    @property
    def each_ms(self) -> float:
        """Milliseconds a pod, 0 without any."""
        return 1000 * self.took_s / self.pods if self.pods else 0.0


@dataclass(slots=True)
class AllPlaced:
    """What a scheduler has placed in all its lives, but for the last moment of each.

    Attributes:
        total: of all that was noted.
    """

    total: Placed = Placed()
    _last: Placed = Placed()

    def note(self, now: Placed) -> None:
        """Count what it tells now; with fewer pods than before it has begun a new life."""
        before = self._last if now.pods >= self._last.pods else Placed()
        self.total, self._last = self.total + (now - before), now


async def placed(port: int) -> Placed:
    """Since it started.

    Raises:
        aiohttp.ClientError: it does not answer.
    """
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT) as session,
        session.get(f"https://127.0.0.1:{port}/metrics", ssl=False) as reply,
    ):
        reply.raise_for_status()
        return read(await reply.text())


def read(text: str) -> Placed:
    """What its metrics say."""
    found = {
        each.name.removeprefix(_FAMILY): each.value
        for family in text_string_to_metric_families(text)
        if family.name == _FAMILY
        for each in family.samples
        if not each.labels
    }
    return Placed(int(found.get("_count", 0)), found.get("_sum", 0.0))


def patches_of_nodes(text: str) -> int:
    """How often the status of some node was patched since the API server started.

    Args:
        text: the API server's metrics.
    """
    lines = [each for each in text.splitlines() if each.startswith(_REQUESTS)]
    some = [each for each in lines if all(part in each for part in _STATUS_OF_NODE)]
    return round(sum(float(each.rpartition(" ")[2]) for each in some))
