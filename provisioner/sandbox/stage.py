"""What the chapters of the demo share: the teller, the two APIs, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import boto3
from botocore.exceptions import ClientError
from rich.console import Console
from rich.table import Table

from provisioner.model.names import UNCLAIMED
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installed.archive import ImageArchive
from provisioner.sandbox.snapshots import GROUP
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, ask
from provisioner.sandbox.telling import Teller
from provisioner.sandbox.up import Sandbox

PVS = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
SNAPSHOTS = f"{GROUP}/namespaces/default/volumesnapshots"
CONTENTS = f"{GROUP}/volumesnapshotcontents"

ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"

Json = dict[str, Any]


class Stage:
    """Where a chapter is told.

    Attributes:
        sandbox: the control plane and the strict EC2.
        teller: prints, runs the user's kubectl, looks until something is so.
        api: the API server as the administrator sees it.
        left: names by kind that the last chapter deletes.
        to_delete: ids of volumes that only a user deletes in EC2, by a name; the last chapter does.
        image: what can be installed here; None if there is no image.
    """

    def __init__(self, sandbox: Sandbox, console: Console) -> None:
        self.sandbox = sandbox
        self.teller = Teller(sandbox, console)
        self.api = sandbox.plane.api
        self.left: dict[str, list[str]] = {}
        self.to_delete: dict[str, str] = {}
        self.image: ImageArchive | None = None
        self._ec2 = boto3.client(
            "ec2",
            region_name=sandbox.region,
            endpoint_url=sandbox.ec2_endpoint,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def close(self) -> None:
        """Close the connections to EC2."""
        self._ec2.close()

    def leave(self, kind: str, name: str) -> None:
        """Have the last chapter delete an object that no ``--all`` of its own covers."""
        self.left.setdefault(kind, []).append(name)

    async def items(self, path: str) -> list[Json]:
        """The objects of a collection."""
        items: list[Json] = (await self.api.get(path))["items"]
        return items

    async def bound(self, claim: str) -> Json | None:
        """A claim once it is Bound."""
        found: Json = await self.api.get(f"{CLAIMS}/{claim}")
        return found if found["status"].get("phase") == "Bound" else None

    async def is_ready(self, pod: str) -> bool:
        """Whether a pod's containers run."""
        status = (await self.api.get(f"{PODS}/{pod}"))["status"]
        said = {each["type"]: each["status"] for each in status.get("conditions", ())}
        return said.get("Ready") == "True"

    async def serves(self, group: str, kind: str) -> bool:
        """Whether the API server has a kind, by its name in the plural."""
        found = await self.api.get(f"/apis/{group}")
        return kind in {each["name"] for each in found["resources"]}

    async def volume(self, persistent_volume: str) -> Json:
        """What EC2 says of the volume that a persistent volume names, in either form."""
        spec = (await self.api.get(f"{PVS}/{persistent_volume}"))["spec"]
        named = spec["csi"]["volumeHandle"] if "csi" in spec else _in_tree_id(spec)
        answer = await asyncio.to_thread(self._ec2.describe_volumes, VolumeIds=[named])
        volume: Json = dict(answer["Volumes"][0])
        return volume

    async def volumes_of_the_cluster(self) -> list[str]:
        """The ids of all volumes with this cluster's tag."""
        tag = [self._tag_of_the_cluster()]
        answer = await asyncio.to_thread(self._ec2.describe_volumes, Filters=tag)
        return [volume["VolumeId"] for volume in answer["Volumes"]]

    async def snapshots_of_the_cluster(self) -> list[Json]:
        """All snapshots with this cluster's tag, as EC2 describes them."""
        tag = [self._tag_of_the_cluster()]
        answer = await asyncio.to_thread(
            self._ec2.describe_snapshots, Filters=tag, OwnerIds=["self"]
        )
        return [dict(each) for each in answer["Snapshots"]]

    def _tag_of_the_cluster(self) -> Json:
        key = f"tag:kubernetes.io/cluster/{self.sandbox.cluster_id}"
        return {"Name": key, "Values": ["owned"]}

    async def calls(self, action: str) -> int:
        """How often the strict EC2 was asked for an action, by anybody."""
        status, answer = await asyncio.to_thread(ask, self.sandbox.ec2_endpoint, "/_control")
        if status >= 400:  # noqa: PLR2004 -- HTTP's own
            raise SandboxError(f"the strict EC2 tells no counts: {answer.decode()}")
        return int(json.loads(answer)["calls"].get(action, 0))

    async def control(self, **settings: Any) -> None:
        """Set how the strict EC2 behaves, as its ``/_control`` has it.

        Raises:
            SandboxError: it refuses that.
        """
        body = json.dumps(settings).encode()
        status, answer = await asyncio.to_thread(ask, self.sandbox.ec2_endpoint, "/_control", body)
        if status >= 400:  # noqa: PLR2004 -- HTTP's own
            raise SandboxError(f"the strict EC2 refuses {settings}: {answer.decode()}")

    async def volume_made_by_hand(self, name: str, zone: str) -> str:
        """A volume that the user makes with the other tool; ``name`` is the story's."""
        made = await self.aws("create_volume", AvailabilityZone=zone, Size=8)
        volume = self.to_delete[name] = str(made["VolumeId"])

        async def available() -> bool:
            answer = await asyncio.to_thread(self._ec2.describe_volumes, VolumeIds=[volume])
            return bool(answer["Volumes"][0]["State"] == "available")

        # Until then EC2 refuses to delete it, too.
        await self.teller.until(f"{volume} is available", available)
        return volume

    async def aws(self, operation: str, **parameters: Any) -> Json:
        """What a user would do with the other tool.

        Raises:
            SandboxError: EC2 refused it.
        """
        options = "".join(
            f" --{re.sub('(?<=[a-z])(?=[A-Z])', '-', key).lower()} {value}"
            for key, value in parameters.items()
        )
        self.teller.console.print(f"[dim]$ aws ec2 {operation.replace('_', '-')}{options}[/]")
        try:
            answer: Json = await asyncio.to_thread(getattr(self._ec2, operation), **parameters)
        except ClientError as error:
            raise SandboxError(str(error)) from error
        return answer

    def show_tags(self, volume: Json, title: str = "") -> None:
        """Show a volume as EC2 describes it, with all its tags; what is none needs a ``title``."""
        title = title or (
            f"EC2: {volume['VolumeId']}, {volume['VolumeType']}, {volume['Size']} GiB, "
            f"{volume['AvailabilityZone']}, {volume['State']}"
        )
        table = Table(title=title, title_justify="left")
        table.add_column("tag", overflow="fold")
        table.add_column("value", overflow="fold")
        for tag in sorted(volume["Tags"], key=lambda t: str(t["Key"])):
            table.add_row(tag["Key"], tag["Value"])
        self.teller.console.print(table)


def is_owned(volume: Json) -> bool:
    """Whether the mark of a volume that nobody owns yet is off."""
    return all(tag["Key"] != UNCLAIMED for tag in volume["Tags"])


def _in_tree_id(spec: Json) -> str:
    return str(spec["awsElasticBlockStore"]["volumeID"]).rpartition("/")[2]
