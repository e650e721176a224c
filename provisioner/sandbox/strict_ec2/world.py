"""The state that moto does not have: a clock, things under way, tokens, and requests."""

import heapq
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any, Final

from provisioner.sandbox.strict_ec2.disk_changes import DiskChanges
from provisioner.sandbox.strict_ec2.faults import Fault
from provisioner.sandbox.strict_ec2.throttle import Throttle

_LOG_LENGTH: Final = 200_000
_PAGES_KEPT: Final = 1_000


@dataclass(slots=True)
class Delays:
    """How long EC2 takes after it has answered, in seconds."""

    create_s: float = 0.0
    attach_s: float = 0.0
    detach_s: float = 0.0
    delete_s: float = 0.0
    visible_after_s: float = 0.0
    # from ModifyVolume to optimizing, and from there to completed
    modify_s: float = 0.0
    optimize_s: float = 0.0
    modification_visible_after_s: float = 0.0
    # by how much DescribeVolumes lags behind a modification that is optimizing
    modified_shown_after_s: float = 0.0
    # from CreateSnapshot to completed, and by how much sooner if another one of the volume is there
    snapshot_s: float = 0.0
    snapshot_saves_s: float = 0.0
    # from a restore or copy until all of its blocks are there, and by how much that is told late
    initialize_s: float = 0.0
    initialization_known_after_s: float = 0.0
    # from a completed snapshot to fast restores that are enabled
    fast_restore_s: float = 0.0


# Latencies and delays as published for real EC2 (medians; AWS publishes no objectives).
REAL_LATENCY_S: Final = (0.1, 0.4)
# A real volume is optimizing or being initialized, a real snapshot pending, for minutes to hours:
# nobody watches a demo for so long.
REAL_DELAYS: Final = {
    "create_s": 1.5,
    "attach_s": 2.0,
    "detach_s": 3.0,
    "modify_s": 3.0,
    "optimize_s": 20.0,
    "snapshot_s": 8.0,
    "snapshot_saves_s": 5.0,
    "initialize_s": 20.0,
}
# As AWS says it, quoted in sodafoundation/strato #1094.
_MODIFICATION_REFUSAL: Final = (
    "You've reached the maximum modification rate per volume limit. "
    "Wait at least 6 hours between modifications per EBS volume."
)


@dataclass(slots=True)
class Settings:
    """What ``POST /_control`` can set; the command line says what a reset returns to."""

    latency_s: tuple[float, float] = (0.0, 0.0)
    delays: Delays = field(default_factory=Delays)
    throttle: Throttle = field(default_factory=Throttle)
    faults: list[Fault] = field(default_factory=list)
    # [{"zone": pattern, "type": pattern, "code": ...}]: creates that find no capacity
    capacity: list[dict[str, str]] = field(default_factory=list)
    # how many "volumes", how many "gib" and "iops" by type
    quotas: dict[str, Any] = field(default_factory=dict)
    # the most IOPS by type, where the region's are not those that are documented
    iops_ceilings: dict[str, int] = field(default_factory=dict)
    attach_limits: dict[str, int] = field(default_factory=dict)
    # types that have come since, by the name of one that each is like
    instance_types: dict[str, str] = field(default_factory=dict)
    # by ARN the "zone" that serves it and the "instances" on it
    outposts: dict[str, Any] = field(default_factory=dict)
    # how many of the next attaches (detaches) never get past attaching (become busy)
    stuck_attaching: int = 0
    stuck_detaching: int = 0
    # how many of the next creates end in state error
    failing_creates: int = 0
    # EC2's idempotency page: a token is compared without its Region and zone, so the same token in
    # another zone makes a second volume
    token_per_zone: bool = True
    # so many modifications of a volume in a rolling window; what is said beyond them, with the
    # fields volume_id and next_at
    modification_budget: int = 4
    modification_window_s: float = 86_400.0
    modification_refusal: str = _MODIFICATION_REFUSAL
    # how many of the next volumes vanish after creation, as if their KMS key could not be used
    vanishing_creates: int = 0
    # of a region: copies in progress, snapshots with fast restore, and the rates of all
    # initializations together
    copies_in_progress: int = 5
    fast_restore_snapshots: int = 5
    initialization_rate_limit_mibps: int = 5_000
    # how many of the next modifications end as failed
    failing_modifications: int = 0
    # what differs from snapshots.LIMITS
    snapshot_limits: dict[str, float] = field(default_factory=dict)
    # how many of the next snapshots end in state error
    failing_snapshots: int = 0
    # ids that an image uses
    snapshots_in_use: list[str] = field(default_factory=list)
    # by access key: the code with which its calls are refused, and whose account it is of
    refused_keys: dict[str, str] = field(default_factory=dict)
    accounts: dict[str, str] = field(default_factory=dict)
    hang_max_s: float = 120.0
    log: bool = False


@dataclass(slots=True)
class Token:
    """What a client token stands for."""

    fingerprint: frozenset[tuple[str, str]]
    volume_id: str


class World:
    """One EC2: settings, clock, transitions, tokens, pages and counts."""

    def __init__(self, make_settings: Callable[[], Settings], seed: int | None) -> None:
        self._make_settings = make_settings
        self._seed = seed
        self.disks = DiskChanges()
        self.reset()

    def reset(self) -> None:
        """Forget everything; settings become those of the command line again."""
        self.settings = self._make_settings()
        self.random = Random(self._seed)  # noqa: S311 (latency and order, not cryptography)
        self.tokens: dict[tuple[str, ...], Token] = {}
        self.backends: dict[tuple[str, str], Any] = {}
        self.pages: OrderedDict[str, list[str]] = OrderedDict()
        self.epoch = object()
        self.started_at = time.time()
        self.offset_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()
        self.disks.record("reset")
        self.reset_counts()

    def reset_counts(self) -> None:
        """Start counting anew."""
        self.calls: Counter[str] = Counter()
        self.throttled: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.faulted: Counter[str] = Counter()
        self.log: deque[dict[str, Any]] = deque(maxlen=_LOG_LENGTH)

    def now_s(self) -> float:
        """Return seconds on a clock that goes back only where it is set right."""
        return time.monotonic() + self.offset_s

    def moment(self) -> datetime:
        """Return the time of day as EC2 tells it, moved on with the clock."""
        return datetime.now(UTC) + timedelta(seconds=self.offset_s)

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Carry out ``act`` once ``delay_s`` have passed; at once when there is no delay."""
        if delay_s <= 0:
            act()
        else:
            heapq.heappush(self._due, (self.now_s() + delay_s, next(self._sequence), act))
            self.disks.stir()

    def advance(self) -> None:
        """Carry out everything that is due: called at the start of each request."""
        now_s = self.now_s()
        while self._due and self._due[0][0] <= now_s:
            heapq.heappop(self._due)[2]()

    def due_in_s(self) -> float:
        """Return in how many seconds the next thing is due; infinity when nothing is."""
        return max(0.0, self._due[0][0] - self.now_s()) if self._due else math.inf

    def keep_page(self, token: str, keys: list[str]) -> None:
        """Remember the rest of a listing; the oldest such rests are forgotten."""
        self.pages[token] = keys
        while len(self.pages) > _PAGES_KEPT:
            self.pages.popitem(last=False)
