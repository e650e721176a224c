"""A rotation of the certificate under load, seen by one that trusts only what an API server would.

New connections believe in the caBundle of the webhook configuration as it is at that moment, which
is followed by a watch as an API server does. Run as ``python -m tests.bench.webhook_rotation``,
this is ``ebs-webhook`` with shorter waits between the steps of a rotation: less time for anybody
to notice, and a bench that ends.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest import mock

import aiohttp
import msgspec

from tests.bench.hands import BenchError, Hands
from tests.bench.webhook_load import HOST, Load, Outcome, Trust, drive
from tests.bench.webhook_numbers import evenly, runs_of
from tests.bench.webhook_reviews import Reviews
from tests.bench.webhook_world import CONFIGURATIONS, NAMESPACE, SECRETS, Served
from tests.bench.world import World
from tests.webhook import pairs
from webhook import cli
from webhook.certificates import flow, issuing, tls_secret
from webhook.certificates.issuing import Names
from webhook.certificates.rotation_rules import Pair, Waits
from webhook.settings import NAME, TLS_SECRET

HASTY = Waits(settle_s=5.0)
# The webhook has to be ready by then, and the load under way.
DUE_IN_S = 40.0
AFTERWARDS_S = 10.0
_FRESH_EVERY = 25
_FOLLOWED = CONFIGURATIONS["ValidatingWebhookConfiguration"]


class _Client(msgspec.Struct, rename="camel"):
    ca_bundle: bytes = b""


class _Hook(msgspec.Struct, rename="camel"):
    client_config: _Client


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Configuration(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    webhooks: list[_Hook] = []


class _Change(msgspec.Struct):
    type: str
    object: _Configuration


class Follower:
    """Follows the caBundle that API servers trust.

    Attributes:
        trust: always the latest.
        seen: all of them, in order.
    """

    def __init__(self, found: _Configuration) -> None:
        self.seen = [_bundle(found)]
        self.trust = Trust(self.seen[0])

    async def follow(self, hands: Hands, version: str) -> None:
        """Watch for ever."""
        while True:
            with suppress(aiohttp.ClientError):
                async with hands.lines(_FOLLOWED, version) as reply:
                    async for line in reply.content:
                        version = self._take(msgspec.json.decode(line, type=_Change))

    def _take(self, change: _Change) -> str:
        if change.type == "ERROR":
            raise BenchError("the watch of the webhook configurations broke")
        found = change.object
        if change.type == "MODIFIED" and found.metadata.name == NAME:
            self.seen.append(_bundle(found))
            self.trust.set(self.seen[-1])
        return found.metadata.resource_version


@asynccontextmanager
async def following(made: World) -> AsyncIterator[Follower]:
    """A follower at work."""
    answer = await made.hands.send("GET", f"{_FOLLOWED}/{NAME}")
    found = msgspec.json.decode(answer, type=_Configuration)
    follower = Follower(found)
    task = asyncio.create_task(follower.follow(made.hands, found.metadata.resource_version))
    try:
        yield follower
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def put_old_certificate(made: World, due_in_s: float) -> datetime:
    """Leave a Secret whose authority has to be replaced in so many seconds; returns when."""
    names, now = Names.of_service(NAME, NAMESPACE, [HOST]), datetime.now(UTC)
    fresh = pairs.issue(names, now)
    (authority,) = issuing.authorities(fresh.authority)
    ends = authority.certificate.not_valid_before_utc, authority.certificate.not_valid_after_utc
    too_late = Pair("", "", *ends).due - now
    aged = pairs.issue(names, now - too_late + timedelta(seconds=due_in_s))
    old = pairs.reissue(aged, now, names)
    changes: tls_secret.Changes = {
        tls_secret.BUNDLE: old.authority,
        tls_secret.AUTHORITY_KEY: old.authority_key,
        tls_secret.CERTIFICATE: old.certificate,
        tls_secret.KEY: old.key,
    }
    with suppress(BenchError):  # there need not be one
        await made.hands.send("DELETE", f"{SECRETS}/{TLS_SECRET}")
    body: dict[str, Any] = tls_secret.created(TLS_SECRET, changes, "Make", now)
    await made.hands.send("POST", SECRETS, body)
    return now + timedelta(seconds=due_in_s)


async def rotate(
    served: Served, reviews: Reviews, due: datetime, per_s: float, cores: frozenset[int]
) -> Outcome:
    """Review at a rate from before the rotation, which is due then, until after it.

    Raises:
        BenchError: there was no whole rotation, so nothing is said about one.
    """
    due_in_s = (due - datetime.now(UTC)).total_seconds()
    seconds = due_in_s + HASTY.settle_s + AFTERWARDS_S
    async with following(served.made) as follower:
        load = Load(
            port=served.port,
            reviews=reviews,
            due_s=evenly(round(seconds * per_s), per_s),
            trust=follower.trust,
            cores=cores,
            fresh_every=_FRESH_EVERY,
        )
        outcome = await asyncio.to_thread(drive, load)
    certificates_shown = runs_of([shown for _, shown in outcome.certificates])
    check(certificates_shown, runs_of([_told(bundle) for bundle in follower.seen]))
    return outcome


def check(certificates_shown: Sequence[str], bundles: Sequence[str]) -> None:
    """Whether it was a rotation: two certificates, and trust in one authority, then in two.

    Raises:
        BenchError: it was not.
    """
    sizes = [len(bundle.split()) for bundle in bundles]
    if len(certificates_shown) != 2 or sizes != [1, 2]:
        found = f"{len(certificates_shown)} certificates, bundles of {sizes} authorities"
        raise BenchError(f"there was no whole rotation under load: {found}")


def _bundle(found: _Configuration) -> bytes:
    (bundle,) = {hook.client_config.ca_bundle for hook in found.webhooks}
    return bundle


def _told(bundle: bytes) -> str:
    return " ".join(authority.fingerprint for authority in issuing.authorities(bundle))


if __name__ == "__main__":
    with mock.patch.object(
        flow,
        "Waits",
        partial(Waits, settle_s=HASTY.settle_s),
    ):
        cli.main()
