"""One simulated day of one cluster, told from its beginning to its end."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

import structlog

from provisioner.kube import resources, wire
from provisioner.kube.lease import LEASES
from provisioner.sandbox.strict_ec2.throttle import parse
from tests.bench.standing import ZONES, Standing
from tests.day import census
from tests.day.account import CALM, Account, Weather
from tests.day.api_server import ApiServer, Kind
from tests.day.clocks import NOW, DayLoop
from tests.day.cluster import Churn, Cluster
from tests.day.oracle import Oracle
from tests.day.replica import SETTINGS, Replica
from tests.day.transport import Transport

HOUR_S = 3600.0
LATE_S = 60.0  # what waits for longer is behind
RECOVERED_WITHIN_S = 600.0
_SETTLES_S = 600.0
_LOOK_EVERY_S = 30.0
COMPARE_EVERY_S = 900.0  # what EC2 has with what the API server has
_RESTARTS_AFTER_S = 5.0
_OUTAGE_S = 600.0
_RESTART_S = 4.0  # shorter than a leader can do without its leases
_BROWN_OUT_S = 1200.0
_SLOW = Weather(slower=10.0, failing=0.5, losing=0.05, hanging=0.05)
_CROWDED = Weather(slower=2.0, failing=0.1, losing=0.03, quota=0.2)
_KINDS = (
    resources.CLAIMS,
    resources.PERSISTENT_VOLUMES,
    resources.ATTACHMENTS,
    resources.STORAGE_CLASSES,
    resources.ATTRIBUTES_CLASSES,
    resources.NODES,
    resources.CSI_NODES,
    resources.PODS,
    resources.VOLUME_SNAPSHOTS,
    resources.SNAPSHOT_CONTENTS,
    resources.SNAPSHOT_CLASSES,
    resources.EVENTS,
    LEASES,
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """``at``: of the day, as a share of it; ``after_s``: later by so many seconds."""

    what: str
    at: float
    lasts_s: float = 0.0
    after_s: float = 0.0
    weather: Weather = CALM


# A leader ends in calm, in the midst of a brown-out, and in an hour of its own; the outage of the
# API server makes one more: who cannot renew its leases exits.
DAY = (
    Trouble("leader killed", 3 / 24),
    Trouble("EC2 slow and failing", 6 / 24, _BROWN_OUT_S, weather=_SLOW),
    Trouble("leader killed", 9.5 / 24),
    Trouble("API server away", 12 / 24, _OUTAGE_S),
    Trouble("EC2 crowded", 16 / 24, _BROWN_OUT_S, weather=_CROWDED),
    Trouble("leader killed", 16 / 24, after_s=_BROWN_OUT_S / 2),
    Trouble("API server restarted", 20 / 24, _RESTART_S),
)
_STRETCH = (
    Trouble("EC2 slow and failing", 0.25, _BROWN_OUT_S, weather=_SLOW),
    Trouble("API server away", 0.5, _OUTAGE_S),
    Trouble("leader killed", 0.75),
)
TROUBLES = {"day": DAY, "one of each": _STRETCH, "none": ()}


@dataclass(slots=True)
class Hour:
    """What an hour came to; times in seconds, at its end the rest.

    ``waiting`` and ``longest_wait_s``: at its end, what it waits for and for how long at most.
    ``wrong``: sentences of the oracle by their first word, in this hour.
    """

    hour: float
    volumes: int
    ended: int
    took_s: dict[str, tuple[int, float, float]]  # how many, median, 99th percentile
    longest_s: dict[str, float]
    waiting: int
    longest_wait_s: float
    wrong: dict[str, int]
    calls: dict[str, int]
    throttled: int
    requests: dict[str, int]
    held_objects: int
    held_mib: float
    pushed_out: int  # until now, of the tables of what objects have alike, which are not held above
    tasks: int
    timers: int
    led_for_s: float
    depth: int
    cpu_s: float


@dataclass(slots=True)
class Told:
    """How a trouble went: what was behind at its end, and when nothing was any more."""

    what: str
    ended_s: float
    behind: int = 0
    most_behind: int = 0
    recovered_s: float = 0.0
    depth: int = 0
    depth_after: int = 0


@dataclass(slots=True)
class Result:
    """The whole day."""

    volumes: int
    hours: list[Hour] = field(default_factory=list)
    troubles: list[Told] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    late_in_calm: int = 0
    busiest: dict[str, float] = field(default_factory=dict)  # calls a second in a look, by action
    calls: dict[str, int] = field(default_factory=dict)
    throttled: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    relists: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    replaced: int = 0
    grown: dict[str, tuple[int, int]] = field(default_factory=dict)
    log: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    leaders: int = 0
    cpu_s: float = 0.0


Tell = Callable[[Result], None]


class Log:
    """Counts what the product logs; keeps what only a bug says."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self.counts: Counter[str] = Counter()
        self.is_deaf = False  # to what a process would say that is killed

    def __call__(
        self, _: object, level: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if self.is_deaf:
            raise structlog.DropEvent
        self.counts[f"{level}: {line['event']}"] += 1
        if line.get("exc_info") or level == "exception":
            text = structlog.processors.format_exc_info(None, level, dict(line))
            self._result.errors.append(str(text)[:4000])
        raise structlog.DropEvent


class Day:
    """Everything that lives through it."""

    def __init__(
        self,
        loop: DayLoop,
        there: Standing,
        hours: float,
        troubles: tuple[Trouble, ...],
        tell: Tell,
    ) -> None:
        self._loop, self._hours, self._troubles, self._tell = loop, hours, troubles, tell
        self.result = Result(there.volumes)
        self._log = Log(self.result)
        structlog.configure(processors=[self._log], cache_logger_on_first_use=False)
        loop.set_exception_handler(self._unheard)
        kinds = [(each.api_version, each.plural, each.kind) for each in _KINDS]
        self._api = ApiServer(kinds)
        self._account = Account(seed=5)
        self._account.serve(loop)
        self._cluster = Cluster(self._api, self._account, there, Churn())
        self._cluster.load(SETTINGS.cluster_id)
        self._oracle = Oracle(self._api, self._account, self._cluster)
        self._replica = self._new_replica()
        self._changing: asyncio.Task[None] | None = None
        self._seen: dict[str, Counter[str]] = {}
        self._held: list[census.Held] = []
        self._led_since_s = NOW.s

    def _unheard(self, _: object, context: dict[str, Any]) -> None:
        self.result.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _new_replica(self) -> Replica:
        self.result.leaders += 1
        return Replica(self._api, self._account, self._lost)

    def _lost(self) -> None:
        """The leader could not renew its leases: its process exits, and a kubelet restarts it."""
        self._change_leader()

    def _change_leader(self) -> None:
        if self._changed():
            self._changing = self._loop.create_task(self._changed_leader())

    async def _changed_leader(self) -> None:
        await self._kill()
        del self._replica
        gc.unfreeze()
        gc.collect()
        await asyncio.sleep(_RESTARTS_AFTER_S)
        self._replica = self._new_replica()
        self._replica.start()
        await self._replica.controller.leading.wait()
        self._led_since_s = NOW.s

    async def _kill(self) -> None:
        self._log.is_deaf = True
        await self._replica.kill()
        self._log.is_deaf = False

    async def run(self) -> Result:
        """Live through it."""
        self._replica.start()
        await asyncio.wait_for(self._replica.controller.leading.wait(), HOUR_S)
        await asyncio.sleep(_SETTLES_S)
        self._account.calls.clear()
        self._cluster.begin()
        began_s = NOW.s
        events = [self._loop.create_task(self._happens(each, began_s)) for each in self._troubles]
        looking = [
            self._loop.create_task(each)
            for each in (self._look_again_and_again(), self._compare_again_and_again())
        ]
        for hour in range(1, max(2, round(self._hours) + 1)):
            cpu_s = time.process_time()
            self._begin_hour()
            await asyncio.sleep(max(0.0, began_s + hour * self._hours_each() - NOW.s))
            await self._somebody_leads()  # or there is nothing to count
            self._end_hour(hour, time.process_time() - cpu_s)
        await asyncio.gather(*events)
        await self._come_to_rest()
        for each in looking:
            each.cancel()
        self._sum_up()
        await self._kill()
        await asyncio.gather(*looking, return_exceptions=True)
        return self.result

    async def _somebody_leads(self) -> None:
        while not self._changed() or not self._replica.is_leading:  # noqa: ASYNC110 -- whoever it is
            await asyncio.sleep(1.0)

    def _changed(self) -> bool:
        return self._changing is None or self._changing.done()

    def _hours_each(self) -> float:
        return self._hours * HOUR_S / max(1, round(self._hours))

    async def _happens(self, trouble: Trouble, began_s: float) -> None:
        at_s = began_s + trouble.at * self._hours * HOUR_S + trouble.after_s
        await asyncio.sleep(at_s - NOW.s)
        if trouble.what == "leader killed":
            self._change_leader()
        elif trouble.weather is not CALM:
            self._set_weather(trouble.weather)
        else:
            self._api.stop()
        await asyncio.sleep(trouble.lasts_s)
        if trouble.weather is not CALM:
            self._set_weather(CALM)
        elif trouble.lasts_s:
            self._api.start()
        await self._watch_recovery(trouble)

    def _set_weather(self, weather: Weather) -> None:
        self._account.weather = weather
        self._account.world.settings.throttle = parse(f"documentedx{weather.quota}")

    async def _watch_recovery(self, trouble: Trouble) -> None:
        told = Told(trouble.what, NOW.s)
        told.behind, told.depth = len(self._cluster.late(LATE_S)), self._depth()
        self.result.troubles.append(told)
        until_s, step_s = NOW.s + 1.5 * RECOVERED_WITHIN_S, 5.0
        while NOW.s < until_s:
            await asyncio.sleep(step_s)
            behind = len(self._cluster.late(LATE_S))
            told.most_behind = max(told.most_behind, behind)
            if behind:
                told.recovered_s = NOW.s + step_s - told.ended_s
            if NOW.s <= told.ended_s + RECOVERED_WITHIN_S:
                told.depth_after = self._depth()

    def _depth(self) -> int:
        return self._replica.depth if hasattr(self, "_replica") else 0

    def _is_calm(self) -> bool:
        since_s = max((each.ended_s for each in self.result.troubles), default=0.0)
        is_in_trouble = self._api.is_down or self._account.weather is not CALM
        return not is_in_trouble and NOW.s > since_s + RECOVERED_WITHIN_S

    async def _look_again_and_again(self) -> None:
        while True:
            before = Counter(self._account.calls)
            await asyncio.sleep(_LOOK_EVERY_S)
            for action, count in (self._account.calls - before).items():
                rate = count / _LOOK_EVERY_S
                self.result.busiest[action] = max(self.result.busiest.get(action, 0.0), rate)
            if hasattr(self, "_replica"):
                self._replica.check()
            if self._is_calm():
                late = len(self._cluster.late(LATE_S))
                self.result.late_in_calm = max(self.result.late_in_calm, late)

    async def _compare_again_and_again(self) -> None:
        """More often than once an hour, or what is wrong for an hour might not be seen."""
        began_s = NOW.s
        while True:
            await asyncio.sleep(COMPARE_EVERY_S)
            at = f"after {(NOW.s - began_s) / HOUR_S:g} hours"
            wrong = self._oracle.wrong(at_rest=False)
            self.result.wrong.extend(f"{at}: {each}" for each in wrong)

    def _begin_hour(self) -> None:
        self._seen = {
            "calls": Counter(self._account.calls),
            "throttled": Counter(self._account.throttled),
            "requests": Counter(self._api.requests),
            "ended": Counter(lives=self._cluster.ended),
        }
        self._cluster.took_s.clear()

    def _end_hour(self, hour: int, cpu_s: float) -> None:
        self._held.append(self._count())
        held, account = self._held[-1], self._account
        wrong, waiting = self._oracle.wrong(at_rest=False), self._cluster.late(0.0)
        self.result.wrong.extend(f"hour {hour}: {each}" for each in wrong)
        took_s = {what: each for what, each in self._cluster.took_s.items() if each}
        self.result.hours.append(
            Hour(
                hour=hour,
                volumes=len(account.backend.volumes),
                ended=self._cluster.ended - self._seen["ended"]["lives"],
                took_s={what: _spread(each) for what, each in took_s.items()},
                longest_s={what: max(each) for what, each in took_s.items()},
                waiting=len(waiting),
                longest_wait_s=max((NOW.s - each.since_s for each in waiting), default=0.0),
                wrong=dict(Counter(each.partition(":")[0] for each in wrong)),
                calls=dict(account.calls - self._seen["calls"]),
                throttled=(account.throttled - self._seen["throttled"]).total(),
                requests=dict(self._api.requests - self._seen["requests"]),
                held_objects=held.objects,
                held_mib=held.mib,
                pushed_out=_pushed_out(),
                tasks=held.tasks,
                timers=sum(1 for _ in self._timers()),
                led_for_s=NOW.s - self._led_since_s,
                depth=self._depth(),
                cpu_s=cpu_s,
            )
        )
        self._sum_up()
        self._tell(self.result)

    def _count(self) -> census.Held:
        """What the controller holds now."""
        gc.collect()
        tasks = [task for task in asyncio.all_tasks(self._loop) if _is_of_product(task)]
        beyond = [self._replica.calls._client, self._loop, self._log]
        types = (ApiServer, Account, Cluster, Kind, Transport, DayLoop, Replica, Day)
        roots = [self._replica.controller, *tasks, *self._timers()]
        held = census.count(roots, beyond, types)
        held.tasks = len(tasks)
        return held

    def _timers(self) -> Iterator[asyncio.TimerHandle]:
        for each in self._loop._scheduled:  # type: ignore[attr-defined]
            module = getattr(each._callback, "__module__", "") or ""
            if not each.cancelled() and module.startswith("provisioner"):
                yield each

    async def _come_to_rest(self) -> None:
        """Nobody asks for anything any more; what is left over has to go."""
        self._cluster.is_still = True
        with_patience_s = NOW.s + HOUR_S
        while NOW.s < with_patience_s:
            await asyncio.sleep(_LOOK_EVERY_S)
            if NOW.s > with_patience_s - HOUR_S / 2 and not self._cluster.late(0.0):
                break
        for life in self._cluster.late(0.0):
            waits_s = NOW.s - life.since_s
            text = f"{life.key} waits to be {life.waits_for} since {waits_s:.0f} s"
            self.result.wrong.append(f"at rest: {text}")
        self.result.wrong.extend(f"at rest: {each}" for each in self._oracle.wrong(at_rest=True))
        self._replica.check()
        if self._depth():
            self.result.wrong.append(f"at rest: {self._depth()} keys are in queues")

    def _sum_up(self) -> None:
        """What has been counted until now, so that a day that is cut short tells it too."""
        result, account = self.result, self._account
        result.calls, result.throttled = dict(account.calls), dict(account.throttled)
        result.failed, result.requests = dict(account.failed), dict(self._api.requests)
        result.relists = dict(self._api.gone)
        result.ended, result.replaced = self._cluster.ended, self._cluster.replaced
        result.log = dict(self._log.counts)
        result.cpu_s = time.process_time()
        if len(self._held) > 1:
            first, last = self._held[0].containers, self._held[-1].containers
            names = {*first, *last}
            result.grown = {
                name: (first[name], last[name])
                for name in sorted(names)
                if last[name] > first[name] * 1.05 + 20
            }
            many, now = self._held[0].kinds, self._held[-1].kinds
            result.grown |= {
                f"objects of {kind}": (many[kind], now[kind])
                for kind in now
                if now[kind] > many[kind] * 1.02 + 50
            }


def _is_of_product(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and "/tests/day/" not in code.co_filename


def _spread(took_s: list[float]) -> tuple[int, float, float]:
    ordered = sorted(took_s)
    return len(ordered), median(ordered), ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def live(
    volumes: int, hours: float, tell: Tell, *, troubles: tuple[Trouble, ...] = DAY
) -> dict[str, Any]:
    """A day of a cluster with so many volumes, as plain data; ``tell`` hears of it each hour."""
    random.seed(3)
    nodes = max(len(ZONES) * 2, volumes // 10 // len(ZONES) * len(ZONES))
    there = replace(Standing.of(volumes), nodes=nodes)
    loop = DayLoop()
    asyncio.set_event_loop(loop)

    async def day() -> Result:
        return await Day(loop, there, hours, troubles, tell).run()

    try:
        return asdict(loop.run_until_complete(day()))
    finally:
        loop.close()


def _pushed_out() -> int:
    tables = [each.cache_info() for each in (wire._text, wire._value)]
    return sum(each.misses - each.currsize for each in tables)
