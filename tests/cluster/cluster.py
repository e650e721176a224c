"""The session's sandbox with a running controller in it, as tests see and disturb it."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from provisioner.sandbox import nodes
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.control_plane import pause_s
from provisioner.sandbox.strict_ec2.client import ask
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from provisioner.sandbox.up import Sandbox
from tests.cluster import epochs
from tests.cluster.background import Background
from tests.sandbox import lab

Json = dict[str, Any]
T = TypeVar("T")

PATIENCE_S = 90.0
"""A story waits for an end, not for a speed, and checks run on busy machines."""
_LEAST_PAUSE_S = 0.2
PVS = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
ATTRIBUTES_CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
NODES = "/api/v1/nodes"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class Cluster:
    """The sandbox with a controller in it, seen from a test's event loop."""

    def __init__(self, background: Background, api: Api) -> None:
        self.background = background
        self.api = api
        self.ec2 = lab.client(self.sandbox.ec2_endpoint)
        self.probes = ""  # where the controller's metrics are
        self._log_from = 0
        self.began_at = time.time()

    @property
    def sandbox(self) -> Sandbox:
        return self.background.sandbox

    @property
    def _log(self) -> Path:
        return self.sandbox.crew.logs / "controller.log"

    async def start(self, *options: str) -> None:
        """Run the controller, and wait until it leads.

        What is made before that is another leader's: for a minute it may have a call under way.
        """
        options = ("--log-format", "json", *options)
        self.probes = await self.background.call(self.sandbox.start_controller(*options))
        await self.background.call(self.sandbox.elected(self.probes))

    async def stop(self, grace_s: float = 0.0) -> None:
        """Kill the controller, or give it time to end."""
        await self.background.call(self.sandbox.stop_controller(grace_s))

    def log(self) -> list[Json]:
        """What the controller has said since this module began, one record a line."""
        text = self._log.read_text() if self._log.exists() else ""
        lines = text[self._log_from :].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def said(self, *words: str) -> list[Json]:
        """The log lines that hold all of these words."""
        return [each for each in self.log() if all(word in json.dumps(each) for word in words)]

    def forget_log(self) -> None:
        self._log_from = len(self._log.read_text()) if self._log.exists() else 0

    async def control(self, **document: Any) -> Json:
        """Tell the strict EC2 something; its report."""
        return await self._ask("/_control", json.dumps(document).encode())

    async def calls(self, about: str, action: str = "*") -> list[Json]:
        """The EC2 calls with this value among their parameters, oldest first."""
        query = urlencode({"log": 1, "about": about})
        log: list[Json] = (await self._ask(f"/_control?{query}"))["log"]
        return [each for each in log if fnmatch.fnmatchcase(each["action"], action)]

    async def fault(self, action: str, do: str = "error", **rule: Any) -> None:
        """Disturb some of the next calls; ``match`` keeps it to one story's."""
        await self.control(faults=[{"action": action, "do": do, **rule}])

    async def _ask(self, path: str, body: bytes | None = None) -> Json:
        status, reply = await asyncio.to_thread(ask, self.sandbox.ec2_endpoint, path, body)
        document: Json = json.loads(reply)
        assert status < 400, document
        return document

    async def volume(self, volume_id: str) -> Json | None:
        """A volume as EC2 shows it; None when there is none."""
        # By a filter without a page size: so calm.py tells it from what the controller asks.
        wanted = [{"Name": "volume-id", "Values": [volume_id]}]
        found = await asyncio.to_thread(self.ec2.describe_volumes, Filters=wanted)
        return next((dict(each) for each in found["Volumes"]), None)

    async def volumes_tagged(self, key: str, value: str) -> list[str]:
        wanted = [{"Name": f"tag:{key}", "Values": [value]}]
        found = await asyncio.to_thread(self.ec2.describe_volumes, Filters=wanted)
        return [each["VolumeId"] for each in found["Volumes"] if each["State"] != "deleting"]

    async def get(self, path: str) -> Json | None:
        """An object, None when there is none."""
        try:
            found: Json = await self.api.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def until(
        self,
        what: str,
        look: Callable[[], Awaitable[T | None]],
        timeout_s: float = PATIENCE_S,
    ) -> T:
        """Look until there is something to see; the failure quotes the controller."""
        began_s = time.monotonic()
        while not (seen := await look()):
            waited_s = time.monotonic() - began_s
            if waited_s > timeout_s:
                tail = "\n".join(json.dumps(each) for each in self.log()[-15:])
                raise AssertionError(f"not seen in {timeout_s:.0f} s: {what}\n{tail}")
            await asyncio.sleep(pause_s(waited_s, _LEAST_PAUSE_S))
        return seen

    def instance(self, zone: str = "us-east-1a", number: int = 0) -> Instance:
        """One of the sandbox's own nodes."""
        return [each for each in self.sandbox.instances if each.zone == zone][number]

    @contextlib.asynccontextmanager
    async def extra_node(self, zone: str = "us-east-1a") -> AsyncIterator[Instance]:
        """A node that a story may spoil; no pod comes there by itself."""
        made = await asyncio.to_thread(make_instances, self.sandbox.ec2_endpoint, 1, [zone])
        await nodes.add(self.api, made)
        name = made[0].private_dns_name
        await self.api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
        try:
            yield made[0]
        finally:
            for path in (f"{NODES}/{name}", f"{CSI_NODES}/{name}"):
                with contextlib.suppress(ApiError):
                    await self.api.delete(path)


def token_of(claim: Json) -> str:
    """The client token that the stock driver uses for a claim."""
    return hashlib.sha256(f"pvc-{claim['metadata']['uid']}".encode()).hexdigest()


def handle_of(pv: Json) -> str:
    return str(pv["spec"]["csi"]["volumeHandle"])


@contextlib.asynccontextmanager
async def opened(background: Background, *options: str) -> AsyncIterator[Cluster]:
    """Run the controller for the tests of a module."""
    plane = background.sandbox.plane
    authority, token = plane.credentials.authority, plane.credentials.tokens["admin"]
    async with Api(plane.server, authority, token) as api:
        cluster = Cluster(background, api)
        if background.sandbox.controller_kubeconfig is None:
            await background.call(background.sandbox.install_controller())
        cluster.forget_log()
        # After a holder that is not one of ours, claims are in doubt for a minute, and rightly so.
        await epochs.of_ours(api)
        # A module before this one may have moved EC2's clock on, and ours is to be the same.
        await cluster.control(advance_s=None, log=True, faults=None, reset_counts=True)
        await cluster.start(*options)
        try:
            yield cluster
            bugs = cluster.said("handler failed") + cluster.said("Traceback")
            assert not bugs, bugs[:3]
        finally:
            await cluster.stop(grace_s=10)
