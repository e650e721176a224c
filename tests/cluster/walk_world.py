"""Where the stories of ``walk`` are told: nodes, classes, and the nursery of their controllers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from provisioner.sandbox import nodes, processes
from provisioner.sandbox.api import Api
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from provisioner.sandbox.up import Sandbox
from tests.cluster import epochs, hands, mortal
from tests.cluster.background import Background
from tests.cluster.hands import CLASSES, Ec2Hand
from tests.cluster.mortal import Order
from tests.cluster.replicas import installed

# A new volume cannot be described for longer than a controller needs to die and come back.
# And a volume is optimizing for longer than any story takes: nobody may wait for the end of that.
DELAYS = {
    "create_s": 0.2,
    "attach_s": 0.2,
    "detach_s": 0.2,
    "visible_after_s": 1.5,
    "modify_s": 0.5,
    "modification_visible_after_s": 0.2,
    "optimize_s": 3600.0,
    "snapshot_s": 0.5,
    "initialize_s": 0.5,
}
# The first birth waits until the nursery has imported the product, beside other tests.
_BIRTH_S = 120


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one story at a time is told. ``elsewhere``: of another zone, without a node yet."""

    driver: str
    instance: Instance
    elsewhere: Instance


class World:
    """One control plane, one EC2, one nursery, and the slots."""

    def __init__(self, sandbox: Sandbox, api: Api, folder: Path, namespace: str) -> None:
        self.sandbox = sandbox
        self.api = api
        self.folder = folder
        self.namespace = namespace
        self.claims = hands.claims_of(namespace)
        self.hand = Ec2Hand(sandbox.ec2_endpoint)
        self.slots: asyncio.Queue[Slot] = asyncio.Queue()
        self._nursery: asyncio.subprocess.Process | None = None
        self.numbers = itertools.count(1)
        self._bearing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def populated(self, slots: int) -> AsyncIterator[None]:
        """Nodes, classes and the nursery; all gone at the end."""
        made = await asyncio.to_thread(
            make_instances, self.sandbox.ec2_endpoint, 2 * slots, self.sandbox.zones
        )
        all_slots = [
            Slot(f"{uuid.uuid4().hex[:8]}.walk.example", *pair)
            for pair in zip(made[::2], made[1::2], strict=True)
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._nursery = await asyncio.create_subprocess_exec(
            *processes.dying_with_us([sys.executable, "-m", "tests.cluster.mortal"]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment | self.sandbox.aws_environment,
        )
        rights = f"walk-{uuid.uuid4().hex[:8]}"
        drivers = [slot.driver for slot in all_slots]
        await epochs.let_work_as(self.api, rights, *drivers)
        try:
            for slot in all_slots:
                await self._furnish(slot)
            yield
        finally:
            self._nursery.terminate()
            await self._nursery.communicate()
            await epochs.forget_rights(self.api, rights)
            for slot in all_slots:
                await hands.discard(self.api, f"{CLASSES}/{slot.driver}")
                await hands.discard(self.api, f"/api/v1/nodes/{slot.instance.private_dns_name}")

    async def _furnish(self, slot: Slot) -> None:
        node = nodes.node(slot.instance)
        node["spec"]["unschedulable"] = True
        made = await self.api.create("/api/v1/nodes", node)
        csi_node = nodes.csi_node(slot.instance, made["metadata"]["uid"])
        csi_node["spec"]["drivers"][0]["name"] = slot.driver
        await self.api.create("/apis/storage.k8s.io/v1/csinodes", csi_node)
        await hands.make_class(self.api, slot.driver, driver=slot.driver)
        await epochs.of_ours(self.api, slot.driver)  # else each first life would write one
        self.slots.put_nowait(slot)

    async def bear(self, order: Order) -> int:
        """Begin a life; its process id."""
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        async with self._bearing, asyncio.timeout(_BIRTH_S):
            self._nursery.stdin.write(mortal.encode(order))
            return int(await self._nursery.stdout.readline())


@contextlib.asynccontextmanager
async def opened(background: Background, folder: Path, slots: int) -> AsyncIterator[World]:
    """A world in the session's sandbox, whose EC2 takes a little while for everything."""
    sandbox = await installed(background)
    plane = sandbox.plane
    namespace = f"walk-{uuid.uuid4().hex[:8]}"
    token = plane.credentials.tokens["admin"]
    async with Api(plane.server, plane.credentials.authority, token) as api:
        await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        world = World(sandbox, api, folder, namespace)
        await asyncio.to_thread(lambda: world.hand.watch(delays=DELAYS))
        try:
            async with world.populated(slots):
                yield world
        finally:
            await asyncio.to_thread(lambda: world.hand.control(**hands.CALM))
            await hands.discard(api, f"/api/v1/namespaces/{namespace}")
