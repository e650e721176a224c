"""Many VolumeMoves at once at AWS's documented quota, and claims of others beside them.

The claims have no pods. The claims of others come one after the other, first alone, then while all
moves are under way: in the same world, by the same controller.
"""

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from provisioner.ec2.limiter import documented
from provisioner.sandbox.strict_ec2.snapshots import LIMITS
from provisioner.sandbox.strict_ec2.world import REAL_DELAYS
from tests.bench import counted_controller, phases
from tests.bench.hands import BenchError, Eye, Seen
from tests.bench.moves_numbers import Limits, bound_s
from tests.bench.phases import CLAIMS, VOLUMES, Phase
from tests.bench.world import OURS, RAISED, ZONES, Contestant, World, world

CALL_S = 0.25
OTHERS, EVERY_S = 20, 1.5
_API = "/apis/ebs-provisioner.io/v1alpha1"
_MOVES = f"{_API}/namespaces/default/volumemoves"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRD = Path(__file__).parents[2] / "manifests" / "volume-moves" / "crd.yaml"
_PATIENCE_S = 900.0
_LOOK_S = 0.2
MOVING = Contestant(
    "ours, with moves",
    "tests.bench.counted_controller",
    (*OURS.arguments, "--volume-moves"),
    OURS.ready,
)


@dataclass(frozen=True, slots=True)
class Moved:
    """What it took.

    Attributes:
        phase: from the first VolumeMove to the last that is Done; with EC2's calls.
        bound_s: what EC2's limits leave at best.
        requests: those to the API server meanwhile, with those for the claims of others.
        alone_s: the waits of other claims until Bound, before the moves.
        alone_requests: the same for these.
        alone_calls: calls to EC2 for these.
        beside_s: their waits while all moves are under way.
    """

    phase: Phase
    bound_s: float
    requests: Counter[str]
    alone_s: list[float]
    alone_requests: Counter[str]
    alone_calls: Counter[str]
    beside_s: list[float]


def limits() -> Limits:
    """Those of the strict EC2 as it is set here."""
    return Limits(
        documented("CreateSnapshot"),
        int(LIMITS["pending"]),
        documented("CreateVolume"),
        CALL_S,
        REAL_DELAYS["snapshot_s"],
        REAL_DELAYS["create_s"],
    )


async def measure(parent: Path, binaries: Path, count: int) -> Moved:
    """Move so many claims to another zone at once."""
    async with world(parent, binaries, instances=len(ZONES), throttle=RAISED) as made:
        for each in yaml.safe_load_all(_CRD.read_text()):
            await made.hands.send("POST", _CRDS, each)
        await _served(made)
        await made.start(OURS)
        await phases.make_class(made)
        await phases.bind(made, count)
        # Another process, which has learnt nothing of the raised quota.
        await made.stop()
        made.ec2.control(throttle="documented", latency=[CALL_S, CALL_S])
        return await _Crowd(made, count).live()


async def _served(made: World) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                await made.hands.send("GET", _MOVES)
            except BenchError:
                await asyncio.sleep(_LOOK_S)
            else:
                return


class _Crowd:
    """One run."""

    def __init__(self, made: World, count: int) -> None:
        self._made, self._count = made, count
        self._numbers = itertools.count(count)
        self._notes = made.plane.folder / "requests"
        self._snapshots_at_first = made.ec2.report()["snapshots"]

    async def live(self) -> Moved:
        self._notes.touch()
        await self._made.start(MOVING, environment={counted_controller.REQUESTS: str(self._notes)})
        # The first claim after a start waits for what is read once.
        await self._others(1)
        self._made.ec2.control(reset_counts=True)
        at = self._notes.stat().st_size
        alone_s = await self._others(OTHERS)
        await self._made.quiet()
        alone, calls = counted_controller.read(self._notes, at), Counter(self._made.ec2.counts())
        at = self._notes.stat().st_size
        bodies = await self._moves()
        async with phases.measured(self._made, "moves → Done", self._count) as phase:
            requests = [("POST", _MOVES, body) for body in bodies]
            eye = Eye(self._made.hands, _MOVES, is_done)
            async with asyncio.TaskGroup() as tasks:
                beside = tasks.create_task(self._others(OTHERS))
                await phases.until(self._made, phase, eye, requests, patience_s=_PATIENCE_S)
        await self._check()
        noted = counted_controller.read(self._notes, at)
        bound = bound_s(self._count, limits(), [n * EVERY_S for n in range(OTHERS)])
        return Moved(phase, bound, noted, alone_s, alone, calls, beside.result())

    async def _others(self, count: int) -> list[float]:
        """Create claims one after the other; how long each waits until it is Bound."""
        bodies = [phases.claim(next(self._numbers)) for _ in range(count)]
        names = {body["metadata"]["name"] for body in bodies}
        sent_s: dict[str, float] = {}
        loop = asyncio.get_running_loop()

        def is_bound(change: str, seen: Seen) -> bool:
            return seen.metadata.name in names and phases.is_bound(change, seen)

        async with Eye(self._made.hands, CLAIMS, is_bound) as eye:
            for number, body in enumerate(bodies):
                if number:
                    await asyncio.sleep(EVERY_S)
                sent_s[body["metadata"]["name"]] = loop.time()
                await self._made.hands.send("POST", CLAIMS, body)
            await eye.wait_for(count, _PATIENCE_S)
        return [eye.at_s[name] - at_s for name, at_s in sent_s.items()]

    async def _moves(self) -> list[dict[str, Any]]:
        """A move of each of the first claims to the next zone."""
        found = msgspec.json.decode(await self._made.hands.send("GET", VOLUMES), type=_Volumes)
        zones = {each.spec.claim_ref.name: each.zone for each in found.items}
        names = [f"data-{number}" for number in range(self._count)]
        return [
            {
                "apiVersion": "ebs-provisioner.io/v1alpha1",
                "kind": "VolumeMove",
                "metadata": {"name": name},
                "spec": {
                    "claimName": name,
                    "to": {"zone": ZONES[(ZONES.index(zones[name]) + 1) % len(ZONES)]},
                    "consumers": {"withoutHold": True},
                },
            }
            for name in names
        ]

    async def _check(self) -> None:
        """There are two volumes for each claim that was moved, and no snapshot is left."""
        told = self._made.ec2.report()
        states = told["states"]
        volumes = self._made.volumes_in_ec2() - self._made.volumes_at_first
        expected = 2 * self._count + next(self._numbers) - self._count
        if volumes != expected:
            raise BenchError(f"EC2 has {volumes} volumes instead of {expected}: {states}")
        if told["snapshots"] != self._snapshots_at_first:
            raise BenchError(f"snapshots are left: {told['snapshots']}")


def is_done(_: str, seen: Seen) -> bool:
    """Whether a move is at its end; raises BenchError at another one."""
    if seen.status.phase in ("Refused", "Aborting", "Aborted"):
        raise BenchError(f"VolumeMove {seen.metadata.name} is {seen.status.phase}")
    return seen.status.phase == "Done"


class _Claim(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    claim_ref: _Claim
    node_affinity: dict[str, Any]


class _Volume(msgspec.Struct):
    spec: _Spec

    @property
    def zone(self) -> str:
        terms = self.spec.node_affinity["required"]["nodeSelectorTerms"]
        zone: str = terms[0]["matchExpressions"][0]["values"][0]
        return zone


class _Volumes(msgspec.Struct):
    items: list[_Volume]
