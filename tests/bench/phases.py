"""The four phases: claims bound, volumes attached, detached, gone; each from the first request."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from provisioner.model.attachment import attachment_name
from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.strict_ec2.instances import Instance
from tests.bench import looks, processes
from tests.bench.hands import Eye, Seen
from tests.bench.looks import Window
from tests.bench.wait_numbers import Call
from tests.bench.world import World, zone_of_every

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
CLASS = "bench"
NAMES = ("claims → Bound", "VolumeAttachments → attached", "detached", "PVs and volumes gone")
PATIENCE_S = 300.0
_LOOK_S = 0.1


@dataclass(slots=True)
class Phase:
    """What one phase cost.

    Attributes:
        seconds: from the first request of the bench to the last object seen as it should be.
        median_s: until half of the objects were seen so.
        cpu_s: CPU seconds by process, until the contestant had nothing left to do: what the
            objects cost.
        cpu_within_s: CPU seconds by process within ``seconds``: who was at work then.
        calls: EC2 calls by action, trailing ones included.
        throttled: those of them that came too fast for EC2.
        refused: those that EC2 refused for other reasons.
        looks: the ten seconds in which EC2 was looked at most, by their limit; None without a log.
        memory_mib: of the contestant, afterwards.
        foreign: the share of the machine that others used meanwhile, which makes it slower.
    """

    name: str
    objects: int
    seconds: float = 0.0
    median_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    cpu_within_s: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    throttled: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    memory_mib: float = 0.0
    foreign: float = 0.0
    looks: Window | None = None

    @property
    def describes(self) -> int:
        """Calls that only look, of every kind."""
        return sum(n for action, n in self.calls.items() if action.startswith("Describe"))


class _Claim(msgspec.Struct):
    name: str


class _Csi(msgspec.Struct, rename="camel"):
    volume_handle: str


class _Spec(msgspec.Struct, rename="camel"):
    csi: _Csi
    claim_ref: _Claim
    node_affinity: dict[str, Any]


class _Meta(msgspec.Struct):
    name: str


class _Volume(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Volumes(msgspec.Struct):
    items: list[msgspec.Raw]


_VOLUME = msgspec.json.Decoder(_Volume)


def is_bound(_: str, seen: Seen) -> bool:
    """Phase a's aim."""
    return seen.status.phase == "Bound"


def is_attached(_: str, seen: Seen) -> bool:
    """Phase b's aim."""
    return seen.status.attached


def is_gone(change: str, _: Seen) -> bool:
    """Phases c's and d's aim."""
    return change == "DELETED"


@asynccontextmanager
async def measured(world: World, name: str, objects: int) -> AsyncIterator[Phase]:
    """A phase from here to the end of the block, and then until nothing is left to do."""
    world.ec2.control(reset_counts=True)
    loop = asyncio.get_running_loop()
    began_s, busy_s, before = loop.time(), processes.busy_s(), world.cpu_s()
    phase = Phase(name, objects)
    yield phase
    phase.cpu_within_s = {part: at - before[part] for part, at in world.cpu_s().items()}
    await world.quiet()
    phase.cpu_s = {part: at - before[part] for part, at in world.cpu_s().items()}
    theirs_s = processes.busy_s() - busy_s - sum(phase.cpu_s.values())
    phase.foreign = max(0.0, theirs_s / (loop.time() - began_s) / (os.cpu_count() or 1))
    report = world.ec2.report()
    phase.calls, phase.throttled = report["calls"], report["throttled"]
    for what, number in report["errors"].items():
        action = what.partition(":")[0]
        phase.refused[action] = phase.refused.get(action, 0) + number
    phase.looks = looks.busiest([Call.of(each) for each in world.ec2.log() if "took_s" in each])
    phase.memory_mib, _ = processes.memory_mib(world.pid)


async def until(
    world: World,
    phase: Phase,
    eye: Eye,
    requests: Iterable[tuple[str, str, Any]],
    *,
    patience_s: float = PATIENCE_S,
) -> None:
    """Send the requests; the phase ends when the eye has seen every object get there."""
    loop = asyncio.get_running_loop()
    wanted = list(requests)
    async with eye:
        began_s = loop.time()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(world.hands.send_all(wanted))
            ended_s = await eye.wait_for(phase.objects, patience_s)
    phase.seconds = ended_s - began_s
    phase.median_s = median(eye.at_s.values()) - began_s


async def make_class(world: World) -> None:
    """The storage class of all claims."""
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": EBS_DRIVER,
        "parameters": {"type": "gp3"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }
    await world.hands.send("POST", CLASSES, body)


def claim(number: int, **spec: Any) -> dict[str, Any]:
    """A claim for 1 GiB; its name's ordinal spreads it over the zones."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"data-{number}"},
        "spec": {
            "storageClassName": CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }


async def bind(world: World, count: int) -> Phase:
    """Phase a: create claims; they are Bound."""
    async with measured(world, NAMES[0], count) as phase:
        requests = (("POST", CLAIMS, claim(number)) for number in range(count))
        await until(world, phase, Eye(world.hands, CLAIMS, is_bound), requests)
    return phase


async def attachments(world: World) -> list[dict[str, Any]]:
    """An attachment for each persistent volume there is."""
    found = msgspec.json.decode(await world.hands.send("GET", VOLUMES), type=_Volumes)
    return attachments_of(found.items, world.instances)


def attachments_of(
    volumes: Iterable[bytes | msgspec.Raw], instances: Sequence[Instance]
) -> list[dict[str, Any]]:
    """An attachment for each persistent volume, on the nodes of its zone in turn."""
    turns = {zone: itertools.cycle(some) for zone, some in zone_of_every(instances).items()}
    bodies = []
    for volume in map(_VOLUME.decode, volumes):
        terms = volume.spec.node_affinity["required"]["nodeSelectorTerms"]
        node = next(turns[terms[0]["matchExpressions"][0]["values"][0]]).private_dns_name
        name = attachment_name(volume.spec.csi.volume_handle, EBS_DRIVER, node)
        bodies.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": name},
                "spec": {
                    "attacher": EBS_DRIVER,
                    "nodeName": node,
                    "source": {"persistentVolumeName": volume.metadata.name},
                },
            }
        )
    return bodies


async def attach(world: World, bodies: list[dict[str, Any]]) -> Phase:
    """Phase b: create attachments; their status says attached."""
    async with measured(world, NAMES[1], len(bodies)) as phase:
        requests = (("POST", ATTACHMENTS, body) for body in bodies)
        await until(world, phase, Eye(world.hands, ATTACHMENTS, is_attached), requests)
    return phase


async def detach(world: World, bodies: list[dict[str, Any]]) -> Phase:
    """Phase c: delete attachments; they are gone."""
    async with measured(world, NAMES[2], len(bodies)) as phase:
        names = [body["metadata"]["name"] for body in bodies]
        requests = (("DELETE", f"{ATTACHMENTS}/{name}", None) for name in names)
        await until(world, phase, Eye(world.hands, ATTACHMENTS, is_gone), requests)
    return phase


async def delete(world: World, count: int) -> Phase:
    """Phase d: delete claims; their persistent volumes and EBS volumes are gone."""
    async with measured(world, NAMES[3], count) as phase:
        loop = asyncio.get_running_loop()
        requests = (("DELETE", f"{CLAIMS}/data-{number}", None) for number in range(count))
        await until(world, phase, Eye(world.hands, VOLUMES, is_gone), requests)
        objects_gone_s = loop.time()
        async with asyncio.timeout(PATIENCE_S):
            while world.volumes_in_ec2() > world.volumes_at_first:
                await asyncio.sleep(_LOOK_S)
                phase.seconds += loop.time() - objects_gone_s
                objects_gone_s = loop.time()
    return phase


async def run_all(
    world: World, count: int, while_idle: Callable[[World], Awaitable[None]] | None = None
) -> list[Phase]:
    """All four phases; ``while_idle`` is called while everything is attached."""
    await make_class(world)
    done = [await bind(world, count)]
    bodies = await attachments(world)
    done.append(await attach(world, bodies))
    if while_idle is not None:
        await while_idle(world)
    done.append(await detach(world, bodies))
    done.append(await delete(world, count))
    return done
