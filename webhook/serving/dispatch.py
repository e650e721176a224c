"""From the path and body of a call to its answer: the right handler, in time, and never an error.

Whatever a handler does, raise, hang, answer late or answer nonsense, the API server gets a review:
by policy (``webhook.model.review``), with a reason in the metrics.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import structlog

from provisioner import clock
from webhook.metrics import WebhookMetrics
from webhook.model import pod, review
from webhook.model.fair_share import PEER, FairShares, Share
from webhook.model.review import (
    Answer,
    Handler,
    Json,
    MalformedReviewError,
    RequestOf,
    TooDeepError,
    Trouble,
)

log = structlog.get_logger(__name__)

# Returns when it is the caller's turn again.
Turn = Callable[[], Awaitable[None]]

_PODS = "/validate/pods"
_OF_PODS = {_PODS, "/mutate/pods"}
# Kept back from what the API server waits, for the way back and for a loop that is late: this share
# of it, at most so much. A handler is told of all of it and cut off in its middle.
_MARGIN_SHARE = 0.2
_MARGIN_MOST_S = 0.5
# For a cancelled handler to end when the process does.
_LAST_WORDS_S = 1.0
# Reviews at once. What waits for EC2 (persistent volumes) or has a pod read (bindings) never takes
# the place of what is answered from memory: each path has places of its own.
_MOST_IN_FLIGHT = 256
_FEWER_IN_FLIGHT = dict.fromkeys(
    ("/mutate/persistentvolumes", "/validate/persistentvolumes", "/validate/bindings"), 64
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the HTTP server sends: a review if the status is 200, else one sentence."""

    status: int
    body: bytes


class Dispatcher:
    """Answers reviews.

    Args:
        handlers: by path.
        strict: refuse what could not be checked, instead of letting it through.
        metrics: where answers are counted.
        most_in_flight: beyond so many reviews of a path at once, some of the caller with most of
            them are answered without a rule.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        strict: bool,
        metrics: WebhookMetrics,
        most_in_flight: int = _MOST_IN_FLIGHT,
    ) -> None:
        self._handlers = dict(handlers)
        self._strict = strict
        self._metrics = metrics
        self._places = {
            path: FairShares(min(most_in_flight, _FEWER_IN_FLIGHT.get(path, most_in_flight)))
            for path in handlers
        }
        self._running: set[asyncio.Task[Answer]] = set()
        metrics.in_flight.set_function(lambda: len(self._running))
        for path, why in product(handlers, review.UNCHECKED):
            # Alerts look for an increase, and Prometheus sees none in a series that begins with 1.
            outcome = "denied" if review.is_strict(path, strict=strict) else "allowed"
            metrics.reviews.labels(path, outcome, why)

    def knows(self, path: str) -> bool:
        """Whether there is a handler for this path."""
        return path in self._handlers

    async def answer(
        self, path: str, body: bytes, timeout_s: float, peer: str = "", turn: Turn | None = None
    ) -> Reply:
        """Answer one call; raises nothing.

        Args:
            path: without a query.
            body: as sent.
            timeout_s: how long the API server still waits.
            peer: the caller's address.
            turn: waited for before the answer of a review that took its time is written: one call
                to EC2 answers a hundred of them at once.
        """
        started = clock.now_s()
        PEER.set(peer)
        if path not in self._handlers:
            return Reply(404, b"there is no webhook at this path\n")
        bulky = review.is_bulky(body)
        try:
            request = review.decode(body, None) if bulky else _read(path, body)
        except MalformedReviewError as error:
            uid = review.uid_of(body) if isinstance(error, TooDeepError) else ""
            if uid:
                return self.unread(path, uid, f"{error}", inline=review.has_inline_ebs(body))
            return Reply(400, f"{error}\n".encode())
        strict = review.is_strict(path, strict=self._strict)
        answer = review.misdirected(path, request)
        too_much = review.beyond_bounds(request)
        if bulky:
            too_much = f"the object has more than {review.MOST_PARTS} fields and list entries"
        if too_much:
            answer = review.unread(too_much, strict=strict)
        if bulky and path == _PODS and review.has_inline_ebs(body):
            answer = review.unread_inline(too_much)
        if answer is None:
            answer = await self._placed(path, request, started, timeout_s, peer)
            if turn is not None:
                await turn()
        return Reply(200, self._sealed(path, request, answer, started))

    def unread(self, path: str, uid: str, sentence: str, *, inline: bool = True) -> Reply:
        """Answer a call whose body is not read, because of what the sentence says.

        ``inline``: whether an inline EBS volume may be in it.
        """
        strict = review.is_strict(path, strict=self._strict)
        request: RequestOf[Any] = RequestOf(uid=uid, operation="")
        answer = review.unread(sentence, strict=strict)
        if inline and path == _PODS:
            answer = review.unread_inline(sentence)
        return Reply(200, self._sealed(path, request, answer, clock.now_s()))

    async def aclose(self) -> None:
        """Cancel what still runs, and await it for a moment."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_LAST_WORDS_S)

    async def _placed(
        self, path: str, request: RequestOf[Any], started: float, timeout_s: float, peer: str
    ) -> Answer:
        places = self._places[path]
        share = places.take(peer)
        if share is None:
            strict = review.is_strict(path, strict=self._strict)
            return review.unchecked(Trouble.LOAD, strict=strict)
        try:
            return await self._handled(path, request, started, timeout_s, share)
        finally:
            places.release(share)

    async def _handled(
        self, path: str, request: RequestOf[Any], started: float, timeout_s: float, share: Share
    ) -> Answer:
        strict = review.is_strict(path, strict=self._strict)
        margin = min(_MARGIN_MOST_S, timeout_s * _MARGIN_SHARE)
        deadline = started + timeout_s - margin
        # A task of its own: one that does not obey its cancellation must not hold the answer up.
        task = asyncio.create_task(_run(self._handlers[path], request, deadline), name=path)
        share.on_evict = task.cancel
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait((task,), timeout=max(0.0, timeout_s - margin / 2))
            if share.evicted:
                return review.unchecked(Trouble.LOAD, strict=strict)
            if not task.done():
                log.warning("a review timed out", path=path, uid=request.uid, of_s=timeout_s)
                return review.unchecked(Trouble.BUDGET, strict=strict)
            if task.cancelled():  # by the handler itself; this call was not cancelled
                raise RuntimeError("the handler was cancelled")
            return task.result()
        except Exception:
            log.exception("a review failed", path=path, uid=request.uid)
            return review.unchecked(Trouble.ERROR, strict=strict)
        finally:
            task.cancel()  # nothing, when it is done

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, or asyncio complains of one that came too late for its answer

    def _sealed(self, path: str, request: RequestOf[Any], answer: Answer, started: float) -> bytes:
        """The answer as bytes, and counted."""
        strict = review.is_strict(path, strict=self._strict)
        try:
            body = review.encode(request.uid, answer)
        except Exception:
            log.exception("an answer could not be written", path=path, uid=request.uid)
            answer = review.unchecked(Trouble.ERROR, strict=strict)
            body = review.encode(request.uid, answer)
        outcome = "denied" if not answer.allowed else "patched" if answer.patch else "allowed"
        self._metrics.reviews.labels(path, outcome, answer.why).inc()
        took_s = clock.now_s() - started
        self._metrics.review_seconds.labels(path).observe(took_s)
        return body


def _read(path: str, body: bytes) -> RequestOf[Any]:
    return pod.reviewed(body) if path in _OF_PODS else review.decode(body, Json)


async def _run(handler: Handler, request: RequestOf[Any], deadline: float) -> Answer:
    return await handler(request, deadline)
