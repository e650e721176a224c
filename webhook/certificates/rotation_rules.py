"""The certificates' next step: what the one Secret holds, and what the API server trusts.

The Secret is the only state: an authority with its key, a certificate that it signed, and in the
bundle all authorities that were ever trusted and have not expired. Its content says what is next,
so after a crash anywhere the next replica that reads it continues.

A certificate is renewed from the same authority, which everybody trusts already: nothing has to be
waited for. A new authority (every seven years, or where its key is gone) is published beside the
old one first. Three rules keep every handshake good:

- A certificate of another authority is served only after all webhook configurations have trusted
  that for ``settle_s``: API servers follow those by a watch of their own. Each replica counts it on
  its own monotonic clock.
- The configurations trust an older authority for a day at least after nothing of it is in the
  Secret; replicas follow the Secret by a watch. It stays in the Secret's bundle, so that a
  later reader knows that it was dropped, and does not adopt it as an unknown one.
- What the configurations trust and the Secret does not know is taken into it before anything is
  published: a Secret that somebody has put into the place of ours knows nothing of what replicas
  serve at that moment.

The wall clock decides about days only, in which an hour is nothing.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

# A bundle only grows where the Secret is spoilt again and again; API servers read all of it.
MOST_AUTHORITIES = 10
# Certificates are valid from a day before they were made.
_BESIDE = timedelta(days=2)
# So long the configurations may trust more than they must: two replicas whose clocks differ must
# not write against each other.
_EITHER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long what, in seconds.

    Attributes:
        settle_s: an authority is published, until a certificate of it is served.
        check_s: at most between two looks.
    """

    settle_s: float = 60.0
    check_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate whose key is at hand: an authority that may sign, or one that may be served.

    Attributes:
        fingerprint: of the certificate.
        authority: fingerprint of the authority that signed it; of an authority its own.
        not_before, not_after: from when, and until when, it and its authority are valid.
    """

    fingerprint: str
    authority: str
    not_before: datetime
    not_after: datetime

    @property
    def due(self) -> datetime:
        """When it has to be replaced: a third of its time is left."""
        return self.not_after - (self.not_after - self.not_before) / 3

    def valid_at(self, now: datetime) -> bool:
        """Whether it is valid now, by our clock."""
        return self.not_before <= now < self.not_after


@dataclass(frozen=True, slots=True)
class Content:
    """What the Secret holds.

    Attributes:
        authority: what signs; None if there is nothing that could.
        serving: what every replica is to serve; None likewise.
        known: fingerprints of all authorities in the bundle that have not expired, in their order.
        problems: what is there and cannot be used, a sentence each.
    """

    authority: Pair | None = None
    serving: Pair | None = None
    known: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What this replica has seen so far of the webhook configurations.

    Attributes:
        found: fingerprints of all authorities that some webhook is trusted by now, and that have
            not expired.
        trusted_s: for how long all of them have trusted an authority, by its fingerprint, in
            seconds; one that is not trusted by all now is not in it.
    """

    found: AbstractSet[str] = frozenset()
    trusted_s: Mapping[str, float] | None = None

    def trusts_s(self, authority: str) -> float:
        """For how long an authority has been trusted everywhere, in seconds; 0 if it is not."""
        return (self.trusted_s or {}).get(authority, 0.0)

    def trusts(self, authority: str) -> bool:
        """Whether an authority is trusted everywhere."""
        return authority in (self.trusted_s or {})


@dataclass(frozen=True, slots=True)
class Make:
    """Write a new authority, before those that are known or trusted.

    Attributes:
        why: what is wrong with the one that is there, "" if there is none or its time has come.
    """

    why: str = ""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Write into the bundle what the configurations trust besides, and a new certificate.

    A new one, so that for days nothing of what is trusted is dropped.
    """

    why: str = "the webhook configurations trust a CA that is not in the Secret"


@dataclass(frozen=True, slots=True)
class Publish:
    """Write these authorities into the webhook configurations."""

    authorities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sign:
    """Write a new certificate.

    Attributes:
        why: what is wrong with the one that is there, "" if there is none or its time has come.
    """

    why: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again when something changes, at the latest after so many seconds."""

    seconds: float


Step = Make | Adopt | Publish | Sign | Wait


def decide(content: Content, seen: Seen, now: datetime, waits: Waits) -> Step:
    """The next step of a Secret that is ours to write.

    Args:
        content: what it holds.
        seen: what the webhook configurations trust.
        now: wall clock, UTC.
        waits: how long what.
    """
    authority, serving = content.authority, content.serving
    problems = "; ".join(content.problems)
    if authority is None:
        return Make(problems)
    if not authority.valid_at(now):
        return Make(_outside("CA", authority, now))
    if now >= authority.due:
        return Make()
    if seen.found - {*content.known} and len(content.known) < MOST_AUTHORITIES:
        return Adopt()
    needed, allowed = _to_be_trusted(content, authority, now)
    if not (all(map(seen.trusts, needed)) and seen.found <= allowed):
        return Publish(tuple(each for each in content.known if each in allowed))
    if serving is None:
        return Sign(problems)
    if not serving.valid_at(now):
        return Sign(_outside("certificate", serving, now))
    if now >= serving.due:
        return Sign()
    left_s = (min(serving.due, authority.due) - now).total_seconds()
    if serving.authority != authority.fingerprint:
        left_s = waits.settle_s - seen.trusts_s(authority.fingerprint)
    return Sign() if left_s <= 0 else Wait(min(left_s, waits.check_s))


def load_in_s(pair: Pair, loaded: Pair | None, seen: Seen, now: datetime, waits: Waits) -> float:
    """When a replica may begin to serve what the Secret names, in seconds; 0 for now.

    Where the Secret was rewritten by force, or lost, what is served already goes on until the new
    one is trusted. There is nothing to be lost when that is no better.

    Args:
        pair: what the Secret names.
        loaded: what this replica serves, None for nothing.
        seen: for how long which authorities have been trusted.
        now: wall clock, UTC.
        waits: how long what.
    """
    if loaded is None or loaded.authority == pair.authority:
        return 0.0
    if not loaded.valid_at(now) or not seen.trusts(loaded.authority):
        return 0.0
    return max(0.0, waits.settle_s - seen.trusts_s(pair.authority))


def _to_be_trusted(
    content: Content, authority: Pair, now: datetime
) -> tuple[AbstractSet[str], AbstractSet[str]]:
    """Which authorities the configurations have to trust, and which they may."""
    everybody, alone, serving = {*content.known}, {authority.fingerprint}, content.serving
    if serving is None or serving.authority != authority.fingerprint:
        return everybody, everybody
    if now < authority.not_before + _BESIDE:
        return everybody, everybody
    youngest = max(authority.not_before, serving.not_before)
    return (alone, everybody) if now < youngest + _BESIDE + _EITHER else (alone, alone)


def _outside(what: str, pair: Pair, now: datetime) -> str:
    if now < pair.not_before:
        return f"the {what} is not valid before {pair.not_before:%Y-%m-%d %H:%M} UTC"
    return f"the {what} expired at {pair.not_after:%Y-%m-%d %H:%M} UTC"
