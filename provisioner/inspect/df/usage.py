"""Read how full claims' volumes are, from each node's kubelet through the API server's proxy."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from provisioner.inspect.command_line import Readers
from provisioner.inspect.df import usage_rules
from provisioner.inspect.df.usage_rules import Usage
from provisioner.inspect.reading.gap_rules import KUBERNETES, Gap
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import ATTACHMENTS, NODES, PERSISTENT_VOLUMES
from provisioner.model.errors import KubeError, Reason

_AT_ONCE = 16
_RIGHT = "get nodes/proxy"


async def usage_by_claim(readers: Readers, wanted: Collection[str]) -> Mapping[str, Usage]:
    """The usage of each claim that some node has mounted, by ``namespace/name``.

    Only nodes to which one of the ``wanted`` persistent volumes is attached are asked. A kubelet
    that does not answer is a gap, and costs the others nothing.
    """
    nodes, attachments = await asyncio.gather(
        readers.cluster.every(NODES), readers.cluster.every(ATTACHMENTS)
    )
    busy = {
        each.spec.node_name
        for each in attachments
        if each.spec.source.persistent_volume_name in wanted
    }
    unknown = readers.cluster.misses(ATTACHMENTS) or readers.cluster.misses(PERSISTENT_VOLUMES)
    asked = sorted(each.name for each in nodes if each.name in busy or unknown)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def of(node: str) -> list[Usage] | Gap:
        async with slots:
            return await _of_node(readers, node)

    found = await asyncio.gather(*map(of, asked))
    readers.cluster.gaps += _gaps([each for each in found if isinstance(each, Gap)])
    return usage_rules.by_claim(
        usage for some in found if not isinstance(some, Gap) for usage in some
    )


async def on_node(client: KubeClient, node: str) -> list[Usage]:
    """The usage of each claim that a node has mounted.

    Raises:
        KubeError: its kubelet does not answer, or may not be asked.
        ValueError: what it says is unreadable.
    """
    text = await client.text(f"/api/v1/nodes/{node}/proxy/stats/summary")
    return usage_rules.read_summary(text)


async def _of_node(readers: Readers, node: str) -> list[Usage] | Gap:
    what = f"{_RIGHT} {node}"
    try:
        return await on_node(readers.cluster.client, node)
    except KubeError as error:
        return Gap.of(KUBERNETES, what, error)
    except ValueError as error:
        return Gap(KUBERNETES, what, Reason.UNREADABLE, f"{node}: {error}")


def _gaps(found: Sequence[Gap]) -> list[Gap]:
    """A missing right is missing for each node: it is said once."""
    refused = [each for each in found if each.is_right]
    rest = [each for each in found if not each.is_right]
    if len(refused) <= 1:
        return [*refused, *rest]
    message = f"{len(refused)} nodes; of the first: {refused[0].message}"
    return [Gap(KUBERNETES, _RIGHT, refused[0].reason, message), *rest]
