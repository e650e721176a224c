"""An API server of nodes that carries out JSON patches, and the caches over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.node_writes import NodeWrites
from provisioner.kube.client import KubeClient, Patch
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject
from provisioner.model.node import Node
from tests.builders import DRIVER
from tests.json_patch import MismatchError, applied

Json = dict[str, Any]


class NodeApi:
    """What the API server has. The caches know only what a test shows them, and answers to writes.

    Attributes:
        nodes: by name.
        sent: the operations of each patch, the test of the version left out.
        before: called before a patch is looked at: somebody else comes first.
        failures: raised by the next patches; those with True only once they were carried out.
        others: objects of other kinds, by name, for GET.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.sent: list[list[Json]] = []
        self.before: Callable[[], object] = lambda: None
        self.failures: list[tuple[Exception, bool]] = []
        self.others: dict[str, KubeObject] = {}
        self._version = 100
        client = cast("KubeClient", self)
        self.caches = Caches(client, Metrics(), DRIVER)
        self.writes = NodeWrites(client, self.caches.nodes)

    def put(self, document: Json, *, is_seen: bool = True) -> Node:
        """Somebody makes or changes a node; whether the cache has seen it."""
        self._version += 1
        name = document["metadata"]["name"]
        metadata = document["metadata"] | {"resourceVersion": str(self._version)}
        self.nodes[name] = document | {"metadata": metadata}
        if is_seen:
            self.see(name)
        return self.node(name)

    def see(self, name: str) -> None:
        """The cache hears of a node as it is now."""
        self.caches.nodes._store.apply(self.node(name))

    def node(self, name: str) -> Node:
        """A node as it is now."""
        return msgspec.convert(self.nodes[name], Node)

    async def get(self, resource: Any, name: str, namespace: str = "") -> KubeObject:
        if resource.plural == "nodes" and name in self.nodes:
            return self.node(name)
        if name in self.others:
            return self.others[name]
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}", status=404)

    async def patch(
        self, resource: Any, name: str, body: Sequence[Json], *, kind: Patch, **_: Any
    ) -> Node:
        assert (resource.plural, kind) == ("nodes", Patch.JSON)
        self.sent.append(list(body[1:]))
        self.before()
        failure, is_done = self.failures.pop(0) if self.failures else (None, False)
        if failure is not None and not is_done:
            raise failure
        if name not in self.nodes:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}", status=404)
        try:
            changed = applied(self.nodes[name], body)
        except (MismatchError, LookupError) as error:
            raise KubeError(Reason.REJECTED, f"the patch failed: {error}", status=422) from error
        node = self.put(changed, is_seen=False)
        if failure is not None:
            raise failure
        return node
