"""From a pod's creation until its container runs, piece by piece: one pod at a time, new volumes.

A real scheduler, controller manager, kubelet and containerd, EC2 as slow as AWS, and no quota.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from provisioner.sandbox.real_node import file_pods, requirements
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from provisioner.sandbox.strict_ec2.world import REAL_DELAYS
from tests.bench import node_numbers
from tests.bench.hands import BenchError, Hands
from tests.bench.node_pods import one_real_node
from tests.bench.phases import ATTACHMENTS, CLAIMS, claim
from tests.bench.webhook_numbers import percentile

COUNT = 20
_PODS = "/api/v1/namespaces/default/pods"
_SELECTED = "volume.kubernetes.io/selected-node"
_PATIENCE_S = 90.0
_WORKS = {
    "node selected": "kube-scheduler",
    "claim Bound": "ours, EC2, and the PV controller",
    "pod scheduled": "kube-scheduler",
    "VolumeAttachment created": "attach/detach controller",
    "attached": "ours and EC2",
    "volume mounted": "kubelet, which asks our node plugin",
    "container runs": "kubelet and containerd",
}
_OF_EC2_S = {"claim Bound": REAL_DELAYS["create_s"], "attached": REAL_DELAYS["attach_s"]}


@dataclass(frozen=True, slots=True)
class Chain:
    """The pieces by name, in their order: seconds of each pod; and of the whole.

    Attributes:
        plugin_s: of the piece in which the volume is mounted, what both calls took.
        why_none: why it could not be measured, "" if it was.
    """

    pieces: dict[str, list[float]] = field(default_factory=dict)
    plugin_s: list[float] = field(default_factory=list)
    why_none: str = ""


class _Meta(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _State(msgspec.Struct):
    running: Any = None


class _Container(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    attached: bool = False
    container_statuses: list[_Container] = msgspec.field(default_factory=list)


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Line(msgspec.Struct):
    type: str
    object: _Object


_LINE = msgspec.json.Decoder(_Line)
_REACHED: dict[str, tuple[str, Callable[[_Object], object]]] = {
    "node selected": (CLAIMS, lambda found: _SELECTED in found.metadata.annotations),
    "claim Bound": (CLAIMS, lambda found: found.status.phase == "Bound"),
    "pod scheduled": (_PODS, lambda found: found.spec.node_name),
    "VolumeAttachment created": (ATTACHMENTS, lambda _: True),
    "attached": (ATTACHMENTS, lambda found: found.status.attached),
    "container runs": (
        _PODS,
        lambda found: any(each.state.running for each in found.status.container_statuses),
    ),
}


class _Watches:
    """Notes when each thing first was so; an async context manager."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._none_left = {ATTACHMENTS: asyncio.Event(), CLAIMS: asyncio.Event()}
        self.at_s: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        for path in (CLAIMS, _PODS, ATTACHMENTS):
            version = await self._hands.version_of(path)
            self._tasks.append(asyncio.create_task(self._follow(path, version)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self) -> None:
        """Forget the pod before."""
        self.at_s.clear()
        for event in self._none_left.values():
            event.clear()

    async def until_it_runs(self) -> None:
        """Wait until a pod's container runs."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not self.at_s.keys() >= _REACHED.keys():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as late:
            lacking = ", ".join(_REACHED.keys() - self.at_s.keys())
            raise BenchError(f"not in {_PATIENCE_S:.0f} s: {lacking}") from late

    async def until_all_are_gone(self) -> None:
        """Wait until claim and VolumeAttachment are deleted."""
        async with asyncio.timeout(_PATIENCE_S):
            for event in self._none_left.values():
                await event.wait()

    async def _follow(self, path: str, version: str) -> None:
        async with self._hands.lines(path, version) as reply:
            async for text in reply.content:
                line = _LINE.decode(text)
                if line.type == "DELETED":
                    if path in self._none_left:
                        self._none_left[path].set()
                    continue
                for what, (where, is_so) in _REACHED.items():
                    if where == path and what not in self.at_s and is_so(line.object):
                        self.at_s[what] = time.time()
                        self._news.set()


async def measure(folder: Path) -> Chain:
    """Run the pods on a real node of its own."""
    if why := requirements.missing():
        return Chain(why_none=why)
    chain = Chain({what: [] for what in _WORKS})
    async with (
        one_real_node(folder, latency="real") as (box, hands, node),
        _Watches(hands) as watches,
    ):
        for number in range(COUNT):
            await _one(hands, watches, node, number, chain)
        box.crew.check()
    return chain


async def _one(hands: Hands, watches: _Watches, node: RealNode, number: int, chain: Chain) -> None:
    watches.begin()
    log = node.log(PLUGIN)
    begin = log.stat().st_size
    await hands.send("POST", CLAIMS, claim(number))
    before_s = time.time()
    await hands.send("POST", _PODS, _pod(number, node.name))
    await watches.until_it_runs()
    with log.open() as file:
        file.seek(begin)
        ((_, mounted),) = node_numbers.mounted(file)[0].items()
    at_s = watches.at_s | {"volume mounted": mounted.at_s}
    for what in _WORKS:
        chain.pieces[what].append(at_s[what] - before_s)
        before_s = at_s[what]
    chain.plugin_s.append(mounted.rpcs_s)
    await hands.send("DELETE", f"{_PODS}/pod-{number}?gracePeriodSeconds=1")
    await hands.send("DELETE", f"{CLAIMS}/data-{number}")
    await watches.until_all_are_gone()


def markdown(found: Chain) -> str:
    """The table."""
    title = "### From a pod's creation until its container runs"
    if found.why_none:
        return f"{title}\n\nNot measured: {found.why_none}."
    whole = [sum(pieces) for pieces in zip(*found.pieces.values(), strict=True)]
    rows = [_row(what, _WORKS[what], seconds) for what, seconds in found.pieces.items()]
    plugin = _row("of these, NodeStage and NodePublish", "our node plugin", found.plugin_s)
    rows.insert(list(_WORKS).index("volume mounted") + 1, plugin)
    rows.append(_row("**all**", "", whole))
    head = ["until", "whose work", "median, s", "p99, s", "EC2's own, s"]
    lines = [head, ["---", "---", "--:", "--:", "--:"], *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{title}\n\n{COUNT} pods, one after the other, each with a new volume.\n\n{table}"


def _row(what: str, whose: str, seconds: list[float]) -> list[str]:
    own = f"{_OF_EC2_S[what]:.1f} and a call" if what in _OF_EC2_S else ""
    return [
        what,
        whose,
        f"{percentile(seconds, 0.5):.2f}",
        f"{percentile(seconds, 0.99):.2f}",
        own,
    ]


def _pod(number: int, node: str) -> dict[str, Any]:
    claims = {"/data": f"data-{number}"}
    return file_pods.pod(f"pod-{number}", "exec sleep 1000", claims, image=POD_IMAGE, node=node)
