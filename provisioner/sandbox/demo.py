"""The told story of ``sandbox demo``: each step is only ticked off when the API has shown it.

The commands are a user's own kubectl; what they led to is read from the API server and from EC2.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import Any

import boto3
from botocore.exceptions import ClientError
from rich.console import Console
from rich.table import Table

from provisioner.model.tags import UNCLAIMED
from provisioner.sandbox import story
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.story import ATTACHMENTS, CLAIM, CLAIMS, PODS, PVS, STATEFUL_SET
from provisioner.sandbox.strict_ec2.client import CREDENTIALS
from provisioner.sandbox.telling import Teller
from provisioner.sandbox.up import Sandbox

Json = dict[str, Any]


class Story:
    """Tells the story; raises ``SandboxError`` at the first step that is not seen."""

    def __init__(self, sandbox: Sandbox, console: Console) -> None:
        self._sandbox = sandbox
        self._teller = Teller(sandbox, console)
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
        with contextlib.closing(self._ec2):
            await self._a_claim_is_bound()
            await self._a_stateful_set_is_spread()
            await self._a_pod_moves()
            by_hand = await self._a_volume_is_made_by_hand()
            by_hand += await self._nothing_is_spread_over_zones(by_hand[0])
            await self._everything_goes(by_hand)
        took = time.monotonic() - started
        self._teller.console.print(
            f"\n[bold green]The story is told[/]: every step seen, {took:.0f} s."
        )

    async def _a_claim_is_bound(self) -> None:
        self._teller.chapter("1. A claim gets a volume", CLAIM)
        await self._teller.kubectl("apply", "-f", "-", text=CLAIM)
        claim = await self._teller.until("the claim is Bound", self._bound_claim)
        await self._teller.kubectl("get", "pvc", "website")

        async def owned() -> Json | None:
            volume = await self._volume(claim["spec"]["volumeName"])
            marked = any(tag["Key"] == UNCLAIMED for tag in volume["Tags"])
            return None if marked else volume

        volume = await self._teller.until("EC2 knows that its volume has an owner", owned)
        table = Table(title=f"EC2: {_described(volume)}", title_justify="left")
        table.add_column("tag", overflow="fold")
        table.add_column("value", overflow="fold")
        for tag in sorted(volume["Tags"], key=lambda t: str(t["Key"])):
            table.add_row(tag["Key"], tag["Value"])
        self._teller.console.print(table)

    async def _a_stateful_set_is_spread(self) -> None:
        self._teller.chapter("2. A StatefulSet over three zones", STATEFUL_SET)
        await self._teller.kubectl("apply", "-f", "-", text=STATEFUL_SET)
        rows = await self._teller.until("three volumes are where their pods are", self._spread)
        self._teller.show(rows)

    async def _a_pod_moves(self) -> None:
        before = next(row for row in await self._rows() if row["pod"] == "db-0")
        self._teller.chapter("3. A pod moves to another node of its zone")
        await self._teller.kubectl("cordon", before["node"])
        await self._teller.kubectl("delete", "pod", "db-0", "--wait=false")

        async def moved() -> list[Json] | None:
            rows = await self._spread()
            if rows is None:
                return None
            now = next(row for row in rows if row["pod"] == "db-0")
            there = now["node"] != before["node"] and now["volume"] == before["volume"]
            return rows if there else None

        self._teller.show(
            await self._teller.until(f"db-0's volume has left {before['instance']}", moved)
        )
        await self._teller.kubectl("uncordon", before["node"])

    async def _a_volume_is_made_by_hand(self) -> list[str]:
        here = self._sandbox.zones[0]
        self._teller.chapter(f"4. A volume that somebody made by hand, in {here}")
        volume = await self._made_by_hand(here)
        manifest = story.by_hand("films", volume)
        self._teller.manifest(manifest)
        await self._teller.kubectl("create", "-f", "-", text=manifest)

        async def pinned() -> Json | None:
            found: Json = await self._api.get(f"{PVS}/films")
            labels = found["metadata"].get("labels", {})
            right = found["spec"].get("nodeAffinity") == story.affinity(here)
            return found if right and labels.get(story.ZONE) == here else None

        await self._teller.until("the persistent volume says where its volume is", pinned)
        columns = (f"--label-columns={story.ZONE}", f"--label-columns={story.REGION}")
        await self._teller.kubectl("get", "pv", "films", *columns)
        return [volume]

    async def _nothing_is_spread_over_zones(self, volume: str) -> list[str]:
        here, there = self._sandbox.zones[:2]
        self._teller.chapter("5. What could never run is refused")
        wrong = story.by_hand("films-again", volume, there)
        self._teller.manifest(wrong)
        what = "a persistent volume in the wrong zone"
        await self._teller.refused(what, volume, here, there, text=wrong)

        mistyped = volume[:-1] + ("1" if volume.endswith("0") else "0")
        what = "a persistent volume of a volume that does not exist"
        text = story.by_hand("films-again", mistyped)
        await self._teller.refused(what, mistyped, text=text)

        other = await self._made_by_hand(there)
        await self._teller.kubectl("create", "-f", "-", text=story.by_hand("music", other))
        await self._teller.kubectl("create", "-f", "-", text=story.CLAIMS_BY_HAND)

        async def bound() -> bool:
            claims = [await self._api.get(f"{CLAIMS}/{name}") for name in ("films", "music")]
            return all(claim["status"].get("phase") == "Bound" for claim in claims)

        await self._teller.until("both claims are Bound", bound)
        self._teller.manifest(story.PLAYER)
        what = "a pod whose volumes are in two zones"
        await self._teller.refused(what, "films", "music", here, there, text=story.PLAYER)
        return [other]

    async def _everything_goes(self, by_hand: list[str]) -> None:
        self._teller.chapter("6. Everything is deleted")
        await self._teller.kubectl("delete", "statefulset,pod", "--all", "--wait=false")
        await self._teller.kubectl("delete", "pvc", "--all", "--wait=false")
        await self._teller.kubectl("delete", "pv", "films", "music", "--wait=false")
        for volume in by_hand:
            await self._aws("delete_volume", VolumeId=volume)

        async def gone() -> bool:
            left = [*(await self._items(PVS)), *(await self._items(ATTACHMENTS))]
            return not left and not await self._volumes_of_the_cluster()

        await self._teller.until("no volume with this cluster's tag is left in EC2", gone)

    async def _made_by_hand(self, zone: str) -> str:
        made = await self._aws("create_volume", AvailabilityZone=zone, Size=8)
        volume = str(made["VolumeId"])

        async def available() -> bool:
            answer = await asyncio.to_thread(self._ec2.describe_volumes, VolumeIds=[volume])
            return bool(answer["Volumes"][0]["State"] == "available")

        # Until then EC2 refuses to delete it, too.
        await self._teller.until(f"{volume} is available", available)
        return volume

    async def _aws(self, operation: str, **parameters: Any) -> Json:
        """What a user would do with the other tool."""
        options = "".join(
            f" --{re.sub('(?<=[a-z])(?=[A-Z])', '-', key).lower()} {value}"
            for key, value in parameters.items()
        )
        self._teller.console.print(f"[dim]$ aws ec2 {operation.replace('_', '-')}{options}[/]")
        try:
            answer: Json = await asyncio.to_thread(getattr(self._ec2, operation), **parameters)
        except ClientError as error:
            raise SandboxError(str(error)) from error
        return answer

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
    async with Sandbox.start(
        nodes=6, zones=3, latency="real", throttle="documented", webhook=True
    ) as sandbox:
        await Story(sandbox, console).tell()
