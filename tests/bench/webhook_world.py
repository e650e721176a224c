"""The webhook under measurement: its cluster of 10,000 volumes and claims, its process, its core."""

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import msgspec

from provisioner.model.node_affinity import REGION_LABEL
from provisioner.model.zone import ZONE_LABEL
from provisioner.sandbox.control_plane import free_port
from provisioner.sandbox.installation import configurations_by_url
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from tests.bench import null_bodies, processes
from tests.bench.hands import BenchError
from tests.bench.memory import until_ready
from tests.bench.phases import CLAIMS, CLASS, VOLUMES, claim
from tests.bench.webhook_load import HOST
from tests.bench.webhook_reviews import SPECIMEN, Json, Reviews, claim_name
from tests.bench.world import REGION, ZONES, Contestant, World, world
from webhook.settings import NAME

PODS = "/api/v1/namespaces/default/pods"
NAMESPACE = "default"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CONFIGURATIONS = {
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
PER_NODE = 24
_IMPORT = (
    "import webhook.cli, webhook.app;"
    "from tests.bench.processes import memory_mib; print(memory_mib()[0])"
)
_READY = "serving a certificate"
_AT_ONCE = 4


@dataclass(slots=True)
class Served:
    """A running webhook.

    Attributes:
        made: its world; the contestant is the webhook.
        port: where it serves HTTPS.
        ready_s: from its start to its first ready answer.
    """

    made: World
    port: int
    ready_s: float

    @property
    def url(self) -> str:
        """As webhook configurations name it."""
        return f"https://{HOST}:{self.port}"

    def memory_mib(self) -> tuple[float, float]:
        """Resident now and at its peak."""
        return processes.memory_mib(self.made.pid)


class Meter:
    """What the parts of a world use from now on, and what others do."""

    def __init__(self, made: World) -> None:
        self._made = made
        self._began_s, self._busy_s = time.monotonic(), processes.busy_s()
        self._before_s = made.cpu_s()

    def used_s(self) -> dict[str, float]:
        """CPU seconds by part."""
        return {part: at - self._before_s[part] for part, at in self._made.cpu_s().items()}

    def foreign(self) -> float:
        """The share of the machine that others used, which makes every figure worse."""
        theirs_s = processes.busy_s() - self._busy_s - sum(self.used_s().values())
        took_s = time.monotonic() - self._began_s
        return max(0.0, theirs_s / took_s / (os.cpu_count() or 1))


@asynccontextmanager
async def full_cluster(parent: Path, binaries: Path, objects: int) -> AsyncIterator[World]:
    """A cluster with so many persistent volumes and claims, and the nodes that they take.

    Nothing but the API server acts in it: binder, scheduler and kubelets would only add noise.
    """
    instances = -(-objects // (len(ZONES) * PER_NODE)) * len(ZONES)
    async with world(parent, binaries, instances=instances, throttle="documented") as made:
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            await made.plane.crew.stop(name)
        made.ec2.control(latency="none", throttle="none")
        volumes = await asyncio.to_thread(_volumes_in_ec2, made.ec2.endpoint, objects)
        made.ec2.control(latency="real", throttle="documented")
        await made.hands.send_all(_claims(objects))
        await made.hands.send_all(_volumes(volumes, await _uids(made)))
        yield made


@asynccontextmanager
async def serving(
    made: World,
    *options: str,
    by_url: bool = True,
    module: str = "webhook.cli",
    endpoint: str = "",
    kubeconfig: Path | None = None,
) -> AsyncIterator[Served]:
    """``ebs-webhook serve`` in a world, ready, with nothing left to do.

    ``endpoint``: of an EC2 in front of the world's own. ``kubeconfig``: the administrator's
    without.
    """
    port, probes = free_port(), f"{HOST}:{free_port()}"
    for body in configurations_by_url(f"https://{HOST}:{port}") if by_url else ():
        await made.hands.send("POST", CONFIGURATIONS[body["kind"]], body)
    where = ("--listen", f"{HOST}:{port}", "--tls-name", HOST, "--namespace", NAMESPACE)
    arguments = ("serve", *where, "--metrics-address", probes, *options)
    async with asyncio.TaskGroup() as tasks:  # a webhook that ends is told at once
        contestant = Contestant("webhook", module, arguments, _READY)
        environment = {"AWS_EC2_ENDPOINT": endpoint or made.ec2.endpoint}
        tasks.create_task(made.start(contestant, kubeconfig=kubeconfig, environment=environment))
        ready = tasks.create_task(until_ready(f"http://{probes}/readyz"))
    await made.quiet()
    try:
        yield Served(made, port, ready.result())
    finally:
        await made.stop()


async def unconfigure(made: World) -> None:
    """Remove both webhook configurations, whoever made them."""
    for path in CONFIGURATIONS.values():
        await made.hands.send("DELETE", f"{path}/{NAME}")


async def reviews(made: World, objects: int) -> Reviews:
    """What is to be sent: the API server has filled in its defaults, as before any webhook."""
    return Reviews(await specimen(made), objects, len(ZONES))


async def specimen(made: World) -> Json:
    """A pod as the API server has it."""
    stored = await made.hands.send("POST", f"{PODS}?dryRun=All", SPECIMEN)
    found: Json = msgspec.json.decode(stored)
    return found


def floor_mib() -> float:
    """What a process takes that has imported all of the webhook and done nothing."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def pin(pid: int, core: int) -> None:
    """Keep a process, with all of its threads, on one core.

    Raises:
        BenchError: there is no other core, so that who asks would be in the way of who answers.
    """
    if len(os.sched_getaffinity(0)) < 2:
        raise BenchError("the webhook's bench needs two cores")
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


def _volumes_in_ec2(endpoint: str, count: int) -> list[tuple[str, str]]:
    """Make volumes, in the zones in turn; their ids and zones."""
    client = boto3.client(
        "ec2",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )

    def make(zone: str) -> tuple[str, str]:
        return client.create_volume(AvailabilityZone=zone, Size=1, VolumeType="gp3")[
            "VolumeId"
        ], zone

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(make, itertools.islice(itertools.cycle(ZONES), count)))


def _volume_name(number: int) -> str:
    return f"pvc-00000000-0000-4000-8000-{number:012}"


async def _uids(made: World) -> dict[str, str]:
    """The claims' own, by name: a persistent volume that names another is none of theirs."""
    found = msgspec.json.decode(await made.hands.send("GET", CLAIMS))
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found["items"]}


def _volumes(
    volumes: list[tuple[str, str]], uids: Mapping[str, str]
) -> Iterator[tuple[str, str, Any]]:
    """Persistent volumes as our provisioner and this webhook leave them."""
    for number, (volume_id, zone) in enumerate(volumes):
        name = _volume_name(number)
        meta = {
            "namespace": NAMESPACE,
            "name": claim_name(number),
            "uid": uids[claim_name(number)],
            "resourceVersion": "1",
        }
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
        body = null_bodies.manifest(meta, spec, name, volume_id, zone)
        body["metadata"]["labels"] = {ZONE_LABEL: zone, REGION_LABEL: REGION}
        yield "POST", VOLUMES, body


def _claims(count: int) -> Iterator[tuple[str, str, Any]]:
    for number in range(count):
        body = claim(number, volumeName=_volume_name(number))
        body["metadata"] |= {
            "name": claim_name(number),
            "annotations": {
                "pv.kubernetes.io/bind-completed": "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
                "volume.kubernetes.io/storage-provisioner": null_bodies.DRIVER,
            },
        }
        yield "POST", CLAIMS, body
