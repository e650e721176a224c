"""From a pod's creation until its container runs, piece by piece: one pod at a time, new volumes.

A real scheduler, controller manager, kubelet and containerd, EC2 as slow as AWS, and no quota.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from provisioner.sandbox.real_node import file_pods, requirements
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from provisioner.sandbox.strict_ec2.client import ask
from provisioner.sandbox.strict_ec2.world import REAL_DELAYS
from tests.bench import node_numbers
from tests.bench.hands import BenchError, Hands
from tests.bench.node_pods import one_real_node
from tests.bench.phases import ATTACHMENTS, CLAIMS, claim
from tests.bench.wait_measure import MEDIAN_S, P99_S
from tests.bench.wait_numbers import Call
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
_OF_EC2 = {
    "claim Bound": ("CreateVolume", REAL_DELAYS["create_s"]),
    "attached": ("AttachVolume", REAL_DELAYS["attach_s"]),
}


@dataclass(frozen=True, slots=True)
class Chain:
    """The pieces by name, in their order: seconds of each pod; and of the whole.

    Attributes:
        own_s: of the pieces that EC2 has a part in, its own time.
        plugin_s: of the piece in which the volume is mounted, what both calls took.
        why_none: why it could not be measured, "" if it was.
    """

    pieces: dict[str, list[float]] = field(default_factory=dict)
    own_s: dict[str, list[float]] = field(default_factory=dict)
    plugin_s: list[float] = field(default_factory=list)
    why_none: str = ""

    @property
    def whole_s(self) -> list[float]:
        """From creation until the container runs."""
        return _sums(*self.pieces.values())

    def over_s(self, what: str) -> list[float]:
        """What a piece takes beside EC2's own time."""
        return _less(self.pieces[what], self.own_s.get(what))

    @property
    def whole_over_s(self) -> list[float]:
        """What the whole takes beside EC2's own time."""
        return _sums(*map(self.over_s, self.pieces))

    @property
    def by_whom_s(self) -> dict[str, list[float]]:
        """Who takes what the whole takes beside EC2's own time."""
        mounting = _less(self.pieces["volume mounted"], self.plugin_s)
        ours = (self.over_s("claim Bound"), self.over_s("attached"), self.plugin_s)
        scheduling = (self.pieces["node selected"], self.pieces["pod scheduled"])
        return {
            "kubelet and containerd": _sums(mounting, self.pieces["container runs"]),
            "ours, with the PV controller's binding": _sums(*ours),
            "kube-scheduler": _sums(*scheduling),
            "attach/detach controller": self.pieces["VolumeAttachment created"],
        }


def _sums(*parts: list[float]) -> list[float]:
    return [sum(each) for each in zip(*parts, strict=True)]


def _less(whole: list[float], part: list[float] | None) -> list[float]:
    return [a - b for a, b in zip(whole, part or [0.0] * len(whole), strict=True)]


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
    chain = Chain({what: [] for what in _WORKS}, {what: [] for what in _OF_EC2})
    async with (
        one_real_node(folder, latency="real") as (box, hands, node),
        _Watches(hands) as watches,
    ):
        for number in range(COUNT):
            _control(box.ec2_endpoint, {"log": True, "reset_counts": True})
            await _one(hands, watches, node, number, chain)
            for what, seconds in own_s(_calls(box.ec2_endpoint)).items():
                chain.own_s[what].append(seconds)
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


def _control(endpoint: str, document: dict[str, Any]) -> None:
    ask(endpoint, "/_control", json.dumps(document).encode())


def _calls(endpoint: str) -> list[Call]:
    _, reply = ask(endpoint, "/_control?log=1")
    return [Call.of(each) for each in json.loads(reply)["log"] if each["outcome"] == "ok"]


def own_s(calls: Sequence[Call]) -> dict[str, float]:
    """EC2's own time in each piece of one pod's chain.

    It is the call that asks for something, and until that has come about; before an attachment
    DescribeInstances too. No look.

    Args:
        calls: that EC2 carried out, in the order of their beginning.

    Raises:
        BenchError: a volume was not asked for exactly once.
    """
    found = {}
    for what, (action, takes_s) in _OF_EC2.items():
        asked = [each for each in calls if each.action == action]
        if len(asked) != 1:
            raise BenchError(f"{len(asked)} calls of {action} for one pod, not 1")
        found[what] = asked[0].ended_s - asked[0].at_s + takes_s
    begun_s = {each.action: each.at_s for each in calls if each.action in dict(_OF_EC2.values())}
    first = [
        each
        for each in calls
        if each.action == "DescribeInstances"
        and begun_s["CreateVolume"] < each.at_s < begun_s["AttachVolume"]
    ]
    if first:
        found["attached"] += first[-1].ended_s - first[-1].at_s
    return found


def markdown(found: Chain) -> str:
    """The tables."""
    title = "### From a pod's creation until its container runs"
    if found.why_none:
        return f"{title}\n\nNot measured: {found.why_none}."
    rows = [_row(what, whose, found) for what, whose in _WORKS.items()]
    plugin = [
        "of these, NodeStage and NodePublish",
        "our node plugin",
        _two(found.plugin_s),
        "",
        "",
    ]
    rows.insert(list(_WORKS).index("volume mounted") + 1, plugin)
    own, over = _sums(*found.own_s.values()), found.whole_over_s
    rows.append(["**all**", "", _two(found.whole_s), _median(own), _judged(over)])
    limit = f"more: median, p99, s (limits {MEDIAN_S}, {P99_S})"
    head = ["until", "whose work", "median, p99, s", "EC2's own, median, s", limit]
    more = [[whose, _two(seconds)] for whose, seconds in found.by_whom_s.items()]
    return "\n\n".join(
        [
            title,
            f"{len(over)} pods, one after the other, each with a new volume.",
            _table(head, rows),
            f"Who takes what is more than EC2's own {_median(own)} s in the median:",
            _table(["who", "median, p99, s"], more),
        ]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(what: str, whose: str, found: Chain) -> list[str]:
    row = [what, whose, _two(found.pieces[what])]
    if what not in found.own_s:
        return [*row, "", ""]
    return [*row, _median(found.own_s[what]), _judged(found.over_s(what))]


def _judged(over: Sequence[float]) -> str:
    is_kept = percentile(over, 0.5) <= MEDIAN_S and percentile(over, 0.99) <= P99_S
    return _two(over) if is_kept else f"{_two(over)}, **missed**"


def _two(seconds: Sequence[float]) -> str:
    return f"{_median(seconds)}, {percentile(seconds, 0.99):.2f}"


def _median(seconds: Sequence[float]) -> str:
    return f"{percentile(seconds, 0.5):.2f}"


def _pod(number: int, node: str) -> dict[str, Any]:
    claims = {"/data": f"data-{number}"}
    return file_pods.pod(f"pod-{number}", "exec sleep 1000", claims, image=POD_IMAGE, node=node)
