"""Serve a certificate that is trusted and renewed in time; every replica does, without a leader.

All of them read the same Secret and the same two webhook configurations, whenever one of those
changes and when it is time. ``webhook.certificates.rotation_rules`` says what is next, and the
first replica writes it: a write names the version that was read, so the others are refused and read
again. A replica remembers only since when an authority has been trusted, and what it serves.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any

import structlog

from provisioner import clock
from provisioner.kube.informer import Informer
from provisioner.model.backoff import Backoff
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.meta import KubeObject
from provisioner.tell_once import TellOnce
from webhook.certificates import issuing, rotation_rules, tls_secret, webhook_configurations
from webhook.certificates.issuing import Authority, CertificateError, Names
from webhook.certificates.rotation_rules import Pair, Publish, Seen, Step, Wait, Waits
from webhook.certificates.tls import Contexts
from webhook.certificates.tls_secret import CERTIFICATE, KEY, Held, Secret, TlsSecret
from webhook.certificates.webhook_configurations import Configurations, Registered
from webhook.metrics import WebhookMetrics

# After a step, until the next look; doubled while one follows the other without rest, as when
# somebody undoes each.
_PACE = Backoff(0.02, 5.0)
_CALM_S = 10.0
_BACKOFF = Backoff(0.1, 10.0)
# A replica that could not read the Secret for so long is not asked by others either: it would not
# see a new certificate, and its caches are as old.
_DEAF_S = 300.0
# Of what several replicas do at once, all but one are refused.
_OVERTAKEN = frozenset({Reason.CONFLICT, Reason.OBJECT_EXISTS})

log = structlog.get_logger(__name__)


class Served:
    """The certificate in use.

    Attributes:
        pair: what is served of a Secret that is ours; None as long as nothing is.
    """

    def __init__(self, contexts: Contexts, metrics: WebhookMetrics) -> None:
        self._contexts = contexts
        self._metrics = metrics
        self._foreign: tuple[bytes, bytes] | None = None
        self.pair: Pair | None = None

    def take(self, held: Held, seen: Seen, now: datetime, waits: Waits) -> tuple[Held, float]:
        """Serve what a Secret of ours names, as soon as that is right.

        Returns:
            The Secret's content, without a pair that TLS refuses; and in how many seconds to ask
            again, infinity if there is nothing to be waited for.
        """
        pair = held.content.serving
        if pair is None:
            return held, inf
        if self.pair is not None and pair.fingerprint == self.pair.fingerprint:
            return held, inf
        in_s = rotation_rules.load_in_s(pair, self.pair, seen, now, waits)
        if in_s > 0:
            return held, in_s
        try:
            self._contexts.load(held.data[CERTIFICATE], held.data[KEY])
        except StorageError as error:
            problems = (*held.content.problems, error.message)
            return replace(
                held, content=replace(held.content, serving=None, problems=problems)
            ), inf
        self.pair = pair
        self._note(pair.not_after, pair.fingerprint)
        return held, inf

    def follow(self, data: Mapping[str, bytes | None], names: Names, now: datetime) -> None:
        """Serve what somebody else has put into the Secret; what is odd about it is only told.

        Raises:
            StorageError: it cannot be served; what was served before goes on.
        """
        chain, key = data.get(CERTIFICATE) or b"", data.get(KEY) or b""
        if self._foreign == (chain, key):
            return
        if not chain or not key:
            message = f"the Secret does not contain both {CERTIFICATE} and {KEY}"
            raise StorageError(Reason.CERTIFICATE_UNUSABLE, message)
        self._contexts.load(chain, key)
        self._foreign = chain, key
        try:
            leaf = issuing.read_leaf(chain, key)
        except CertificateError as error:
            log.warning("serving a certificate that cannot be parsed", error=str(error))
            return
        if lacking := leaf.lacks(names):
            log.warning("the certificate is not valid for all names", lacking=lacking)
        if not leaf.not_before <= now < leaf.not_after:
            log.warning("the certificate is not valid now", until=leaf.not_after.isoformat())
        self._note(leaf.not_after, leaf.fingerprint)

    def _note(self, not_after: datetime, fingerprint: str) -> None:
        self._metrics.certificate_expiry.set(not_after.timestamp())
        log.info("serving a certificate", sha256=fingerprint, until=not_after.isoformat())


class Rotation:
    """Serves what the Secret names and, unless somebody else does, renews it.

    Args:
        secret: the Secret of all replicas.
        contexts: where the certificate is served.
        metrics: expiry, and steps by their outcome.
        names: for which a certificate is issued.
        registration: who has to trust it; None when somebody else, such as cert-manager, writes
            both the Secret and the configurations, so that nothing is ever written here.
        waits: how long what.
        now: wall clock, UTC.

    Attributes:
        ready: set once a certificate is served, and trusted by all webhook configurations if that
            is ours to see to. It stays set; ``problem`` also tells when the API server is away.
    """

    def __init__(
        self,
        secret: TlsSecret,
        contexts: Contexts,
        metrics: WebhookMetrics,
        *,
        names: Names,
        registration: Configurations | None,
        waits: Waits | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._secret = secret
        self._served = Served(contexts, metrics)
        self._metrics = metrics
        self._names = names
        self._registration = registration
        self._waits = waits or Waits()
        self._now = now
        self._trusted = _Since()
        self._made_at: dict[str, float] = {}
        self._stepped_at = self._heard_at = -inf
        self._steps_in_a_row = 0
        self._failures = 0
        self._told = TellOnce()
        self._changed = asyncio.Event()
        self.ready = asyncio.Event()

    def problem(self) -> str:
        """Why no API server should ask here, "" when nothing speaks against it."""
        if not self.ready.is_set():
            return "no certificate that API servers trust is loaded yet"
        deaf_s = clock.now_s() - self._heard_at
        if deaf_s > _DEAF_S:
            return f"{self._secret} could not be read for {deaf_s:.0f} s"
        return ""

    async def run(self) -> None:
        """Keep on until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers():
                informer.subscribe(self._note)
                tasks.create_task(informer.run())
            tasks.create_task(self._keep())

    def _informers(self) -> list[Informer[Any]]:
        """They only say that something has changed; what counts is read live."""
        found: list[Informer[Any]] = [self._secret.informer(self._metrics)]
        if self._registration is not None:
            found += self._registration.informers(self._metrics)
        return found

    def _note(self, _old: KubeObject | None, _new: KubeObject | None) -> None:
        self._changed.set()

    async def _keep(self) -> None:
        registration = self._registration
        look = self._follow if registration is None else partial(self._turn, registration)
        while True:
            self._changed.clear()
            try:
                wait_s = await look()
            except StorageError as error:
                await asyncio.sleep(self._after_failure(error))
            except Exception:  # a bug here must not let the certificate expire unnoticed
                log.exception("maintaining the certificate failed")
                await asyncio.sleep(self._backoff_s())
            else:
                self._failures = 0
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()

    async def _follow(self) -> float:
        """Serve what somebody else has written; when to look again, in seconds."""
        secret = await self._read()
        if secret is None:
            raise StorageError(Reason.OBJECT_NOT_FOUND, f"{self._secret} does not exist")
        self._served.follow(secret.data or {}, self._names, self._now())
        self.ready.set()
        self._told.clear()
        return self._waits.check_s

    async def _turn(self, registration: Configurations) -> float:
        """Look once and take one step at most; when to look again, in seconds."""
        failure: KubeError | None = None
        found: tuple[Registered, ...] = ()
        try:
            found = await registration.read()
        except KubeError as error:
            failure = error
        # After the configurations, see there.
        secret, now = await self._read(), self._now()
        held = tls_secret.read(secret, self._names, now)
        if failure is not None:
            if self._served.pair is None:
                self._served.take(held, Seen(), now, self._waits)
            raise failure
        seen = self._look(found, held, now)
        held, serve_in_s = self._served.take(held, seen, now, self._waits)
        served = self._served.pair
        if served is not None and served.valid_at(now) and seen.trusts(served.authority):
            self.ready.set()
        decided = rotation_rules.decide(held.content, seen, now, self._waits)
        if isinstance(decided, Wait):
            self._told.clear()
        step = self._restrained(decided)
        if isinstance(step, Wait):
            return self._spread(min(step.seconds, serve_in_s))
        if isinstance(step, Publish):
            bundle = held.bundle(step.authorities)
            await self._counted(step, registration.publish(found, bundle))
        else:
            trusted = self._ours_first(webhook_configurations.authorities_in(found))
            changes = tls_secret.after(step, held, self._names, now, trusted)
            await self._counted(step, self._secret.write(secret, changes, type(step).__name__, now))
        await asyncio.sleep(self._next_pace_s())
        return 0.0

    def _look(self, found: tuple[Registered, ...], held: Held, now: datetime) -> Seen:
        """What is trusted now, and for how long it has been."""
        at_s, served = clock.now_s(), self._served.pair
        asked = {*held.content.known, *([served.authority] if served else [])}
        there = webhook_configurations.authorities_in(found)
        return Seen(
            found={authority.fingerprint for authority in there if not authority.expired(now)},
            trusted_s=self._trusted.note(webhook_configurations.trusted_by_all(found, asked), at_s),
        )

    def _ours_first(self, trusted: list[Authority]) -> list[Authority]:
        """Where there is no room for all, what replicas serve by has to stay."""
        served = self._served.pair
        return sorted(trusted, key=lambda each: not served or each.fingerprint != served.authority)

    def _restrained(self, step: Step) -> Step:
        """A step, but each that makes something once in so long: no race with who spoils it."""
        if isinstance(step, Wait | Publish):
            return step
        made_at = self._made_at.get(type(step).__name__, -inf)
        rest_s = made_at + self._waits.settle_s - clock.now_s()
        if rest_s <= 0:
            return step
        self._tell_once(
            step.why or "the certificate was removed again", retry_in_s=round(rest_s, 1)
        )
        return Wait(rest_s)

    async def _counted(self, step: Step, work: Awaitable[None]) -> None:
        name = type(step).__name__
        try:
            await work
        except StorageError as error:
            self._metrics.certificate_steps.labels(name, error.reason.value).inc()
            raise
        self._metrics.certificate_steps.labels(name, "ok").inc()
        if not isinstance(step, Wait | Publish):
            self._made_at[name] = clock.now_s()
            if step.why:
                log.warning("replaced an unusable certificate or CA", step=name, found=step.why)
                return
        log.info("took a step of certificate rotation", step=name)

    async def _read(self) -> Secret | None:
        found = await self._secret.read()
        # Whatever is wrong with the Secret or the configurations is so for every replica.
        self._heard_at = clock.now_s()
        return found

    def _spread(self, wait_s: float) -> float:
        """Looks are spread, so that replicas do not all look in the same second."""
        return wait_s * (random.uniform(0.8, 1.0) if wait_s >= self._waits.check_s else 1.0)  # noqa: S311 -- no secret

    def _next_pace_s(self) -> float:
        at_s = clock.now_s()
        rested = at_s - self._stepped_at > _CALM_S
        self._stepped_at = at_s
        self._steps_in_a_row = 0 if rested else self._steps_in_a_row + 1
        return _PACE.pause_s(self._steps_in_a_row)

    def _after_failure(self, error: StorageError) -> float:
        """Tell it once; how long to wait, in seconds."""
        if error.reason not in _OVERTAKEN:
            self._tell_once(error.message)
        return max(error.retry_after_s or 0.0, self._backoff_s())

    def _backoff_s(self) -> float:
        pause_s = _BACKOFF.jittered_s(self._failures, random.random())  # noqa: S311 -- no secret
        self._failures += 1
        return pause_s

    def _tell_once(self, problem: str, **more: object) -> None:
        if self._told.is_news("certificate", problem):
            log.warning("cannot maintain the certificate", error=problem, **more)


class _Since:
    """Since when things have been so, as far as this process has seen."""

    def __init__(self) -> None:
        self._began_s: dict[str, float] = {}

    def note(self, so: Iterable[str], at_s: float) -> dict[str, float]:
        """What is so at this time, and nothing else is; for how long each has been, in seconds."""
        self._began_s = {what: self._began_s.get(what, at_s) for what in so}
        return {what: at_s - began_s for what, began_s in self._began_s.items()}
