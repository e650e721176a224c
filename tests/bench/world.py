"""A fresh world for each measurement: control plane, strict EC2, nodes, and who is measured."""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from provisioner.sandbox import nodes
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.control_plane import ControlPlane, control_plane
from provisioner.sandbox.crew import Crew, Part
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from tests.bench import processes
from tests.bench.hands import BenchError, Hands

REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
CLUSTER = "bench"
RAISED = "documentedx20"
ACCOUNT = "ebs-provisioner", "ebs-provisioner-controller"
PER_NODE = 24  # an m5.large takes 27 with its root volume and its network interface
_ROOT = Path(__file__).parents[2]
_READY_S = 300.0  # a hundred thousand objects on a busy machine
_LOOK_S = 0.05
_PATIENCE_S = 600.0  # with a start of the API server
_READY_LOOK_S = 0.5
_QUIET_S = 300.0  # a webhook asks EC2 about each of 100,000 volumes first
_QUIET_CPU = 0.03  # of a core


@dataclass(frozen=True, slots=True)
class Contestant:
    """A controller that is measured.

    Attributes:
        name: in tables.
        module: what ``python -m`` runs.
        arguments: its options, beside ``--kubeconfig``.
        ready: what its log says once it works.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    ready: str


_OURS = ("controller", "--cluster-id", CLUSTER, "--no-leader-elect")
OURS = Contestant("ours", "provisioner.cli", _OURS, "leading")
TOLD = Contestant(
    "ours, told the quota", "provisioner.cli", (*_OURS, "--ec2-rate", "*=x20"), "leading"
)
NULL = Contestant("null controller", "tests.bench.null_controller", (), "ready")
BARE = Contestant(
    "null without pin and events", "tests.bench.null_controller", ("--bare",), "ready"
)


@dataclass(slots=True)
class World:
    """A running world.

    Attributes:
        hands: act as the administrator.
        volumes_at_first: the instances' root volumes.
    """

    plane: ControlPlane
    ec2: StrictEc2
    instances: Sequence[Instance]
    hands: Hands
    volumes_at_first: int = 0
    contestant: Part | None = None

    @property
    def pid(self) -> int:
        """The contestant's process."""
        assert self.contestant is not None
        return self.contestant.process.pid

    async def start(
        self,
        contestant: Contestant,
        *more: str,
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a contestant, as the administrator or somebody else; returns once it works.

        Args:
            contestant: which program.
            more: further options.
            kubeconfig: whose; the administrator's without.
            environment: further variables.
        """
        log = self.plane.crew.logs / f"{contestant.module}.log"
        log.unlink(missing_ok=True)
        variables = os.environ | {
            **CREDENTIALS,
            "AWS_REGION": REGION,
            "AWS_EC2_ENDPOINT": self.ec2.endpoint,
            "PYTHONPATH": str(_ROOT),
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        }
        argv = [sys.executable, "-m", contestant.module, *contestant.arguments, *more]
        argv += ["--kubeconfig", str(kubeconfig or self.plane.kubeconfig)]
        crew = self.plane.crew
        self.contestant = await crew.start(contestant.module, argv, variables)
        async with asyncio.timeout(_READY_S):
            while contestant.ready not in log.read_text():
                crew.check()
                await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """End the contestant."""
        assert self.contestant is not None
        await self.plane.crew.stop(self.contestant.name, grace_s=5.0)
        self.contestant = None

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, by part."""
        pids = {name: part.process.pid for name, part in self.plane.crew.parts.items()}
        if self.contestant is not None:
            pids["contestant"] = pids.pop(self.contestant.name)
        pids |= {"EC2": self.ec2.pid or 0, "bench": os.getpid()}
        return {name: processes.cpu_s(pid) for name, pid in pids.items()}

    def volumes_in_ec2(self) -> int:
        """How many volumes EC2 has."""
        states: dict[str, int] = self.ec2.report()["states"]
        return sum(states.values())

    async def quiet(self) -> None:
        """Wait until the contestant has nothing left to do: no CPU, no EC2 calls, for a second."""
        before = (processes.cpu_s(self.pid), self.ec2.counts())
        async with asyncio.timeout(_QUIET_S):
            while True:
                await asyncio.sleep(1.0)
                self.plane.crew.check()
                now = (processes.cpu_s(self.pid), self.ec2.counts())
                if now[0] - before[0] <= _QUIET_CPU and now[1] == before[1]:
                    return
                before = now


@contextlib.asynccontextmanager
async def world(
    parent: Path, binaries: Path, *, instances: int, throttle: str
) -> AsyncIterator[World]:
    """Run a world in a new folder below ``parent``; nothing of it is left running."""
    with StrictEc2(latency="real", throttle=throttle) as ec2:
        async with world_in(ec2, parent, binaries, instances=instances) as made:
            yield made


@contextlib.asynccontextmanager
async def world_in(
    ec2: StrictEc2, parent: Path, binaries: Path, *, instances: int
) -> AsyncIterator[World]:
    """Run a cluster in an account that others may use as well."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    async with (
        Crew(folder / "logs") as crew,
        control_plane(folder, binaries, crew) as plane,
        Hands(plane) as hands,
    ):
        made = await asyncio.to_thread(make_instances, ec2.endpoint, instances, ZONES)
        await nodes.add(plane.api, made)
        new = World(plane, ec2, made, hands)
        new.volumes_at_first = new.volumes_in_ec2()
        yield new


async def own_account(plane: ControlPlane) -> Path:
    """A kubeconfig of the product's account, with all rights; the audit log and webhooks know it.

    The webhook is not asked about what that account creates.
    """
    namespace, name = ACCOUNT
    rights = "rbac.authorization.k8s.io"
    await plane.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    await plane.api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}
    )
    await plane.api.create(
        f"/apis/{rights}/v1/clusterrolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rights, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        },
    )
    return plane.kubeconfig_for(await plane.service_account_token(namespace, name))


async def start_api_server(plane: ControlPlane) -> None:
    """However long it takes, with so much to read: the sandbox has patience for a minute only.

    Raises:
        SandboxError: it ended, or cannot be started.
    """
    try:
        await plane.start_api_server()
    except SandboxError:
        if "kube-apiserver" not in plane.crew.parts:
            raise
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            with contextlib.suppress(aiohttp.ClientError, ApiError, TimeoutError):
                if await plane.api.get("/readyz") == "ok":
                    return
            plane.crew.check()
            await asyncio.sleep(_READY_LOOK_S)


def zone_of_every(instances: Sequence[Instance]) -> dict[str, list[Instance]]:
    """The instances by zone; raises BenchError when a zone has none."""
    found = {zone: [i for i in instances if i.zone == zone] for zone in ZONES}
    if not all(found.values()):
        raise BenchError("a zone without an instance")
    return found
