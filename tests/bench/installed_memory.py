"""Memory of the installed pods in their cgroups under load; the manifests' limits follow from it.

    .venv/bin/python -m tests.bench.installed_memory [--count 300]

As root, with an image in dist/ (``make image``). Claims are bound and attached to nodes that only
pretend, pods are reviewed and pods on the real nodes mount volumes, all as fast as the machine
allows, with an EC2 that answers at once and throttles nothing: each pod has as much in flight as it
ever has with so many objects. The pods have the chart's limits, so a limit that is too small shows
as a restart or an OOM kill: then it fails.

Source: Linux, Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst. What a group uses
includes the page cache of files that its processes were the first to read. The count oom_kill is in memory.events
(version 2) and in memory.oom_control (version 1, where it is of that one group only).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from provisioner.model.attachment import attachment_name
from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.installed.archive import ImageArchive, chosen, why_other
from provisioner.sandbox.installed.release import NAMESPACE, NODE_NAMESPACE
from provisioner.sandbox.real_node import cgroups
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.up import Sandbox
from tests.bench.hands import Eye, Hands, Seen
from tests.bench.phases import (
    ATTACHMENTS,
    CLAIMS,
    CLASS,
    CLASSES,
    PATIENCE_S,
    VOLUMES,
    claim,
    is_attached,
    is_bound,
    is_gone,
)

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
PER_NODE = 24
REAL_NODES = 2
MOUNTED = 20
"""Volumes that each real node gets at once."""
_MIB = 1 << 20
_LABEL = "app.kubernetes.io/component"
_FILES = (
    # version 2: now, the most ever, and in memory.stat what belongs to the processes
    ("memory.current", "memory.peak", "anon"),
    ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_rss"),
)
_OOM_FILES = ("memory.events", "memory.oom_control")


@dataclass(frozen=True, slots=True)
class Used:
    """MiB of a pod: of its processes now, of the group now, and the most of the group ever."""

    own: float
    now: float
    peak: float


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the product, with the seconds from its container's start to Ready."""

    component: str
    uid: str
    ready_s: float


class Bench:
    """A sandbox with the product installed, and what its pods use."""

    def __init__(self, sandbox: Sandbox, hands: Hands, count: int) -> None:
        self._sandbox, self._hands, self._count = sandbox, hands, count
        self._pods: list[Pod] = []

    async def run(self) -> None:
        """All phases; a line for each pod after each."""
        self._pods = sorted(
            map(pod_of, await self._found()), key=lambda each: (each.component, each.uid)
        )
        for each in self._pods:
            click.echo(f"{each.component}: Ready {each.ready_s:.0f} s after its container started")
        await self._tell("at rest")
        await self._hands.send("POST", CLASSES, _class())
        names = range(self._count)
        await self._until(CLAIMS, is_bound, (("POST", CLAIMS, claim(each)) for each in names))
        await self._tell(f"{self._count} claims Bound")
        bodies = await self._attachments()
        await self._until(ATTACHMENTS, is_attached, (("POST", ATTACHMENTS, b) for b in bodies))
        await self._tell(f"{self._count} volumes attached")
        reviews = (
            ("POST", f"{PODS}?dryRun=All", _reviewed(each % self._count)) for each in range(3000)
        )
        await self._hands.send_all(reviews)
        await self._tell("3,000 pods reviewed")
        paths = [f"{ATTACHMENTS}/{each['metadata']['name']}" for each in bodies]
        await self._until(ATTACHMENTS, is_gone, (("DELETE", path, None) for path in paths))
        await self._until(VOLUMES, is_gone, (("DELETE", f"{CLAIMS}/data-{n}", None) for n in names))
        await self._tell("all detached and deleted")
        await self._mounts()

    async def _mounts(self) -> None:
        """Have each real node format and mount volumes at once, and give them up again."""
        numbers = range(REAL_NODES * MOUNTED)
        await self._hands.send_all(("POST", CLAIMS, claim(each)) for each in numbers)
        nodes = itertools.cycle([each.name for each in self._sandbox.real_nodes])
        pods = [
            pod(f"mounts-{n}", "sleep 1000", {"/data": f"data-{n}"}, image=POD_IMAGE, node=node)
            for n, node in zip(numbers, nodes, strict=False)
        ]
        await self._until(PODS, _runs, (("POST", PODS, body) for body in pods))
        await self._tell(f"{MOUNTED} volumes mounted on each real node")
        paths = [f"{PODS}/mounts-{n}" for n in numbers]
        await self._until(PODS, is_gone, (("DELETE", path, None) for path in paths))
        await self._tell("all unmounted")

    async def _until(
        self, path: str, reached: Any, requests: Iterator[tuple[str, str, Any]]
    ) -> None:
        wanted = list(requests)
        async with Eye(self._hands, path, reached) as eye, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hands.send_all(wanted))
            await eye.wait_for(len(wanted), PATIENCE_S)

    async def _attachments(self) -> list[Json]:
        found = json.loads(await self._hands.send("GET", VOLUMES))["items"]
        nodes = itertools.cycle([each.private_dns_name for each in self._sandbox.instances])
        return [_attachment(each, node) for each, node in zip(found, nodes, strict=False)]

    async def _found(self) -> list[Json]:
        pods: list[Json] = []
        for namespace in (NAMESPACE, NODE_NAMESPACE):
            answer = await self._hands.send("GET", f"/api/v1/namespaces/{namespace}/pods")
            pods += json.loads(answer)["items"]
        return pods

    async def _check(self, when: str) -> None:
        """Fail if a pod has died: what it uses now says nothing then."""
        wrong = deaths(self._pods, await self._found())
        for each in self._pods if not wrong else ():
            if kills := oom_kills(self._group(each.uid)):
                wrong.append(f"the {each.component}'s pod {each.uid} had {kills} OOM kills")
        if wrong:
            raise click.ClickException(f"{when}: {', '.join(wrong)}")

    async def _tell(self, when: str) -> None:
        await self._check(when)
        click.echo(f"{when}:")
        for each in self._pods:
            now = used(self._group(each.uid))
            assert now is not None
            click.echo(
                f"  {each.component:<12} processes {now.own:6.1f}, group {now.now:6.1f}, "
                f"peak of the group {now.peak:6.1f} MiB"
            )

    def _group(self, uid: str) -> Path:
        for node in self._sandbox.real_nodes:
            for hierarchy in (cgroups.ROOT, cgroups.ROOT / "memory"):
                for group in (hierarchy / node.host.cgroup).glob(f"**/pod{uid}"):
                    if used(group) is not None:
                        return group
        raise click.ClickException(f"the pod {uid} has no group that counts memory")


def used(group: Path) -> Used | None:
    """What a control group uses; None if it does not count memory."""
    for now, peak, own in _FILES:
        if (group / now).exists():
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            now_b, most_b = (int((group / name).read_text()) for name in (now, peak))
            return Used(int(stat[own]) / _MIB, now_b / _MIB, most_b / _MIB)
    return None


def oom_kills(group: Path) -> int:
    """How many processes of a group, or of one below it, the kernel killed because of a limit.

    At least so many: version 2 counts them in the groups above too, so they cannot be added up.

    Raises:
        ClickException: it is not counted there.
    """
    found = [path for name in _OOM_FILES for path in group.rglob(name)]
    if not found:
        raise click.ClickException(f"{group} does not count OOM kills")
    counts = [dict(line.split() for line in path.read_text().splitlines()) for path in found]
    return max(int(each["oom_kill"]) for each in counts)


def pod_of(found: Json) -> Pod:
    """A pod of the API server's.

    Raises:
        ClickException: its container does not run.
    """
    [container] = found["status"]["containerStatuses"]
    meta = found["metadata"]
    if "running" not in container["state"]:
        raise click.ClickException(f"{meta['name']} does not run: {container['state']}")
    started = datetime.fromisoformat(container["state"]["running"]["startedAt"])
    [ready] = [each for each in found["status"]["conditions"] if each["type"] == "Ready"]
    ready_s = (datetime.fromisoformat(ready["lastTransitionTime"]) - started).total_seconds()
    return Pod(meta["labels"][_LABEL], meta["uid"], ready_s)


def deaths(wanted: Sequence[Pod], found: Sequence[Json]) -> list[str]:
    """Which pods were restarted, and which of those wanted are gone."""
    said = []
    for each in found:
        restarts = sum(one["restartCount"] for one in each["status"].get("containerStatuses", ()))
        if restarts:
            said.append(f"{each['metadata']['name']} was restarted {restarts} times")
    left = {each["metadata"]["uid"] for each in found}
    gone = [each for each in wanted if each.uid not in left]
    return said + [f"the {each.component}'s pod {each.uid} is gone" for each in gone]


def checked(image: ImageArchive) -> ImageArchive:
    """Name the image; return it if it is of this checkout.

    Raises:
        ClickException: it is of another commit.
    """
    click.echo(f"{image.name}, built from {image.revision or 'an unknown commit'}")
    if other := why_other(image):
        raise click.ClickException(other)
    return image


def _runs(_: str, seen: Seen) -> bool:
    return seen.status.phase == "Running"


def _class() -> Json:
    return {
        "metadata": {"name": CLASS},
        "provisioner": EBS_DRIVER,
        "parameters": {"type": "gp3"},
        "volumeBindingMode": "Immediate",
    }


def _attachment(volume: Json, node: str) -> Json:
    handle, name = volume["spec"]["csi"]["volumeHandle"], volume["metadata"]["name"]
    return {
        "metadata": {"name": attachment_name(handle, EBS_DRIVER, node)},
        "spec": {
            "attacher": EBS_DRIVER,
            "nodeName": node,
            "source": {"persistentVolumeName": name},
        },
    }


def _reviewed(number: int) -> Json:
    body = pod(f"reviewed-{number}", "true", {"/data": f"data-{number}"}, image=POD_IMAGE)
    return body | {"apiVersion": "v1", "kind": "Pod"}


async def _main(count: int) -> None:
    image = checked(chosen())
    start = Sandbox.start(
        nodes=-(-count // PER_NODE),
        zones=1,
        real_nodes=REAL_NODES,
        latency="none",
        throttle="none",
        webhook=True,
        image=image,
    )
    async with start as sandbox, Hands(sandbox.plane) as hands:
        await Bench(sandbox, hands, count).run()


@click.command(help=__doc__)
@click.option("--count", default=300, show_default=True, help="Claims.")
def main(count: int) -> None:
    """Run it once."""
    asyncio.run(_main(count))


if __name__ == "__main__":
    main()
