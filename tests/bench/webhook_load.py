"""Reviews over HTTPS as an API server sends them, at their time, whatever became of those before.

The loop is open: a review that is due while all connections are busy waits here, and its wait
counts. One thread a connection, because a thread that sleeps wakes within 0.1 ms and an event loop
within 1 ms; and little Python, because what this side takes is measured with the rest.
"""

import gc
import hashlib
import itertools
import os
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import msgspec

from tests.bench.hands import BenchError
from tests.bench.webhook_reviews import Reviews

HOST = "127.0.0.1"
_PATIENCE_S = 10.0
_LEAD_S = 0.2
_PART = 1 << 16
_END = b"\r\n\r\n"


class _Response(msgspec.Struct):
    uid: str = ""
    allowed: bool = False
    warnings: list[str] = []


class _Review(msgspec.Struct):
    response: _Response


_REVIEW = msgspec.json.Decoder(_Review)


class Trust:
    """The authorities that new connections believe in; may change at any time."""

    def __init__(self, bundle: bytes) -> None:
        self.set(bundle)

    def set(self, bundle: bytes) -> None:
        """Believe in this bundle alone from the next connection on."""
        self.context = ssl.create_default_context(cadata=bundle.decode())


@dataclass(frozen=True, slots=True)
class Load:
    """What to send.

    Attributes:
        port: of the webhook.
        reviews: what is sent.
        due_s: when, from the start.
        connections: kept alive, and as many threads.
        cores: where the threads run.
        fresh_every: so many reviews of a connection, and it begins anew; 0 for never.
    """

    port: int
    reviews: Reviews
    due_s: Sequence[float]
    trust: Trust
    connections: int = 16
    cores: frozenset[int] = frozenset()
    fresh_every: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of it.

    Attributes:
        took_ms: of good answers, from when each was due.
        late_ms: of those, how late it was sent; this side's own fault, or that of slow answers.
        failures: by what went wrong.
        opened: connections.
        certificates: fingerprint and time (monotonic) of each connection's, in order of time.
    """

    took_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    opened: int = 0
    certificates: list[tuple[float, str]] = field(default_factory=list)

    def __iadd__(self, other: "Outcome") -> Self:
        self.took_ms += other.took_ms
        self.late_ms += other.late_ms
        self.failures += other.failures
        self.opened += other.opened
        self.certificates = sorted(self.certificates + other.certificates)
        return self


class _BadAnswerError(Exception):
    """The webhook answered, but not as it should have."""


def drive(load: Load) -> Outcome:
    """Send all of it; returns when the last is answered. Blocks: call it in a thread.

    Raises:
        BenchError: not one answer was good.
    """
    run = _Run(load)
    # A collection of everything that this process holds would take longer than a hundred reviews.
    gc.disable()
    try:
        with ThreadPoolExecutor(load.connections) as threads:
            workers = [threads.submit(run.work) for _ in range(load.connections)]
        total = Outcome()
        for worker in workers:
            total += worker.result()
        if not total.took_ms:
            raise BenchError(f"no review was answered as it should be: {dict(total.failures)}")
        return total
    finally:
        gc.enable()


class _Run:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._numbers = itertools.count()
        self._began_s = 0.0
        self._all_connected = threading.Barrier(load.connections, self._begin)

    def _begin(self) -> None:
        self._began_s = time.monotonic() + _LEAD_S

    def work(self) -> Outcome:
        """One connection's part: always the next review that nobody has taken."""
        load, outcome = self._load, Outcome()
        os.sched_setaffinity(0, load.cores or os.sched_getaffinity(0))
        connection = _Connection(load, outcome)
        try:
            connection.open()
        finally:
            self._all_connected.wait()
        for number in self._numbers:
            if number >= len(load.due_s):
                break
            uid, request = load.reviews.request(number)
            due = self._began_s + load.due_s[number]
            time.sleep(max(0.0, due - time.monotonic()))
            sent = time.monotonic()
            try:
                connection.ask(uid, request)
            except (OSError, ValueError, _BadAnswerError) as error:
                outcome.failures[f"{type(error).__name__}: {error}"] += 1
                connection.close()
                continue
            outcome.took_ms.append((time.monotonic() - due) * 1000)
            outcome.late_ms.append((sent - due) * 1000)
        connection.close()
        return outcome


class _Connection:
    def __init__(self, load: Load, outcome: Outcome) -> None:
        self._load, self._outcome = load, outcome
        self._wire: ssl.SSLSocket | None = None
        self._asked = 0

    def open(self) -> ssl.SSLSocket:
        plain = socket.create_connection((HOST, self._load.port), _PATIENCE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            wire = self._load.trust.context.wrap_socket(plain, server_hostname=HOST)
        except BaseException:
            plain.close()
            raise
        shown = hashlib.sha256(wire.getpeercert(binary_form=True) or b"").hexdigest()
        self._outcome.certificates.append((time.monotonic(), shown))
        self._outcome.opened += 1
        self._wire, self._asked = wire, 0
        return wire

    def ask(self, uid: str, request: bytes) -> None:
        """Send a review; raises whatever is wrong with its answer."""
        wire = self._wire or self.open()
        wire.sendall(request)
        head, body = self._answer(wire)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise _BadAnswerError(head.split(b"\r\n", 1)[0].decode())
        found = _REVIEW.decode(body).response
        if found.uid != uid:
            raise _BadAnswerError("another uid")
        if not found.allowed or found.warnings:
            raise _BadAnswerError(f"allowed: {found.allowed}, warnings: {found.warnings}")
        self._asked += 1
        if b"connection: close" in head.lower() or self._asked == self._load.fresh_every:
            self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _answer(self, wire: ssl.SSLSocket) -> tuple[bytes, bytes]:
        got = b""
        while _END not in got:
            got += self._part(wire)
        head, _, body = got.partition(_END)
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(body) < size:
            body += self._part(wire)
        return head, body

    def _part(self, wire: ssl.SSLSocket) -> bytes:
        part = wire.recv(_PART)
        if not part:
            raise ConnectionError("closed without an answer")
        return part
