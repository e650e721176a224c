"""The real nodes of a sandbox, and the disks that EC2 attaches to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.sandbox import installation, workdir
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import cluster_dns, requirements
from provisioner.sandbox.real_node.disks import Disks
from provisioner.sandbox.real_node.node import Access, RealNode
from provisioner.sandbox.strict_ec2.instances import Instance


def demand() -> None:
    """Raise SandboxError if no real node can run here; it says what is missing."""
    if why := requirements.missing():
        raise SandboxError(why)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes that run, and their disks."""

    nodes: Sequence[RealNode]
    disks: Disks

    @property
    def in_first_zone(self) -> list[RealNode]:
        """Those between which a volume of the first one's zone can move."""
        zone = self.nodes[0].instance.zone
        return [each for each in self.nodes if each.instance.zone == zone]


@contextlib.asynccontextmanager
async def fleet(
    plane: ControlPlane, ec2_endpoint: str, instances: Sequence[Instance]
) -> AsyncIterator[Fleet]:
    """Run real nodes and a DNS server until the block is left; then nothing of the nodes remains.

    Args:
        plane: what their kubelets serve.
        ec2_endpoint: the strict EC2, which says what is attached to them.
        instances: their instances there.

    Raises:
        SandboxError: one cannot be started, or left something behind.
    """
    async with Disks(ec2_endpoint, plane.folder / workdir.STATE / "disks") as disks:
        nodes = [RealNode(plane, each, disks) for each in instances]
        try:
            await _together([cluster_dns.start(plane), *(node.boot() for node in nodes)])
            yield Fleet(nodes, disks)
        finally:
            await asyncio.shield(_all_off(nodes))


async def _all_off(nodes: Sequence[RealNode]) -> None:
    ends = await asyncio.gather(*(node.power_off() for node in nodes), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end


async def start_plugins(plane: ControlPlane, nodes: Sequence[RealNode]) -> None:
    """Run the node plugin on these nodes, by its manifests' account.

    Raises:
        SandboxError: the manifests are refused, or one does not register itself.
    """
    account = await installation.install_node(plane)
    token = await plane.service_account_token(account.namespace, account.name)
    token_file = plane.folder / workdir.STATE / "node-plugin.token"
    token_file.touch(mode=0o600)
    token_file.write_text(token)
    authority = plane.credentials.authority
    await _together(
        node.start_plugin(Access(node.network.api_server, token_file, authority)) for node in nodes
    )


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all at once; the first failure ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
