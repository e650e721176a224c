"""What a stage of a large cluster's life costs the controller, and where that is read."""

import heapq
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from tests.bench.measured_controller import Pass
from tests.bench.scale_burst import Bursts
from tests.bench.standing import Standing
from tests.bench.webhook_measure import Answered

_TOLD_PASSES = 3
_RECEIVED = re.compile(r"bytes_received:(\d+)")


@dataclass(slots=True)
class Stage:
    """What one stage cost the controller.

    Attributes:
        name: in the table.
        began_s: on the monotonic clock.
        seconds: from its beginning to its aim.
        marks: seconds from its beginning to what happened on the way.
        cpu_s: of the controller, and of the API server.
        rest_mib: resident at its end.
        peak_mib: resident at most.
        longest: passes of the event loop, the longest first; only those of 20 ms and more.
        has_passes: whether these are measured.
        requests: to the API server, by verb and resource.
        received_mib: at least, from the API server, where ``ss`` can tell.
    """

    name: str
    began_s: float
    seconds: float = 0.0
    marks: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    api_server_cpu_s: float = 0.0
    rest_mib: float = 0.0
    peak_mib: float = 0.0
    longest: Sequence[Pass] = ()
    has_passes: bool = True
    requests: Counter[str] = field(default_factory=Counter)
    received_mib: float | None = None

    def mark(self, what: str) -> None:
        """Something happened now."""
        self.marks[what] = time.monotonic() - self.began_s

    def reach(self) -> None:
        """The aim is reached now; without this, at the end of the stage."""
        self.seconds = time.monotonic() - self.began_s


@dataclass(slots=True)
class Scaled:
    """Everything that was measured.

    Attributes:
        there: what stood.
        loading_s: until it did.
        stages: in their order.
        load: the machine's average before and after.
        answered: reviews by the webhook that has all of it cached.
        bursts: claims on top.
    """

    there: Standing
    loading_s: float
    stages: list[Stage]
    load: tuple[float, float]
    answered: Sequence[Answered] = ()
    bursts: Bursts | None = None


def longest(noted: Iterable[Pass]) -> list[Pass]:
    """Three passes: the first of a process makes clients, and is longer than all that wait."""
    return heapq.nlargest(_TOLD_PASSES, noted, key=lambda each: each.cpu_ms)


def received(pid: int, port: int) -> dict[str, int] | None:
    """Bytes that came over each TCP connection that a process has now; None without ``ss``."""
    if shutil.which("ss") is None:
        return None
    asked = ["ss", "-tinpHO", "dport", "=", f":{port}"]
    lines = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    return received_by(line for line in lines if f"pid={pid}," in line)


def received_by(lines: Iterable[str]) -> dict[str, int]:
    """The same from lines of ``ss``, by the connection's own end."""
    return {line.split()[3]: sum(map(int, _RECEIVED.findall(line))) for line in lines}


def came_since(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Bytes that came at least: what came over a connection that has ended meanwhile is unknown."""
    return sum(
        count - (before.get(each, 0) if count >= before.get(each, 0) else 0)
        for each, count in now.items()
    )


class _Object(msgspec.Struct):
    resource: str = ""


class _Event(msgspec.Struct, rename="camel"):
    audit_id: str = msgspec.field(name="auditID")
    verb: str
    request_received_timestamp: datetime
    object_ref: _Object = msgspec.field(default_factory=_Object)


def counted(log: bytes, from_s: float, until_s: float) -> Counter[str]:
    """Requests of an audit log that came within a time, by verb and resource."""
    seen: dict[str, str] = {}
    decode = msgspec.json.Decoder(_Event).decode
    for event in map(decode, log.splitlines()):
        if from_s <= event.request_received_timestamp.timestamp() < until_s:
            seen[event.audit_id] = f"{event.verb} {event.object_ref.resource}".rstrip()
    return Counter(seen.values())
