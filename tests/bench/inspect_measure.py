"""``kubectl ebs`` in a cluster of 10,000 claims: time, memory, EC2 calls.

Every claim has a volume in EC2, and a fifth of them a pod and an attachment. No controller runs, as
nothing is to change meanwhile; to ``doctor`` that is one more finding.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from provisioner.model.attachment import attachment_name
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from provisioner.sandbox.strict_ec2.instances import Instance
from tests.bench import null_bodies, processes
from tests.bench.hands import BenchError
from tests.bench.phases import ATTACHMENTS, CLAIMS, CLASS, VOLUMES, claim, make_class
from tests.bench.stats_server import stats_servers
from tests.bench.world import REGION, ZONES, World, world
from tests.sandbox import lab

PODS = "/api/v1/namespaces/default/pods"
PER_NODE = 20
EXPLAIN_S, DOCTOR_S, PEAK_MIB = 3.0, 20.0, 200
"""Limits of issue 16, at 10,000 claims."""
_USED = 5  # every fifth claim has a pod
_REPEAT = 3
_EC2_AT_ONCE = 8
_LOOK_S = 0.01
_UID = "00000000-0000-4000-8000-{:012}"

Request = tuple[str, str, Any]


@dataclass(frozen=True, slots=True)
class Look:
    """One run of a command.

    Attributes:
        seconds: from the start of its process to its end.
        cpu_s: that it used itself.
        peak_mib: resident memory at its peak.
        calls: EC2 calls, by action.
    """

    seconds: float
    cpu_s: float
    peak_mib: float
    calls: dict[str, int]


@dataclass(slots=True)
class Inspected:
    """All runs of each command line, in turns."""

    claims: int
    looks: dict[str, list[Look]] = field(default_factory=dict)


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("explain", "pod", "pod-0"),
    ("explain", "pvc", "data-1"),
    ("explain", "pv", f"pvc-{_UID.format(1)}"),
    ("explain", "node", "NODE"),
    ("doctor",),
    ("df",),
    ("volumes",),
    ("budget",),
    ("quota",),
    ("orphans",),
    ("cost",),
    ("history", "pvc", "data-1"),
)
"""What is run; NODE is the first node, which has the most volumes that a node has here."""


async def measure(parent: Path, binaries: Path, claims: int) -> Inspected:
    """Run each command some times in a full cluster."""
    found = Inspected(claims)
    async with _full(parent, binaries, claims) as made:
        for _, command in itertools.product(range(_REPEAT), COMMANDS):
            there = made.instances[0].private_dns_name
            arguments = [there if each == "NODE" else each for each in command]
            look = await _one(made, arguments)
            found.looks.setdefault(" ".join(command), []).append(look)
    return found


@asynccontextmanager
async def _full(parent: Path, binaries: Path, claims: int) -> AsyncIterator[World]:
    nodes = max(-(-claims // _USED // PER_NODE), len(ZONES))
    async with world(parent, binaries, instances=nodes, throttle="none") as made:
        # The binder would write four times to each pair, for minutes.
        await made.plane.crew.stop("kube-controller-manager")
        made.ec2.control(latency="none")
        zones = [_instance(made, number).zone for number in range(claims)]
        volume_ids = await _make_volumes(made, zones)
        await make_class(made)
        await made.hands.send_all(_claims(claims))
        await made.hands.send_all(_persistent_volumes(volume_ids, zones))
        await _use(made, volume_ids)
        made.ec2.control(latency="real", throttle="documented")
        async with stats_servers(made, _mounted(made, claims)):
            yield made


def _mounted(made: World, claims: int) -> dict[str, list[str]]:
    """The claims that pods use, by node."""
    found: dict[str, list[str]] = {}
    for number in range(0, claims, _USED):
        node = _instance(made, number).private_dns_name
        found.setdefault(node, []).append(f"data-{number}")
    return found


def _instance(made: World, number: int) -> Instance:
    """The node of a claim's pod, if it has one."""
    return made.instances[number // _USED % len(made.instances)]


async def _at_once(work: Iterable[Callable[[], Any]]) -> list[Any]:
    """Calls of EC2, each in a thread, some at once; their answers in order."""
    turns = asyncio.Semaphore(_EC2_AT_ONCE)

    async def one(call: Callable[[], Any]) -> Any:
        async with turns:
            return await asyncio.to_thread(call)

    return await asyncio.gather(*(one(each) for each in work))


async def _make_volumes(made: World, zones: Sequence[str]) -> list[str]:
    """One volume for each of these zones, tagged as the controller does; their ids."""
    ec2 = lab.client(made.ec2.endpoint)
    create = partial(ec2.create_volume, Size=1, VolumeType="gp3")
    answers = await _at_once(
        partial(create, AvailabilityZone=zone, TagSpecifications=[_tags(number)])
        for number, zone in enumerate(zones)
    )
    return [str(each["VolumeId"]) for each in answers]


def _tags(number: int) -> dict[str, Any]:
    meta = {"name": f"data-{number}", "namespace": "default"}
    kept = [e for e in null_bodies.tags(meta, _name(number)) if e["Key"] != null_bodies.MARK]
    return {"ResourceType": "volume", "Tags": kept}


def _name(number: int) -> str:
    return f"pvc-{_UID.format(number)}"


def _claims(count: int) -> Iterator[Request]:
    for number in range(count):
        body = claim(number, volumeName=_name(number))
        body["metadata"]["annotations"] = {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
            "volume.kubernetes.io/storage-provisioner": null_bodies.DRIVER,
        }
        yield "POST", CLAIMS, body


def _persistent_volumes(ids: Sequence[str], zones: Sequence[str]) -> Iterator[Request]:
    for number, (volume_id, zone) in enumerate(zip(ids, zones, strict=True)):
        meta = {
            "namespace": "default",
            "name": f"data-{number}",
            "uid": _UID.format(number),
            "resourceVersion": "1",
        }
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
        yield "POST", VOLUMES, null_bodies.manifest(meta, spec, _name(number), volume_id, zone)


async def _use(made: World, volume_ids: Sequence[str]) -> None:
    """Attach some volumes, have pods use them, and write what all statuses say."""
    ec2 = lab.client(made.ec2.endpoint)
    used = {n: _instance(made, n) for n in range(0, len(volume_ids), _USED)}
    await _at_once(
        partial(
            ec2.attach_volume,
            VolumeId=volume_ids[number],
            InstanceId=instance.instance_id,
            Device=f"/dev/xvdb{chr(ord('a') + number // _USED // len(made.instances))}",
        )
        for number, instance in used.items()
    )
    names = {number: instance.private_dns_name for number, instance in used.items()}
    await made.hands.send_all(_pods(names))
    await made.hands.send_all(_attachments(names, volume_ids))
    await made.hands.send_all(_statuses(names, volume_ids))


def _pods(nodes: Mapping[int, str]) -> Iterator[Request]:
    for number, node in nodes.items():
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "main"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}],
        }
        yield "POST", PODS, {"metadata": {"name": f"pod-{number}"}, "spec": spec}


def _attachments(nodes: Mapping[int, str], ids: Sequence[str]) -> Iterator[Request]:
    for number, node in nodes.items():
        source = {"persistentVolumeName": _name(number)}
        spec = {"attacher": null_bodies.DRIVER, "nodeName": node, "source": source}
        metadata = {"name": attachment_name(ids[number], null_bodies.DRIVER, node)}
        yield "POST", ATTACHMENTS, {"metadata": metadata, "spec": spec}


def _statuses(nodes: Mapping[int, str], ids: Sequence[str]) -> Iterator[Request]:
    bound = {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
    }
    for number in range(len(ids)):
        yield "PATCH", f"{CLAIMS}/data-{number}/status", {"status": bound}
        yield "PATCH", f"{VOLUMES}/{_name(number)}/status", {"status": {"phase": "Bound"}}
    for number, node in nodes.items():
        name = attachment_name(ids[number], null_bodies.DRIVER, node)
        yield "PATCH", f"{ATTACHMENTS}/{name}/status", {"status": {"attached": True}}


async def _one(made: World, arguments: Sequence[str]) -> Look:
    """Run the command once.

    Raises:
        BenchError: it answered nothing.
    """
    made.ec2.control(reset_counts=True)
    environment = os.environ | {
        **CREDENTIALS,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": made.ec2.endpoint,
    }
    argv = [sys.executable, "-m", "provisioner.cli", "ebs", *arguments, "-o", "json"]
    argv += ["--kubeconfig", str(made.plane.kubeconfig)]
    look = await asyncio.to_thread(_run, argv, environment)
    return replace(look, calls=made.ec2.counts())


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> Look:
    """What its last moments show: the memory of a child's rusage would be at least our own."""
    peak_mib = cpu_s = 0.0
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(argv, env=environment, stdout=out, stderr=err)
        while process.poll() is None:
            with suppress(OSError, KeyError, IndexError):  # it ends just now
                peak_mib = max(peak_mib, processes.memory_mib(process.pid)[1])
                cpu_s = processes.cpu_s(process.pid)
            time.sleep(_LOOK_S)
        seconds = time.monotonic() - began_s
        if not out.seek(0, os.SEEK_END):
            err.seek(0)
            raise BenchError(f"{' '.join(argv[3:])}: {err.read().decode()}")
    return Look(seconds, cpu_s, peak_mib, {})


def markdown(inspected: Inspected) -> str:
    """The part of the report."""
    lines = [
        "| command | seconds: median, most | its CPU, s | peak MiB | EC2 calls |",
        "| --- | --: | --: | --: | --- |",
    ]
    for command, looks in inspected.looks.items():
        seconds = [each.seconds for each in looks]
        calls = ", ".join(f"{action} {n}" for action, n in sorted(looks[-1].calls.items()))
        lines.append(
            f"| `{command}` | {median(seconds):.1f}, {max(seconds):.1f} "
            f"| {median(each.cpu_s for each in looks):.1f} "
            f"| {max(each.peak_mib for each in looks):.0f} | {calls or 'none'} |"
        )
    used = inspected.claims // _USED
    return (
        f"## kubectl ebs, {inspected.claims:,} claims, {used:,} of them used by pods\n\n"
        + "\n".join(lines)
        + f"\n\nLimits: explain {EXPLAIN_S:.0f} s, doctor {DOCTOR_S:.0f} s, {PEAK_MIB} MiB."
    )
