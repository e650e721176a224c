"""A cluster of many thousand volumes on a real API server: what one controller needs for it.

The cluster stands in etcd before anybody looks (``standing.py``, ``etcd.py``). Of the controller
manager only what binds and protects volumes runs: its other controllers would detach what no pod
uses, and taint nodes that have no kubelet.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from provisioner.model.driver import EBS_DRIVER
from provisioner.model.leadership import lease_names
from provisioner.model.names import LED_SINCE
from provisioner.sandbox.control_plane import free_port
from provisioner.sandbox.crew import Part
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from tests.bench import (
    etcd,
    go_profile,
    installed_minute,
    measured_controller,
    phases,
    processes,
    scale_burst,
    scale_report,
    standing,
    webhook_measure,
    webhook_world,
)
from tests.bench.api_traffic import came_since, counted, received
from tests.bench.go_profile import Profile
from tests.bench.hands import Eye, Seen
from tests.bench.installed_minute import LEADER, STANDBY, WEBHOOK, Account, Minute, Watched
from tests.bench.kwok.keeper import KUBELETS, Kept
from tests.bench.memory import until_ready
from tests.bench.phases import CLAIMS, VOLUMES, Phase, is_bound, is_gone
from tests.bench.scale_burst import BURST, PROFILED_S, Bursts
from tests.bench.scale_stage import Scaled, Stage, longest
from tests.bench.standing import Standing
from tests.bench.standing_ec2 import StandingEc2
from tests.bench.webhook_measure import Answered
from tests.bench.webhook_reviews import Reviews
from tests.bench.webhook_world import serving
from tests.bench.world import (
    CLUSTER,
    PER_NODE,
    REGION,
    ZONES,
    World,
    own_account,
    start_api_server,
    world,
)
from tests.held_still import held_still

_ROOT = Path(__file__).parents[2]
_CONTROLLERS = (
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
)
_INSTANCES = len(ZONES) * -(-BURST // (len(ZONES) * PER_NODE))
_PATIENCE_S = 600.0
_LOOK_S = 0.05
_STOPS_S = 30.0
_MINUTE_S = 60.0
_HEARTBEAT_S = 300.0  # kubelet's nodeStatusReportFrequency
_AUDIT_S = 2.0  # the API server writes what it has once a second


async def measure(
    parent: Path, binaries: Path, volumes: int, tell: Callable[[str], None]
) -> Scaled:
    """Start one controller in a large cluster, and have it work there."""
    there, before = Standing.of(volumes), os.getloadavg()[0]
    async with world(parent, binaries, instances=_INSTANCES, throttle="documented") as made:
        began_s = time.monotonic()
        await phases.make_class(made)
        crowd = _Crowd(made, there, tell)
        await crowd.stand()
        loading_s = time.monotonic() - began_s
        tell(f"{volumes:,} volumes stand after {loading_s:.0f} s")
        in_front = StandingEc2(there, CLUSTER, made.ec2.endpoint)
        async with in_front.serving() as crowd.endpoint:
            await crowd.live(in_front)
    there_too = await _in_empty_cluster(parent, binaries, tell)
    bursts = Bursts(crowd.phases, there_too.phases, (crowd.profile, there_too.profile))
    load = before, os.getloadavg()[0]
    stages, answered = crowd.stages, crowd.answered
    return Scaled(there, loading_s, stages, load, answered, bursts, crowd.installed)


async def _in_empty_cluster(parent: Path, binaries: Path, tell: Callable[[str], None]) -> "_Crowd":
    """The same burst, with the same controllers and the same proxy in front of EC2."""
    async with world(parent, binaries, instances=_INSTANCES, throttle="documented") as made:
        await phases.make_class(made)
        crowd = _Crowd(made, Standing.of(0), tell)
        await crowd.stand()
        in_front = StandingEc2(Standing.of(0), CLUSTER, made.ec2.endpoint)
        async with in_front.serving() as crowd.endpoint:
            await crowd.start()
            await crowd.burst()
    return crowd


class _Crowd:
    """One run."""

    def __init__(self, made: World, there: Standing, tell: Callable[[str], None]) -> None:
        self._made, self._there, self._tell = made, there, tell
        self._passes = made.plane.folder / "passes"
        self._claims = 0
        self._bound: list[str] = []
        self.endpoint = made.ec2.endpoint
        self.stages: list[Stage] = []
        self.phases: list[Phase] = []
        self.answered: list[Answered] = []
        self.installed: list[Minute] = []
        self.profile = Profile()
        self._kept: Kept | None = None

    async def stand(self) -> None:
        """Fill etcd while nobody watches, and start what looks at it then."""
        plane = self._made.plane
        await own_account(plane)
        self._account = await Account.another(plane)
        await self._prepare_reviews()
        await self._lead_before()
        argv = command_line(plane.crew.parts["kube-controller-manager"])
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            await plane.crew.stop(name)
        await plane.stop_api_server()
        await etcd.load(plane.etcd_port, self._there.stored())
        await start_api_server(plane)
        self._manager_port = free_port()
        argv = go_profile.with_port(argv, self._manager_port, str(plane.crew.logs / "manager"))
        argv += [f"--controllers={','.join(_CONTROLLERS)}"]
        await plane.crew.start("kube-controller-manager", argv)

    async def live(self, in_front: StandingEc2) -> None:
        """All stages in order."""
        await self.start()
        async with self._stage("inventory of all volumes read"):
            await self._until(lambda: in_front.inventories > 0)
            await self._made.quiet()
        async with self._beating(), self._stage("a quiet minute", requests=True):
            await asyncio.sleep(_MINUTE_S)
        await self._relabel()
        await self._delete_one()
        await self.burst()
        await self._take_over()
        await self._list_again()
        await self._serve_webhook()

    async def _prepare_reviews(self) -> None:
        """While the API server fills in what a pod lacks: later no account is made for it."""
        stored = await webhook_world.specimen(self._made)
        self._reviews = Reviews(
            stored,
            self._there.claims_of_one_team,
            len(ZONES),
            name=standing.of_one_team,
            namespace=standing.TEAM,
        )

    async def _lead_before(self) -> None:
        """One of ours leads and is stopped, so that its successor follows no stranger.

        What a stranger may have begun for a claim is waited for, a minute long (``CONSISTENCY_S``),
        before a volume is made for it: not what is measured here.
        """
        name = "controller-before"
        await self._controller(name)
        async with asyncio.timeout(_PATIENCE_S):
            while not await self._is_proven():
                self._made.plane.crew.check()
                await asyncio.sleep(_LOOK_S)
        await self._made.plane.crew.stop(name, grace_s=_STOPS_S)

    async def _is_proven(self) -> bool:
        """Whether all leases say since when only our controllers have led."""
        found = await self._made.plane.api.get("/apis/coordination.k8s.io/v1/leases")
        proven = {
            each["metadata"]["name"]
            for each in found["items"]
            if LED_SINCE in each["metadata"].get("annotations", {})
        }
        return proven.issuperset(lease_names(EBS_DRIVER))

    async def start(self) -> None:
        """Start the controller; a claim is made at once."""
        self._passes.unlink(missing_ok=True)
        part = self._made.contestant = await self._controller("controller-a")
        async with self._stage("start until the first new claim is Bound") as stage:
            leading = asyncio.create_task(self._leads(part, stage))
            await self._bind(stage)
            await leading

    async def _controller(self, name: str, *options: str, account: Account | None = None) -> Part:
        argv, environment = self._started_by(*options, account=account)
        return await self._made.plane.crew.start(name, argv, environment)

    def _started_by(
        self, *options: str, account: Account | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Its command line and environment."""
        environment = os.environ | {
            **CREDENTIALS,
            "AWS_REGION": REGION,
            "AWS_EC2_ENDPOINT": self.endpoint,
            "PYTHONPATH": str(_ROOT),
            "PYTHONUNBUFFERED": "1",
            measured_controller.PASSES: str(self._passes),
        }
        module = measured_controller.__name__
        argv = [sys.executable, "-m", module, "controller", "--cluster-id", CLUSTER]
        kubeconfig = (account or self._account).kubeconfig
        return [*argv, "--kubeconfig", str(kubeconfig), *options], environment

    async def _leads(self, part: Part, stage: Stage) -> None:
        await self._until(lambda: "leading" in part.log.read_text())
        stage.mark("leading")

    async def _bind(self, stage: Stage) -> None:
        """Create a claim; it is Bound."""
        self._claims += 1
        self._bound.append(f"{CLAIMS}/data-{self._claims}")
        request = ("POST", CLAIMS, phases.claim(self._claims))
        made = self._made.hands
        bound = Eye(made, CLAIMS, is_bound)
        asked = Eye(made, CLAIMS, _is_changed)
        volume = Eye(made, VOLUMES, _is_ours)
        async with bound, asked, volume:
            stage.mark("claim created")
            await made.send_all([request])
            await asked.wait_for(1, _PATIENCE_S)
            stage.mark("given to us by kube-controller-manager")
            await volume.wait_for(1, _PATIENCE_S)
            stage.mark("its PersistentVolume made")
            await bound.wait_for(1, _PATIENCE_S)
            stage.reach()

    async def _relabel(self) -> None:
        """All nodes change a label, as fast as the API server takes it."""
        nodes = self._there.nodes
        body = {"metadata": {"labels": {"example.com/team": "another"}}}
        async with self._stage(f"{nodes:,} nodes change a label"):
            await self._made.hands.send_all(("PATCH", _node(n), body) for n in range(nodes))
            await self._made.quiet()

    async def _list_again(self) -> None:
        """The API server restarts, knows no old version any more, and has each kind listed anew.

        A leader that cannot renew its leases in time ends; it is started again as a kubelet does it.
        """
        made, plane = self._made, self._made.plane
        assert made.contestant is not None
        await plane.crew.stop(made.contestant.name, grace_s=_STOPS_S)
        argv, environment = self._started_by()
        kept = self._kept = Kept("controller-c", argv, environment, plane.crew.logs, KUBELETS)
        async with kept.running():
            await kept.ready(_PATIENCE_S)
            await self._until(lambda: "leading" in kept.log.read_text())
            made.contestant = kept.part()
            await made.quiet()
            name = "the API server restarts until a new claim is Bound"
            async with self._stage(name, requests=True) as stage:
                again = asyncio.create_task(self._leads_again(kept, stage))
                starts = kept.starts
                await plane.stop_api_server()
                await start_api_server(plane)
                stage.mark("it is ready")
                await self._bind(stage)
                stage.ended = kept.starts - starts
                again.cancel()
        self._kept = made.contestant = None

    async def _leads_again(self, kept: Kept, stage: Stage) -> None:
        """If it ends, mark when its first successor leads."""
        starts = kept.starts
        await self._until(lambda: kept.starts > starts)
        stage.mark("the controller has ended")
        size = kept.log.stat().st_size
        await self._until(lambda: b"leading" in kept.log.read_bytes()[size:])
        stage.mark("leading again")

    async def _delete_one(self) -> None:
        made, in_ec2 = self._made, self._made.volumes_in_ec2()
        async with self._stage("one claim deleted until its volume is gone") as stage:
            released = Eye(made.hands, VOLUMES, _is_released)
            gone = Eye(made.hands, VOLUMES, is_gone)
            async with released, gone:
                stage.mark("deleted")
                await made.hands.send_all([("DELETE", self._bound.pop(), None)])
                await released.wait_for(1, _PATIENCE_S)
                stage.mark("PersistentVolume Released")
                await gone.wait_for(1, _PATIENCE_S)
                await self._until(lambda: made.volumes_in_ec2() < in_ec2)
                stage.reach()

    async def burst(self) -> None:
        """Many claims at once; none of the bench's own is left in their namespace."""
        await self._made.hands.send_all(("DELETE", path, None) for path in self._bound)
        self._bound.clear()
        await self._until(lambda: self._made.volumes_in_ec2() == self._made.volumes_at_first)
        async with self._stage(f"{BURST:,} claims on top: Bound, attached, detached, gone"):
            async with asyncio.TaskGroup() as tasks:
                profiling = tasks.create_task(go_profile.taken(self._manager_port, PROFILED_S))
                self.phases = await scale_burst.burst(self._made, BURST)
            self.profile = profiling.result()
        for each in self.phases:
            self._tell(scale_burst.told(each))

    async def _take_over(self) -> None:
        """A standby that has everything leads once the leader has stopped; then a claim is made."""
        leader = self._made.contestant
        assert leader is not None
        probes = f"127.0.0.1:{free_port()}"
        account = await Account.another(self._made.plane)
        options = ("--metrics-address", probes)
        standby = await self._controller("controller-b", *options, account=account)
        self._made.contestant = standby
        await self._made.plane.crew.unless_failed(
            until_ready(f"http://{probes}/readyz"), _PATIENCE_S, "the start of a standby"
        )
        await self._made.quiet()
        await self._installed_minute(leader, standby, account)
        await self._made.plane.crew.stop(leader.name, grace_s=_STOPS_S)
        name = "take-over by a warm standby until the first new claim is Bound"
        async with self._stage(name) as stage:
            leading = asyncio.create_task(self._leads(standby, stage))
            await self._bind(stage)
            await leading

    async def _installed_minute(self, leader: Part, standby: Part, account: Account) -> None:
        """A quiet minute of both controllers and a replica of the webhook."""
        made, port = self._made, self._made.plane.api_port
        of_webhook = await Account.another(made.plane)
        kubeconfig = of_webhook.kubeconfig
        async with (
            serving(made, endpoint=self.endpoint, kubeconfig=kubeconfig) as served,
            self._beating(),
        ):
            watched = [
                Watched(LEADER, leader.process.pid, self._account, port),
                Watched(STANDBY, standby.process.pid, account, port),
                Watched(WEBHOOK, served.made.pid, of_webhook, port),
            ]
            await asyncio.sleep(_MINUTE_S)
            found = [each.until_now() for each in watched]
        await asyncio.sleep(_AUDIT_S)
        log = made.plane.audit_log.read_bytes()
        self.installed = [each(log) for each in found]
        self._tell(installed_minute.markdown(self.installed))
        await webhook_world.unconfigure(made)
        made.contestant = standby

    async def _serve_webhook(self) -> None:
        """One replica of the webhook that has all of it cached, and looked through for repairs.

        The controller manager looks at all claims and volumes every 15 s, on the cores that the
        webhook and the load share with it; so what it adds is told.
        """
        controller = self._made.contestant
        manager = self._made.plane.crew.parts["kube-controller-manager"].process
        async with serving(self._made, endpoint=self.endpoint) as served:
            name = "a webhook replica, all cached"
            async with self._stage(name, since_start=True) as stage:
                stage.has_passes = False
            stage.seconds = served.ready_s
            async with self._stage("the same replica, asked 500 times a second") as stage:
                stage.has_passes = False
                self.answered = await webhook_measure.answered_by(served, self._reviews)
            with held_still(manager.pid):
                beside_none = await webhook_measure.answered_by(served, self._reviews)
            self.answered += [
                replace(each, arrivals=f"{each.arrivals}, controller manager held still")
                for each in beside_none
            ]
        self._made.contestant = controller

    @asynccontextmanager
    async def _beating(self) -> AsyncIterator[None]:
        """The nodes live."""
        heartbeats = asyncio.create_task(self._heartbeats())
        try:
            yield
        finally:
            heartbeats.cancel()
            with suppress(asyncio.CancelledError):
                await heartbeats

    async def _heartbeats(self) -> None:
        """Each node's status once in five minutes, as kubelets write it."""
        turn = 0
        while True:
            began_s = time.monotonic()
            at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            due = range(turn, self._there.nodes, int(_HEARTBEAT_S))
            body = {"status": {"conditions": standing.conditions(at)}}
            await self._made.hands.send_all(("PATCH", f"{_node(n)}/status", body) for n in due)
            turn = (turn + 1) % int(_HEARTBEAT_S)
            await asyncio.sleep(max(0.0, began_s + 1.0 - time.monotonic()))

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not is_so():
                self._made.plane.crew.check()
                await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def _stage(
        self, name: str, *, requests: bool = False, since_start: bool = False
    ) -> AsyncIterator[Stage]:
        """``since_start``: its memory at most is that of the whole life of the process."""
        stage, at_s = Stage(name, time.monotonic()), time.time()
        if not since_start:
            self._forget_peak()
        port = self._made.plane.api_port
        server = self._api_server
        at_first, cpu_s, server_s = (
            received(self._pid, port),
            self._cpu_s(),
            processes.cpu_s(server),
        )
        yield stage
        if not stage.seconds:
            stage.reach()
        stage.cpu_s = self._cpu_s() - cpu_s
        is_same = server == self._api_server  # else it was started within the stage
        stage.api_server_cpu_s = processes.cpu_s(self._api_server) - server_s * is_same
        stage.rest_mib, stage.peak_mib = self._memory_mib()
        if at_first is not None:
            stage.received_mib = came_since(at_first, received(self._pid, port) or {}) / 2**20
        noted = [each for each in measured_controller.read(self._passes) if each.at_s >= at_s]
        stage.longest = longest(noted)
        if requests:
            until = time.time()
            await asyncio.sleep(_AUDIT_S)
            log = self._made.plane.audit_log
            stage.requests = counted(log.read_bytes(), at_s, until)
        self.stages.append(stage)
        self._tell(scale_report.told(stage))

    # The controller: one process, or all lives of the one that is started again when it ends.

    @property
    def _pid(self) -> int:
        return self._made.pid if self._kept is None else self._kept.part().process.pid

    def _cpu_s(self) -> float:
        return processes.cpu_s(self._made.pid) if self._kept is None else self._kept.cpu_s()

    def _memory_mib(self) -> tuple[float, float]:
        rest_mib, peak_mib = processes.memory_mib(self._pid)
        return rest_mib, peak_mib if self._kept is None else max(peak_mib, self._kept.peak_mib)

    def _forget_peak(self) -> None:
        if self._kept is not None:
            self._kept.forget_peak()
        else:
            processes.forget_peak(self._made.pid)

    @property
    def _api_server(self) -> int:
        return self._made.plane.crew.parts["kube-apiserver"].process.pid


def _node(n: int) -> str:
    return f"/api/v1/nodes/{standing.node_name(n)}"


def _is_ours(change: str, _: Seen) -> bool:
    return change == "ADDED"


def _is_changed(change: str, _: Seen) -> bool:
    """The first change of a new claim is the annotation that names its provisioner."""
    return change == "MODIFIED"


def _is_released(_: str, seen: Seen) -> bool:
    return seen.status.phase == "Released"


def command_line(part: Part) -> list[str]:
    """What a running part was started with."""
    text = Path(f"/proc/{part.process.pid}/cmdline").read_text()
    return text.rstrip("\0").split("\0")
