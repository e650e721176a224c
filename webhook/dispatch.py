"""From the path and body of a call to its answer: the right handler, in time, and never an error.

Whatever a handler does, raise, hang, answer late or answer nonsense, the API server gets a review:
by policy (``webhook.decide.policy``), with a reason in the metrics.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog

from webhook.decide import policy
from webhook.decide.policy import Trouble
from webhook.metrics import WebhookMetrics
from webhook.model import review
from webhook.model.review import Answer, MalformedReviewError, Request

log = structlog.get_logger(__name__)

# Is given the loop's time by which it should have answered: with a little time left to word a doubt
# of its own before it is cut off.
Handler = Callable[[Request, float], Awaitable[Answer]]

# Kept back from what the API server waits, for the way back and for a loop that is late: this share
# of it, at most so much. A handler is told of all of it and cut off in its middle.
_MARGIN_SHARE = 0.2
_MARGIN_MOST_S = 0.5
# For a cancelled handler to end, when the process does.
_LAST_WORDS_S = 1.0


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
        most_in_flight: beyond so many reviews at once, further ones are answered by policy.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        strict: bool,
        metrics: WebhookMetrics,
        most_in_flight: int = 256,
    ) -> None:
        self._handlers = dict(handlers)
        self._strict = strict
        self._metrics = metrics
        self._most_in_flight = most_in_flight
        self._running: set[asyncio.Task[Answer]] = set()
        metrics.in_flight.set_function(lambda: len(self._running))

    def knows(self, path: str) -> bool:
        """Whether there is a handler for this path."""
        return path in self._handlers

    async def answer(self, path: str, body: bytes, timeout_s: float) -> Reply:
        """Answer one call; raises nothing.

        Args:
            path: without a query.
            body: as sent.
            timeout_s: how long the API server still waits.
        """
        started = asyncio.get_running_loop().time()
        if path not in self._handlers:
            return Reply(404, b"there is no webhook at this path\n")
        bulky = review.is_bulky(body)
        try:
            request = review.decode(body, whole=not bulky)
        except MalformedReviewError as error:
            return Reply(400, f"{error}\n".encode())
        strict = policy.is_strict(path, strict=self._strict)
        answer = policy.beyond(path, request)
        if bulky:
            answer = policy.unchecked(Trouble.SIZE, strict=strict)
        if answer is None and len(self._running) >= self._most_in_flight:
            answer = policy.unchecked(Trouble.LOAD, strict=strict)
        if answer is None:
            answer = await self._handled(path, request, started, timeout_s)
        return Reply(200, self._sealed(path, request, answer, started))

    async def aclose(self) -> None:
        """Cancel what still runs, and await it for a moment."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_LAST_WORDS_S)

    async def _handled(
        self, path: str, request: Request, started: float, timeout_s: float
    ) -> Answer:
        strict = policy.is_strict(path, strict=self._strict)
        margin = min(_MARGIN_MOST_S, timeout_s * _MARGIN_SHARE)
        deadline = started + timeout_s - margin
        # A task of its own: one that does not obey its cancellation must not hold the answer up.
        task = asyncio.create_task(_run(self._handlers[path], request, deadline), name=path)
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait((task,), timeout=max(0.0, timeout_s - margin / 2))
            if not task.done():
                log.warning("a review took too long", path=path, uid=request.uid, of_s=timeout_s)
                return policy.unchecked(Trouble.BUDGET, strict=strict)
            if task.cancelled():  # by the handler itself; this call was not cancelled
                raise RuntimeError("the handler was cancelled")
            return task.result()
        except Exception:
            log.exception("a review failed", path=path, uid=request.uid)
            return policy.unchecked(Trouble.ERROR, strict=strict)
        finally:
            task.cancel()  # nothing, when it is done

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, or asyncio complains of one that came too late for its answer

    def _sealed(self, path: str, request: Request, answer: Answer, started: float) -> bytes:
        """The answer as bytes, and counted."""
        strict = policy.is_strict(path, strict=self._strict)
        try:
            body = review.encode(request.uid, answer)
        except Exception:
            log.exception("an answer could not be written", path=path, uid=request.uid)
            answer = policy.unchecked(Trouble.ERROR, strict=strict)
            body = review.encode(request.uid, answer)
        outcome = "denied" if not answer.allowed else "patched" if answer.patch else "allowed"
        self._metrics.reviews.labels(path, outcome, answer.why).inc()
        took_s = asyncio.get_running_loop().time() - started
        self._metrics.review_seconds.labels(path).observe(took_s)
        return body


async def _run(handler: Handler, request: Request, deadline: float) -> Answer:
    return await handler(request, deadline)
