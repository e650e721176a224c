"""Objects put straight into etcd, as JSON: a hundred thousand in a minute.

The API server stores protobuf and reads JSON as well (apimachinery, pkg/runtime/serializer,
``UniversalDeserializer``: each serializer recognizes its own). It must not run meanwhile.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import aiohttp
import msgspec

from tests.bench.hands import BenchError

_A_TXN = 100  # etcd takes 128 operations, and 1.5 MiB, in one (--max-txn-ops, --max-request-bytes)
_AT_ONCE = 4
_TIMEOUT = aiohttp.ClientTimeout(total=60)


def transactions(stored: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """Bodies for etcd's JSON gateway, each with as many objects as it takes at once."""
    left = iter(stored)
    while some := list(islice(left, _A_TXN)):
        puts = [
            {"requestPut": {"key": key.encode(), "value": msgspec.json.encode(body)}}
            for key, body in some
        ]
        yield msgspec.json.encode({"success": puts})  # bytes as base64, as the gateway wants them


async def load(port: int, stored: Iterable[tuple[str, Any]]) -> None:
    """Put all of it into the etcd at a port of this machine.

    Raises:
        BenchError: etcd refuses some of it.
    """
    bodies = transactions(stored)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=_TIMEOUT) as session:

        async def put() -> None:
            for body in bodies:
                async with session.post("/v3/kv/txn", data=body) as reply:
                    if not reply.ok:
                        raise BenchError(f"etcd: {reply.status} {await reply.text()}")

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(put())
