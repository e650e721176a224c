"""A day's kinds of trouble in some minutes, on a real control plane whose nodes KWOK plays.

The cluster stands in etcd and in the strict EC2 before anybody looks, with pods on its nodes. Then
two controllers and the webhook start, claims, pods and nodes come and go, and trouble comes.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from provisioner.sandbox.control_plane import control_plane, free_port
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installation import configurations_by_url
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from provisioner.sandbox.strict_ec2.instances import make_instances
from tests.bench import etcd, go_profile, processes, standing
from tests.bench.hands import Hands
from tests.bench.kwok import components, ec2, standing_pods, truth
from tests.bench.kwok.crowd import Crowd
from tests.bench.kwok.ec2 import Wanted
from tests.bench.kwok.keeper import Kept
from tests.bench.kwok.life_rules import Life
from tests.bench.kwok.report import Found, Looks, Sample, Told
from tests.bench.kwok.standing_pods import Populated
from tests.bench.kwok.trouble_rules import CALM, RECOVERED_WITHIN_S, Trouble, troubles
from tests.bench.scale import command_line
from tests.bench.webhook_load import HOST
from tests.bench.webhook_world import CONFIGURATIONS, NAMESPACE
from tests.bench.world import CLUSTER, REGION, ZONES, World, own_account, start_api_server

_ROOT = Path(__file__).parents[3]
_KEY = "AKIAIOSFODNN7CONTROL"  # of ours, so that the bench's own calls are not disturbed
_PATIENCE_S = 600.0
_RESTS_WITHIN_S = 1800.0  # a volume that nobody names is removed once it is ten minutes old
_SAMPLE_S, _TELL_S, _LOOKS_S, _TRUTH_S, _LOOK_S = 5.0, 30.0, 30.0, 20.0, 1.0
# Two thousand kubelets renew two hundred leases a second. A quarter of the duration passes between
# two renewals of KWOK's, and the controller manager has to wait for longer than that.
_LEASE_S, _GRACE_S = 240, 300
# It asks for every PersistentVolume, one GET each, when it starts. Nothing grows here.
_NOT_THESE = "--controllers=*,-persistentvolume-expander-controller"
_CALM_CPU = 0.3  # of a core, by the controller manager
_CALM_PATCHES = 5  # of nodes, from one sample to the next
_SETTLES_WITHIN_S = 1200.0


async def measure(
    parent: Path,
    binaries: Path,
    volumes: int,
    minutes: float,
    *,
    classes: int,
    tell: Callable[[str], None],
) -> Found:
    """Run it.

    Args:
        parent: of its folder.
        binaries: of the control plane.
        volumes: that stand at the beginning, each with a claim; 60 % with a pod on some node.
        minutes: of coming and going.
        classes: over how many StorageClasses the volumes are spread.
        tell: what is told on the way.
    """
    load, nodes = os.getloadavg()[0], standing_pods.nodes_for(volumes)
    with StrictEc2(latency="none", throttle="none", module=ec2.__name__) as account:
        async with _world(account, parent, binaries) as made:
            run = _Run(made, Found(volumes, nodes, minutes, classes), tell)
            await run.stand()
            async with run.kept():
                await run.live()
            run.found.load = (load, os.getloadavg()[0])
            return run.found


@asynccontextmanager
async def _world(account: StrictEc2, parent: Path, binaries: Path) -> AsyncIterator[World]:
    folder = Path(tempfile.mkdtemp(dir=parent))
    async with (
        Crew(folder / "logs") as crew,
        control_plane(folder, binaries, crew) as plane,
        Hands(plane) as hands,
    ):
        yield World(plane, account, (), hands)


class _Run:
    """One run."""

    def __init__(self, made: World, found: Found, tell: Callable[[str], None]) -> None:
        self.found, self._made, self._tell = found, made, tell
        self._controllers: list[Kept] = []
        self._webhook: Kept | None = None
        self._scheduler: Kept | None = None
        self._placed = components.AllPlaced()
        self._troubled = 0
        self._began_s = 0.0
        self._scheduler_port = free_port()

    # The beginning --------------------------------------------------------------------------------

    async def stand(self) -> None:
        """Fill EC2 and etcd while nobody watches, and start what looks at it then."""
        began_s, made, found = time.monotonic(), self._made, self.found
        plane = made.plane
        instances = await asyncio.to_thread(make_instances, made.ec2.endpoint, found.nodes, ZONES)
        ids = [each.instance_id for each in instances]
        wanted = Wanted(found.volumes, standing_pods.attached(found.volumes), CLUSTER, ids)
        await asyncio.to_thread(ec2.put, made.ec2.endpoint, wanted)
        self._tell(f"{found.nodes:,} instances, {found.volumes:,} volumes: {_since(began_s)}")
        self._kubeconfig = await own_account(plane)
        names = ("kube-controller-manager", "kube-scheduler", "kwok")
        argv = {name: command_line(plane.crew.parts[name]) for name in names}
        for name in names:
            await plane.crew.stop(name)
        await plane.stop_api_server()
        there = Populated(wanted.volumes, wanted.attachments, ids, found.classes)
        await etcd.load(plane.etcd_port, there.stored())
        await start_api_server(plane)
        argv["kube-controller-manager"] += [f"--node-monitor-grace-period={_GRACE_S}s", _NOT_THESE]
        argv["kwok"] += [f"--node-lease-duration-seconds={_LEASE_S}"]
        logs = plane.crew.logs
        scheduler = go_profile.with_port(
            argv.pop("kube-scheduler"), self._scheduler_port, str(logs / "scheduler"), "/metrics"
        )
        self._scheduler = Kept("kube-scheduler", scheduler, os.environ, logs, is_ours=False)
        for name, words in argv.items():
            await plane.crew.start(name, words)
        made.ec2.control(latency="real", throttle="documented", reset_counts=True)
        self._crowd = Crowd(made, wanted, found.minutes, found.classes)
        found.loading_s = time.monotonic() - began_s
        self._tell(f"all stands: {_since(began_s)}")

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """The scheduler, two controllers and the webhook, ready; none of them is left at the end."""
        environment = os.environ | {
            **CREDENTIALS,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_REGION": REGION,
            "AWS_EC2_ENDPOINT": self._made.ec2.endpoint,
            "PYTHONPATH": str(_ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        where = ["--kubeconfig", str(self._kubeconfig)]
        logs, python = self._made.plane.crew.logs, [sys.executable, "-m"]
        ours = [*python, "provisioner.cli", "controller", "--cluster-id", CLUSTER, *where]
        ours += ["--release-dead-nodes"]  # or Kubernetes waits six minutes for each
        port = free_port()
        serve = ["serve", "--listen", f"{HOST}:{port}", "--tls-name", HOST]
        theirs = [*python, "webhook.cli", *serve, "--namespace", NAMESPACE, *where]
        async with AsyncExitStack() as stack:
            if self._scheduler is not None:
                await stack.enter_async_context(self._scheduler.running())
            self._webhook = Kept("webhook", theirs, environment, logs)
            self._controllers = [Kept(f"controller-{x}", ours, environment, logs) for x in "ab"]
            for body in configurations_by_url(f"https://{HOST}:{port}"):
                await self._made.hands.send("POST", CONFIGURATIONS[body["kind"]], body)
            for each in (self._webhook, *self._controllers):
                await stack.enter_async_context(each.running())
            for each in (self._webhook, *self._controllers):
                await each.ready(_PATIENCE_S)
            yield

    # The run --------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Let all come and go, and have the troubles come."""
        crowd, minutes = self._crowd, self.found.minutes
        living = asyncio.create_task(crowd.live())
        looking: list[asyncio.Task[None]] = []
        acting: list[asyncio.Task[None]] = []
        try:
            await self._calm()
            self._began_s, cpu = time.monotonic(), self._cpu()
            await self._note_placed()
            placed = self._placed.total
            self._made.ec2.control(reset_counts=True)
            looking += [asyncio.create_task(self._sample()), asyncio.create_task(self._look())]
            churning = asyncio.create_task(crowd.come_and_go())
            acting.append(churning)
            hard = [
                asyncio.create_task(self._happens(each, minutes * 60))
                for each in troubles(minutes, _KEY)
            ]
            acting += hard
            await self._unless_broken(asyncio.sleep(minutes * 60), living, churning, *looking)
            churning.cancel()
            self._tell("the run is over: nobody asks for anything any more")
            await asyncio.gather(*hard)
            await self._unless_broken(self._rest(), living, *looking)
            await self._note_placed()
            self.found.placed = self._placed.total - placed
            self._close(cpu)
        finally:
            for task in (living, *looking, *acting):
                task.cancel()
            await asyncio.gather(living, *looking, *acting, return_exceptions=True)
            await crowd.leave()

    async def _unless_broken(self, work: object, *others: "asyncio.Task[None]") -> None:
        """Do it, unless one of the others ends, which none should, or a part of the cluster."""
        doing = asyncio.ensure_future(work)  # type: ignore[call-overload]
        failing = asyncio.create_task(self._made.plane.crew.failed())
        try:
            done, _ = await asyncio.wait(
                {doing, failing, *others}, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
            if failing in done:
                raise failing.result()
        finally:
            doing.cancel()
            failing.cancel()

    async def _calm(self) -> None:
        """Somebody leads, accounts can have pods, and the controller manager has seen it all.

        Its attach/detach controller patches the status of every node when it starts, one after the
        other, and neither attaches nor detaches meanwhile (see ``scale.md``).

        Raises:
            SandboxError: it does not come to that.
        """
        manager, api = self._made.plane.crew.parts["kube-controller-manager"], self._made.plane.api
        began_s, patched = time.monotonic(), 0
        told_of = min(self.found.nodes, standing_pods.attached(self.found.volumes))
        while time.monotonic() - began_s < _SETTLES_WITHIN_S:
            before_s = processes.cpu_s(manager.process.pid)
            await asyncio.sleep(_SAMPLE_S)
            self._made.plane.crew.check()
            used = (processes.cpu_s(manager.process.pid) - before_s) / _SAMPLE_S
            before, patched = patched, components.patches_of_nodes(await api.get("/metrics"))
            has_told = told_of <= patched < before + _CALM_PATCHES
            leader, _ = await self._leader()
            accounts = await api.get("/api/v1/serviceaccounts")
            teams = [x for x in accounts["items"] if x["metadata"]["namespace"].startswith("team-")]
            if used < _CALM_CPU and has_told and leader and len(teams) == standing.TEAMS:
                self._tell(f"settled: {_since(began_s)}, {patched} patches of nodes")
                return
        raise SandboxError(f"not settled: {used:.2f} of a core, {patched} patches of nodes")

    async def _leader(self) -> tuple[Kept | None, dict[str, float]]:
        """Who leads, and its metrics."""
        for each in self._controllers:
            found = await each.metrics()
            if found.get("leader"):
                return each, found
        return None, {}

    async def _note_placed(self) -> None:
        with suppress(aiohttp.ClientError, TimeoutError):  # it is being started again
            self._placed.note(await components.placed(self._scheduler_port))

    async def _sample(self) -> None:
        told_s = 0.0
        while True:
            await self._note_placed()
            leader, told = await self._leader()
            at_s = time.monotonic() - self._began_s
            name = f"{leader.name} {leader.starts}" if leader else ""
            rss_mib = leader.rss_mib() if leader else 0.0
            waiting, late = len(self._crowd.waiting()), self._crowd.late()
            depth, watched = told.get("queue_depth", 0.0), round(told.get("in_transition", 0.0))
            sample = Sample(at_s, name, rss_mib, depth, waiting, late, watched)
            self.found.samples.append(sample)
            if not self._troubled and self._is_calm(at_s):
                self.found.late_in_calm = max(self.found.late_in_calm, late)
            if at_s - told_s >= _TELL_S:
                told_s = at_s
                self._tell(self._told(sample))
            await asyncio.sleep(_SAMPLE_S)

    def _told(self, now: Sample) -> str:
        crowd = self._crowd
        return (
            f"{now.at_s / 60:.1f} min: {len(crowd.took_s['bound'])} Bound, {crowd.ended} gone, "
            f"{crowd.replaced} nodes; {now.waiting} wait, {now.late} late; "
            f"{now.leader or 'nobody'} leads, {now.rss_mib:.0f} MiB, {now.queue_depth:g} in queues"
        )

    def _is_calm(self, at_s: float) -> bool:
        ended_s = max((each.ended_s for each in self.found.troubles), default=0.0)
        return not self.found.troubles or at_s > ended_s + RECOVERED_WITHIN_S

    async def _look(self) -> None:
        """How often volumes are looked at, in the half minute that is most above the limit."""
        before, seen, samples = -1, 0, self.found.samples
        while True:
            counts = await asyncio.to_thread(self._made.ec2.counts)
            told = await asyncio.to_thread(ec2.inventories, self._made.ec2.endpoint)
            now = counts.get("DescribeVolumes", 0) - told
            if before >= 0:
                most = max((each.in_transition for each in samples[seen:]), default=0)
                looks = Looks((now - before) / _LOOKS_S, most)
                self.found.looks = max(self.found.looks, looks, key=lambda each: each.above_limit)
            before, seen = now, len(samples)
            await asyncio.sleep(_LOOKS_S)

    # Troubles -------------------------------------------------------------------------------------

    async def _happens(self, trouble: Trouble, run_s: float) -> None:
        await asyncio.sleep(trouble.at * run_s)
        self._tell(f"now: {trouble.what}")
        self._troubled += 1
        match trouble.does:
            case "kill":
                await self._kill_leader()
            case "outage":
                await self._made.plane.stop_api_server()
                await asyncio.sleep(trouble.lasts_s)
                await start_api_server(self._made.plane)
            case _:
                await self._brown_out(trouble)
        self._troubled -= 1
        told = Told(trouble.what, time.monotonic() - self._began_s, self._crowd.late())
        self.found.troubles.append(told)
        self._tell(f"over: {trouble.what}; {told.late} are late")
        await self._recovers(told)

    async def _kill_leader(self) -> None:
        """As soon as there is one."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                leader, _ = await self._leader()
                if leader is not None:
                    leader.kill()
                    return
                await asyncio.sleep(1.0)

    async def _brown_out(self, trouble: Trouble) -> None:
        control = self._made.ec2.control
        await asyncio.to_thread(lambda: control(**trouble.begins))
        until_s = time.monotonic() + trouble.lasts_s
        while time.monotonic() < until_s:
            await asyncio.to_thread(lambda: control(faults=list(trouble.every)))
            await asyncio.sleep(1.0)
            await asyncio.to_thread(lambda: control(faults=None))
        await asyncio.to_thread(lambda: control(**CALM))

    def _is_troubled(self) -> bool:
        return self._troubled > 0

    async def _recovers(self, told: Told) -> None:
        """From its end, or that of the trouble in whose midst it came, until the next begins."""
        while self._is_troubled():  # noqa: ASYNC110 -- whatever it is
            await asyncio.sleep(_LOOK_S)
        told.ended_s = time.monotonic() - self._began_s
        told.late = self._crowd.late()
        until_s = told.ended_s + 1.5 * RECOVERED_WITHIN_S
        while not self._is_troubled() and (now_s := time.monotonic() - self._began_s) < until_s:
            late = self._crowd.late()
            told.most_late = max(told.most_late, late)
            if late:
                told.recovered_s = now_s - told.ended_s
            await asyncio.sleep(_LOOK_S)

    # The end --------------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Until nothing is under way, and what EC2 has is what the API server has."""
        began_s, told_s, crowd = time.monotonic(), 0.0, self._crowd
        while True:
            self.found.rested_s = time.monotonic() - began_s
            waiting = crowd.waiting()
            _, told = await self._leader()
            self.found.queue_depth = told.get("queue_depth", 0.0)
            is_over = self.found.rested_s > _RESTS_WITHIN_S
            if is_over or not (waiting or crowd.is_busy or self.found.queue_depth):
                there = await asyncio.to_thread(ec2.there, self._made.ec2.endpoint)
                wrong = await truth.wrong(self._made.plane.api, there, crowd)
                wrong += map(_waits, waiting)
                self.found.wrong = wrong
                self._tell(f"{len(wrong)} wrong {_since(began_s)} after the run: {wrong[:3]}")
                if is_over or not wrong:
                    return
                await asyncio.sleep(_TRUTH_S)
            if waiting and self.found.rested_s - told_s > _TELL_S:
                told_s = self.found.rested_s
                self._tell(f"waiting: {', '.join(map(_waits, waiting[:5]))}")
            await asyncio.sleep(1.0)

    def _cpu(self) -> dict[str, float]:
        parts = self._made.plane.crew.parts
        names = ("kube-apiserver", "etcd", "kube-controller-manager", "kwok")
        found = {name: processes.cpu_s(parts[name].process.pid) for name in names if name in parts}
        found["EC2"] = processes.cpu_s(self._made.ec2.pid or 0)
        found["controllers"] = sum(each.cpu_s() for each in self._controllers)
        found["webhook"] = self._webhook.cpu_s() if self._webhook else 0.0
        found["kube-scheduler"] = self._scheduler.cpu_s() if self._scheduler else 0.0
        return found

    def _close(self, cpu: dict[str, float]) -> None:
        found, crowd = self.found, self._crowd
        found.cpu_s = {
            name: now_s if name == "kube-apiserver" else now_s - cpu.get(name, 0.0)
            for name, now_s in self._cpu().items()
        }  # the API server is a new process since its outage
        report = self._made.ec2.report()
        found.calls, found.throttled = report["calls"], report["throttled"]
        found.took_s, found.ended = crowd.took_s, crowd.ended
        found.replaced, found.restarted = crowd.replaced, crowd.restarted
        kept = [*self._controllers, *([self._webhook] if self._webhook else [])]
        theirs = [self._scheduler] if self._scheduler else []
        found.starts = {each.name: each.starts for each in [*kept, *theirs]}
        found.errors = list(crowd.errors)
        for each in kept:
            found.errors += [f"{each.name}: {line[:200]}" for line in each.complaints()]


def _waits(life: Life) -> str:
    on = f" from {life.node}" if life.node else ""
    return f"{life.key} waits to be {life.waits_for}{on}: {_since(life.since_s)}"


def _since(began_s: float) -> str:
    return f"{time.monotonic() - began_s:.0f} s"
