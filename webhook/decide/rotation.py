"""The certificates' next step: what the one Secret holds, and what the API server trusts.

The Secret is the only state. Its content tells the phase, so a crash anywhere is resumed by
whoever looks next, and no word beside the keys can contradict them::

    serving                          trusted: serving         idle
    serving, next                    trusted: both            publishing: next is not served yet
    next in the place of serving     trusted: both            swapped: the old authority remains
    serving                          trusted: serving         pruned, which is idle again

Three rules keep every handshake good:

- A certificate is served only after all webhook configurations have trusted its authority for
  ``settle_s``: API servers follow those by a watch of their own.
- An authority is dropped only after its successor has been served for ``prune_after_s``: replicas
  follow the Secret by a watch.
- A bundle is published only when it holds all that the configurations trust, but for what was
  dropped in that way: a Secret that somebody has put into the place of ours knows nothing of what
  replicas serve at that moment.

The times are counted by each replica itself, on its own monotonic clock, from when it first saw
something to be so: what another replica's wall clock wrote is never compared with ours. The wall
clock decides about validity only, in which an hour is nothing.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

# A bundle only grows where the Secret is spoilt again and again; API servers read all of it.
MOST_AUTHORITIES = 10


@dataclass(frozen=True, slots=True)
class Waits:
    """How long what, in seconds.

    Attributes:
        settle_s: an authority is published, until a certificate of it is served.
        prune_after_s: a certificate is served, until the authority before it is dropped. A replica
            that cannot reach the API server for longer goes on with what is no longer trusted.
        check_s: at most between two looks; nothing but time makes a certificate old.
    """

    settle_s: float = 60.0
    prune_after_s: float = 600.0
    check_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key that could be served: they match, all names are in it.

    Attributes:
        fingerprint: of the certificate.
        authority: fingerprint of the authority that signed it, one of the bundle's.
        not_before, not_after: from when, and until when, both are valid.
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
        serving: what every replica is to serve; None if there is nothing that could be served.
        upcoming: what is to be served next; None likewise.
        authorities: fingerprints of the bundle's, in their order.
        retired: fingerprints of those that were dropped last.
        tidy: whether the bundle holds nothing else.
        problems: what is there and cannot be used, a sentence each.
        spoilt_upcoming: whether one of them is about what is to be served next.
    """

    serving: Pair | None = None
    upcoming: Pair | None = None
    authorities: tuple[str, ...] = ()
    retired: AbstractSet[str] = frozenset()
    tidy: bool = True
    problems: tuple[str, ...] = ()
    spoilt_upcoming: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What this replica has seen so far.

    Attributes:
        carried: whether all webhook configurations carry exactly the Secret's bundle now.
        found: fingerprints of all authorities that some webhook is trusted by now, and that have
            not expired.
        trusted_s: for how long all of them have trusted an authority, by its fingerprint, in
            seconds; one that is not trusted by all now is not in it.
        serving_s: for how long the Secret has named what is to be served, in seconds.
    """

    carried: bool = False
    found: AbstractSet[str] = frozenset()
    trusted_s: Mapping[str, float] | None = None
    serving_s: float = 0.0

    def trusts_s(self, authority: str) -> float:
        """For how long an authority has been trusted everywhere, in seconds; 0 if it is not."""
        return (self.trusted_s or {}).get(authority, 0.0)

    def trusts(self, authority: str) -> bool:
        """Whether an authority is trusted everywhere."""
        return authority in (self.trusted_s or {})


@dataclass(frozen=True, slots=True)
class Make:
    """Write a new pair as what is served, in the place of all that is there.

    Attributes:
        why: what is wrong with the Secret, "" if it is only empty.
    """

    why: str = ""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Write a new pair as what is served next, and its authority into the bundle.

    Attributes:
        why: what is wrong with the one that is there, "" if the time has come.
    """

    why: str = ""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Write into the bundle what the webhook configurations trust besides."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the bundle into the webhook configurations."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Write what is to be served next as what is served."""


@dataclass(frozen=True, slots=True)
class Prune:
    """Write a bundle that trusts nothing but what is served."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again when something changes, at the latest after so many seconds."""

    seconds: float


Step = Make | Prepare | Adopt | Publish | Swap | Prune | Wait


def decide(content: Content, seen: Seen, now: datetime, waits: Waits) -> Step:
    """The next step of a Secret that is ours to write.

    Args:
        content: what it holds.
        seen: what the webhook configurations carry, and for how long things have been so.
        now: wall clock, UTC.
        waits: how long what.
    """
    serving, upcoming = content.serving, content.upcoming
    if serving is None or not serving.valid_at(now):
        return _rescue(content, seen, now)
    if not seen.carried:
        return _publish(content, seen)
    if content.spoilt_upcoming:
        return Prepare("; ".join(content.problems))
    if upcoming is not None and now >= upcoming.not_after:
        return Prepare(_outside(upcoming, now))
    if upcoming is not None:
        return _once(
            Swap(),
            max(waits.settle_s - seen.trusts_s(upcoming.authority), _until_valid(upcoming, now)),
            waits,
        )
    if content.authorities != (serving.authority,) or not content.tidy:
        served_s = min(seen.serving_s, seen.trusts_s(serving.authority))
        return _once(Prune(), waits.prune_after_s - served_s, waits)
    return _once(Prepare(), (serving.due - now).total_seconds(), waits)


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
    if loaded is None or loaded.fingerprint == pair.fingerprint:
        return 0.0
    if not loaded.valid_at(now) or not seen.trusts(loaded.authority):
        return 0.0
    return max(0.0, waits.settle_s - seen.trusts_s(pair.authority))


def _rescue(content: Content, seen: Seen, now: datetime) -> Step:
    """Nothing in the Secret can be served."""
    upcoming = content.upcoming
    if upcoming is not None and upcoming.valid_at(now):
        return Swap() if seen.trusts(upcoming.authority) else _publish(content, seen)
    if content.serving is None:
        return Make("; ".join(content.problems))
    return Make(_outside(content.serving, now))


def _publish(content: Content, seen: Seen) -> Step:
    strangers = seen.found - {*content.authorities} - content.retired
    return Adopt() if strangers and len(content.authorities) < MOST_AUTHORITIES else Publish()


def _once(step: Step, in_s: float, waits: Waits) -> Step:
    return step if in_s <= 0 else Wait(min(in_s, waits.check_s))


def _until_valid(pair: Pair, now: datetime) -> float:
    return (pair.not_before - now) / timedelta(seconds=1)


def _outside(pair: Pair, now: datetime) -> str:
    if now < pair.not_before:
        return f"the certificate is not valid before {pair.not_before:%Y-%m-%d %H:%M} UTC"
    return f"the certificate has expired at {pair.not_after:%Y-%m-%d %H:%M} UTC"
