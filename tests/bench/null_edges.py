"""The null controller's edges: raw requests, raw watches, boto3 in threads, one describer."""

import asyncio
import functools
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml
from botocore.exceptions import ClientError

from provisioner.ec2.batches import chunks
from provisioner.ec2.botocore_client import connect
from provisioner.model.volume import Volume
from tests.bench.null_bodies import MARK, Json

AT_ONCE = 64  # as the product has it, for both servers
GATHER_S = 0.25
INSTANCES_FRESH_S = 2.0
INSTANCES_PER_CALL = 100
IDS_PER_CALL = 500


class Kube:
    """Raw requests and watches."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = cluster["certificate-authority"]
        context = ssl.create_default_context(cafile=str(kubeconfig.parent / authority))
        self._session = aiohttp.ClientSession(
            cluster["server"],
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {user['token']}"},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**18,
        )
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def send(self, method: str, path: str, body: Any, kind: str = "application/json") -> None:
        """One write; its answer is read and thrown away."""
        data, headers = msgspec.json.encode(body), {"Content-Type": kind}
        async with (
            self._turns,
            self._session.request(method, path, data=data, headers=headers) as reply,
        ):
            answer = await reply.read()
        if not reply.ok and reply.status not in {404, 409}:
            raise RuntimeError(f"{method} {path}: {reply.status} {answer[:300]!r}")

    async def changes(self, path: str) -> AsyncIterator[tuple[str, Json]]:
        """All objects, then their changes, for ever."""
        version = "0"
        while True:
            query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
            with suppress(aiohttp.ClientError):
                async with self._session.get(path, params=query) as reply:
                    reply.raise_for_status()
                    async for text in reply.content:
                        line = msgspec.json.decode(text)
                        version = line["object"]["metadata"]["resourceVersion"]
                        if line["type"] != "BOOKMARK":
                            yield line["type"], line["object"]


class Ec2:
    """Calls in threads; one describer and one remover of marks for all volumes."""

    def __init__(self) -> None:
        self._client: Any = connect(region=None, endpoint=None, at_once=AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._watched: dict[
            str, tuple[float, Callable[[Volume], bool], asyncio.Future[Volume]]
        ] = {}
        self._marked: list[str] = []
        self._instances: set[str] = set()
        self._looked_at: dict[str, float] = defaultdict(float)
        self._looking: asyncio.Task[None] | None = None

    async def call(self, name: str, **params: Any) -> Any:
        """One call, again while it is throttled."""
        call = functools.partial(getattr(self._client, name), **params)
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._threads, call)
            except ClientError as error:
                if error.response["Error"]["Code"] != "RequestLimitExceeded":
                    raise
                await asyncio.sleep(0.5)

    async def until(
        self, volume_id: str, after_s: float, is_so: Callable[[Volume], bool]
    ) -> Volume:
        """A description of the volume that is as wanted."""
        seen: asyncio.Future[Volume] = asyncio.get_running_loop().create_future()
        self._watched[volume_id] = (time.monotonic() + after_s, is_so, seen)
        return await seen

    async def describe(self) -> None:
        """At most one call a second for each started 500 volumes, the longest due first."""
        while True:
            await asyncio.sleep(1.0 / max(1, -(-len(self._watched) // IDS_PER_CALL)))
            now = time.monotonic()
            due = sorted((at, volume) for volume, (at, _, _) in self._watched.items() if at <= now)
            ids = [volume for _, volume in due[:IDS_PER_CALL]]
            if not ids:
                continue
            for volume in (await self.call("describe_volumes", VolumeIds=ids))["Volumes"]:
                _, is_so, seen = self._watched.pop(volume.volume_id)
                if is_so(volume):
                    seen.set_result(volume)
                else:
                    self._watched[volume.volume_id] = (now + 0.5, is_so, seen)

    def unmark(self, volume_id: str) -> None:
        """Take the mark off, with others."""
        self._marked.append(volume_id)

    async def remove_marks(self) -> None:
        """One DeleteTags for all of a quarter of a second."""
        while True:
            await asyncio.sleep(GATHER_S)
            batch, self._marked = self._marked[:IDS_PER_CALL], self._marked[IDS_PER_CALL:]
            if batch:
                await self.call("delete_tags", Resources=batch, Tags=[{"Key": MARK}])

    async def look_at(self, instance: str) -> None:
        """Have an instance described that was not in the last two seconds, with others."""
        while time.monotonic() - self._looked_at[instance] >= INSTANCES_FRESH_S:
            self._instances.add(instance)
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            await asyncio.shield(self._looking)

    async def _look(self) -> None:
        await asyncio.sleep(0.05)
        ids, self._instances = sorted(self._instances), set()
        for batch in chunks(ids, INSTANCES_PER_CALL):
            await self.call("describe_instances", InstanceIds=batch)
        self._looked_at.update(dict.fromkeys(ids, time.monotonic()))
