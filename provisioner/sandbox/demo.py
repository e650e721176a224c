"""The told story of ``sandbox demo``: each step is only ticked off when the API has shown it.

The commands are a user's own kubectl; what they led to is read from the API server and from EC2.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
import boto3
from botocore.exceptions import BotoCoreError
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from provisioner.model.tags import UNCLAIMED
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.story import ATTACHMENTS, CLAIM, CLAIMS, PODS, PVS, STATEFUL_SET
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from provisioner.sandbox.up import Sandbox

STEP_TIMEOUT_S = 60.0
_POLL_S = 0.1

Json = dict[str, Any]
T = TypeVar("T")


class Story:
    """Tells the story; raises ``SandboxError`` at the first step that is not seen."""

    def __init__(self, sandbox: Sandbox, console: Console) -> None:
        self._sandbox = sandbox
        self._console = console
        self._api = sandbox.plane.api
        self._ec2 = boto3.client(
            "ec2",
            region_name=sandbox.region,
            endpoint_url=sandbox.ec2_endpoint,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    async def tell(self) -> None:
        """All chapters, in order."""
        started = time.monotonic()
        await self._a_claim_is_bound()
        await self._a_stateful_set_is_spread()
        await self._a_pod_moves()
        await self._everything_goes()
        took = time.monotonic() - started
        self._console.print(f"\n[bold green]The story is told[/]: every step seen, {took:.0f} s.")

    async def _a_claim_is_bound(self) -> None:
        self._chapter("1. A claim gets a volume", CLAIM)
        await self._kubectl("apply", "-f", "-", text=CLAIM)
        claim = await self._until("the claim is Bound", self._bound_claim)
        await self._kubectl("get", "pvc", "website")

        async def owned() -> Json | None:
            volume = await self._volume(claim["spec"]["volumeName"])
            marked = any(tag["Key"] == UNCLAIMED for tag in volume["Tags"])
            return None if marked else volume

        volume = await self._until("EC2 knows that its volume has an owner", owned)
        table = Table(title=f"EC2: {_described(volume)}", title_justify="left")
        table.add_column("tag", overflow="fold")
        table.add_column("value", overflow="fold")
        for tag in sorted(volume["Tags"], key=lambda t: str(t["Key"])):
            table.add_row(tag["Key"], tag["Value"])
        self._console.print(table)

    async def _a_stateful_set_is_spread(self) -> None:
        self._chapter("2. A StatefulSet over three zones", STATEFUL_SET)
        await self._kubectl("apply", "-f", "-", text=STATEFUL_SET)
        rows = await self._until("three volumes are where their pods are", self._spread)
        self._show(rows)

    async def _a_pod_moves(self) -> None:
        before = next(row for row in await self._rows() if row["pod"] == "db-0")
        self._chapter("3. A pod moves to another node of its zone")
        await self._kubectl("cordon", before["node"])
        await self._kubectl("delete", "pod", "db-0")

        async def moved() -> list[Json] | None:
            rows = await self._spread()
            if rows is None:
                return None
            now = next(row for row in rows if row["pod"] == "db-0")
            there = now["node"] != before["node"] and now["volume"] == before["volume"]
            return rows if there else None

        self._show(await self._until(f"db-0's volume has left {before['instance']}", moved))
        await self._kubectl("uncordon", before["node"])

    async def _everything_goes(self) -> None:
        self._chapter("4. Everything is deleted")
        await self._kubectl("delete", "statefulset,pod", "--all", "--wait=false")
        await self._kubectl("delete", "pvc", "--all", "--wait=false")

        async def gone() -> bool:
            left = [*(await self._items(PVS)), *(await self._items(ATTACHMENTS))]
            return not left and not await self._volumes_of_the_cluster()

        await self._until("no volume with this cluster's tag is left in EC2", gone)

    # -- what is seen

    async def _bound_claim(self) -> Json | None:
        claim: Json = await self._api.get(f"{CLAIMS}/website")
        return claim if claim["status"].get("phase") == "Bound" else None

    async def _rows(self) -> list[Json]:
        """Pod, node, instance, and the volume with where EC2 says that it is."""
        nodes = {instance.private_dns_name: instance for instance in self._sandbox.instances}
        rows = []
        for pod in await self._items(PODS):
            node = nodes.get(pod["spec"].get("nodeName", ""))
            name = pod["metadata"]["name"]
            claim = await self._api.get(f"{CLAIMS}/data-{name}")
            if node is None or not claim["spec"].get("volumeName"):
                continue
            volume = await self._volume(claim["spec"]["volumeName"])
            attached = [a["InstanceId"] for a in volume["Attachments"] if a["State"] == "attached"]
            rows.append(
                {
                    "pod": name,
                    "zone": node.zone,
                    "node": node.private_dns_name,
                    "instance": node.instance_id,
                    "volume": volume["VolumeId"],
                    "volume's zone": volume["AvailabilityZone"],
                    "attached to": ", ".join(attached),
                }
            )
        return rows

    async def _spread(self) -> list[Json] | None:
        """The rows once all three are attached, in three zones, and reported as attached."""
        rows = await self._rows()
        reported = {
            item["spec"]["nodeName"]
            for item in await self._items(ATTACHMENTS)
            if item.get("status", {}).get("attached")
            and not item["metadata"].get("deletionTimestamp")
        }
        right = [
            row
            for row in rows
            if row["zone"] == row["volume's zone"]
            and row["attached to"] == row["instance"]
            and row["node"] in reported
        ]
        in_zones = len({row["zone"] for row in right})
        return right if len(right) == 3 and in_zones == 3 else None  # noqa: PLR2004 -- the story's own

    async def _items(self, path: str) -> list[Json]:
        items: list[Json] = (await self._api.get(path))["items"]
        return items

    async def _volume(self, persistent_volume: str) -> Json:
        found = await self._api.get(f"{PVS}/{persistent_volume}")
        handle = found["spec"]["csi"]["volumeHandle"]
        answer = await asyncio.to_thread(self._ec2.describe_volumes, VolumeIds=[handle])
        volume: Json = dict(answer["Volumes"][0])
        return volume

    async def _volumes_of_the_cluster(self) -> list[str]:
        tag = {"Name": f"tag:kubernetes.io/cluster/{self._sandbox.cluster_id}", "Values": ["owned"]}
        answer = await asyncio.to_thread(self._ec2.describe_volumes, Filters=[tag])
        return [volume["VolumeId"] for volume in answer["Volumes"]]

    # -- how it is told

    def _chapter(self, title: str, manifest: str = "") -> None:
        self._console.print(f"\n[bold cyan]{title}[/]")
        if manifest:
            self._console.print(Panel(Syntax(manifest.strip(), "yaml", background_color="default")))

    def _show(self, rows: list[Json]) -> None:
        table = Table()
        for column in rows[0]:
            table.add_column(column, overflow="fold")
        for row in sorted(rows, key=lambda row: str(row["pod"])):
            table.add_row(*(value.removesuffix(".ec2.internal") for value in row.values()))
        self._console.print(table)

    async def _kubectl(self, *arguments: str, text: str = "") -> None:
        """Run the user's own tool and show what it says."""
        self._console.print(f"[dim]$ kubectl {' '.join(arguments)}[/]")
        plane = self._sandbox.plane
        process = await asyncio.create_subprocess_exec(
            str(plane.binaries / "kubectl"),
            f"--kubeconfig={plane.kubeconfig}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(text.encode())
        said = output.decode().rstrip()
        self._console.print(said, highlight=False, markup=False, soft_wrap=True)
        if process.returncode:
            self._sandbox.crew.check()
            raise SandboxError(f"kubectl {' '.join(arguments)} failed: {said}")

    async def _until(self, what: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """Look until it is so; told with the time that it took.

        Raises:
            SandboxError: a part died, or it was not seen in time.
        """
        started = time.monotonic()
        with self._console.status(what):
            while not (seen := await self._look(look)):
                self._sandbox.crew.check()
                if time.monotonic() - started > STEP_TIMEOUT_S:
                    raise SandboxError(f"not seen in {STEP_TIMEOUT_S:g} s: {what}")
                await asyncio.sleep(_POLL_S)
        self._console.print(f"[green]✓[/] {what} [dim]({time.monotonic() - started:.1f} s)[/]")
        return seen

    async def _look(self, look: Callable[[], Awaitable[T | None]]) -> T | None:
        try:
            return await look()
        except (aiohttp.ClientError, ApiError, BotoCoreError, TimeoutError):
            return None  # who did not answer may be dead: the crew knows in a moment


def _described(volume: Json) -> str:
    return (
        f"{volume['VolumeId']}, {volume['VolumeType']}, {volume['Size']} GiB, "
        f"{volume['AvailabilityZone']}, {volume['State']}"
    )


async def tell(console: Console) -> None:
    """Start a sandbox, tell the story in it, and end it.

    Raises:
        SandboxError: a step was not seen.
    """
    async with Sandbox.start(nodes=6, zones=3, latency="real", throttle="documented") as sandbox:
        await Story(sandbox, console).tell()
