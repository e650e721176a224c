"""An instance metadata service for a node of the sandbox: version 2 only, and strict about it.

Source: EC2 user guide "Use the Instance Metadata Service to access instance metadata": a PUT with
a time to live gives a token, a GET without a valid one is 401, anything forwarded by a proxy 403.
"""

import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

_MOST_TTL_S = 21600
_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 -- a header's name


@dataclass
class InstanceMetadata:
    """What one instance's service tells; change it while it is served.

    Attributes:
        instance_id, instance_type, zone: of the identity document.
        macs: one for each network interface.
        block_devices: device names by the names of the mapping ("root", "ebs1").
        outpost_arn: "" for none.
        is_on: whether the service answers at all but with 403 (HttpEndpoint).
        clock: seconds, for the tokens.
    """

    instance_id: str
    instance_type: str
    zone: str
    macs: list[str] = field(default_factory=lambda: ["02:00:00:00:00:01"])
    block_devices: dict[str, str] = field(default_factory=lambda: {"root": "/dev/xvda"})
    outpost_arn: str = ""
    is_on: bool = True
    clock: float | None = None
    tokens: dict[str, float] = field(default_factory=dict)

    def forget_tokens(self) -> None:
        """As if the instance had been stopped and started."""
        self.tokens.clear()

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        if not self.is_on or "X-Forwarded-For" in request.headers:
            return web.Response(status=403)
        path = request.path.removeprefix("/latest/")
        if request.method == "PUT" and path == "api/token":
            return self._new_token(request.headers.get(_TTL, ""))
        if request.method != "GET":
            return web.Response(status=405)
        if self._now() >= self.tokens.get(request.headers.get(_TOKEN, ""), 0.0):
            return web.Response(status=401)
        text = self._documents().get(path)
        return web.Response(status=404) if text is None else web.Response(text=text)

    def _new_token(self, ttl: str) -> web.Response:
        if not ttl.isdecimal() or not 1 <= int(ttl) <= _MOST_TTL_S:
            return web.Response(status=400)
        token = secrets.token_urlsafe(32)
        self.tokens[token] = self._now() + int(ttl)
        return web.Response(text=token, headers={_TTL: ttl})

    def _documents(self) -> dict[str, str]:
        document = {
            "instanceId": self.instance_id,
            "instanceType": self.instance_type,
            "availabilityZone": self.zone,
            "region": self.zone.rstrip("abcdef"),
            "version": "2017-09-30",
        }
        mapping = "meta-data/block-device-mapping/"
        documents = {
            "dynamic/instance-identity/document": json.dumps(document, indent=2),
            "meta-data/instance-id": self.instance_id,
            "meta-data/placement/availability-zone/": self.zone,
            "meta-data/network/interfaces/macs/": "\n".join(f"{mac}/" for mac in self.macs),
            mapping: "\n".join(self.block_devices),
            **{f"{mapping}{name}": device for name, device in self.block_devices.items()},
        }
        return documents | ({"meta-data/outpost-arn": self.outpost_arn} if self.outpost_arn else {})

    def _now(self) -> float:
        return time.monotonic() if self.clock is None else self.clock


@asynccontextmanager
async def serving(
    metadata: InstanceMetadata,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    listener: socket.socket | None = None,
) -> AsyncIterator[str]:
    """Serve until the context ends; gives the URL for AWS_EC2_METADATA_SERVICE_ENDPOINT.

    Args:
        metadata: what is served.
        host: where, if there is no ``listener``.
        port: the same; 0 takes a free one.
        listener: a socket that listens already.
    """
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", metadata.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        if listener is None:
            await web.TCPSite(runner, host, port).start()
        else:
            await web.SockSite(runner, listener).start()
        address, taken, *_ = runner.addresses[0]
        yield f"http://{address}:{taken}"
    finally:
        await runner.cleanup()
