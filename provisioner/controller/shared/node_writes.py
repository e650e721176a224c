"""Writes to Nodes, which many clients change: only to the version that was decided on."""

from collections.abc import Callable, Sequence

from provisioner.controller.shared.node_patch_rules import Operation
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.informer import Informer
from provisioner.kube.resources import NODES
from provisioner.model.errors import KubeError, Reason
from provisioner.model.node import Node

_TRIES = 4
_TEST_FAILED = 422  # or the API server refuses what the change would make of the node

Plan = Callable[[Node], Sequence[Operation]]


class NodeWrites:
    """Changes nodes by a plan that is computed from their current version.

    Args:
        client: where to write.
        nodes: where nodes are read; it receives what was written.
    """

    def __init__(self, client: KubeClient, nodes: Informer[Node]) -> None:
        self._client = client
        self._nodes = nodes

    async def change(self, name: str, plan: Plan) -> Node | None:
        """Carry out the plan for a node, all or nothing.

        If the node has changed by then, or was recreated under its name, it is read again and the
        plan is computed again, at once.

        Args:
            name: of the node.
            plan: the operations for a node; none if nothing is to be done.

        Returns:
            The node afterwards; None if nothing was done, or there is no such node.

        Raises:
            KubeError: it could not be written; CONFLICT after several tries.
        """
        for _ in range(_TRIES):
            node = self._nodes.get(name)
            operations = plan(node) if node is not None else ()
            if node is None or not operations:
                return None
            try:
                return await self._write(node, operations)
            except KubeError as error:
                if error.reason is Reason.OBJECT_NOT_FOUND:
                    return None
                if error.reason is not Reason.CONFLICT:
                    raise
                conflict = error
        raise conflict

    async def _write(self, node: Node, operations: Sequence[Operation]) -> Node:
        version = node.metadata.resource_version
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        body = [test, *operations]
        try:
            changed = await self._client.patch(NODES, node.name, body, kind=Patch.JSON)
        except KubeError as error:
            if error.status != _TEST_FAILED and error.reason is not Reason.CONFLICT:
                raise
            found = await self._client.get(NODES, node.name)
            self._nodes.observe(found)
            if found.metadata.resource_version == version:
                raise
            message = f"node {node.name} was changed by another client in the meantime"
            raise KubeError(Reason.CONFLICT, message, status=error.status) from error
        self._nodes.observe(changed)
        return changed
