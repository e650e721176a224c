"""The way in: one HTTP server, one event loop, calls kept alive.

aiohttp's low-level server instead of moto's werkzeug: it keeps connections open, sleeps without a
thread, and makes every call atomic. Each call is counted, throttled (before anything is done, as in
EC2), delayed, perhaps disturbed, and then carried out by our rules or, through WSGI, by moto.
"""

import asyncio
import json
import re
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import web

from provisioner.sandbox.strict_ec2 import control, roles, service_quotas
from provisioner.sandbox.strict_ec2.actions import ACTIONS
from provisioner.sandbox.strict_ec2.disk_changes import POINT_IN_TIME
from provisioner.sandbox.strict_ec2.errors import Ec2Error, throttled
from provisioner.sandbox.strict_ec2.faults import Fault, take
from provisioner.sandbox.strict_ec2.moto_door import MotoDoor, Reply
from provisioner.sandbox.strict_ec2.motos import ACCOUNT
from provisioner.sandbox.strict_ec2.world import World

_SCOPE: Final = re.compile(r"Credential=([^/,\s]+)/\d+/([^/]+)/([^/]+)/aws4_request")
_EC2_VERSION: Final = "2016-11-15"
_HTML: Final = Reply(
    500, "text/html", b"<html><body><h1>500 Internal Server Error</h1></body></html>"
)
_ERROR_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_POLL_MAX_S: Final = 60.0
_RESET: Final = struct.pack("ii", 1, 0)


class Front:
    """Answers HTTP for one world."""

    def __init__(self, world: World, moto: MotoDoor) -> None:
        self._world = world
        self._moto = moto
        self._released = asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        body = await request.read()
        if request.path == "/_control":
            return self._control(request, body)
        if request.path == "/_disks":
            return await self._disk_changes(request)
        scope = _SCOPE.search(request.headers.get("Authorization", ""))
        flat = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        action = flat.get("Action", "")
        is_ec2 = flat.get("Version") == _EC2_VERSION
        if not is_ec2:
            reply = self._beside_ec2(request, body, flat, scope)
            if request.path == "/moto-api/reset":
                self._reset_world()
            return _response(reply)
        if scope is None:
            denied = "AWS was not able to validate the provided access credentials"
            return _response(_refusal(Ec2Error("AuthFailure", denied, status=401)))
        key, region = scope[1], scope[2]
        if code := self._world.settings.refused_keys.get(key):
            refused = "The security token included in the request is not accepted"
            return _response(_refusal(Ec2Error(code, refused, status=401)))
        act = partial(self._act, request, body, action, flat, (self._account(key), region))
        return _response(await self._ec2(request, action, flat, (key, region), act))

    def _beside_ec2(
        self,
        request: web.BaseRequest,
        body: bytes,
        flat: dict[str, str],
        scope: re.Match[str] | None,
    ) -> Reply:
        """Answer for another service: STS, IAM, KMS, Service Quotas, and moto's own door."""
        target = request.headers.get("X-Amz-Target", "")
        if target.startswith(service_quotas.TARGET):
            quotas, region = self._world.settings.quotas, scope[2] if scope else ""
            status, text = service_quotas.answer(target, body, quotas, region)
            return Reply(status, "application/x-amz-json-1.1", text)
        refused = roles.refusal(flat, self._account(scope[1] if scope else ""))
        if refused is not None:
            return Reply(roles.STATUS, "text/xml", refused)
        return self._moto.answer(request, body)

    def _account(self, key: str) -> str:
        return self._world.settings.accounts.get(key, ACCOUNT)

    def _act(
        self,
        request: web.BaseRequest,
        body: bytes,
        action: str,
        flat: dict[str, str],
        place: tuple[str, str],
    ) -> Reply:
        self._world.advance()
        account, region = place
        if action in ACTIONS and not self._moto.enforces_iam():
            return self._moto.by_rule(self._world, account, action, flat, region)
        return self._moto.answer(request, body, account=account, ec2=True)

    async def _ec2(
        self,
        request: web.BaseRequest,
        action: str,
        flat: dict[str, str],
        scope: tuple[str, str],
        act: Callable[[], Reply],
    ) -> Reply:
        world = self._world
        key, region = scope
        world.calls[action] += 1
        entry: dict[str, Any] | None = None
        if world.settings.log:
            entry = {"at_s": world.now_s(), "action": action, "key": key, "params": flat}
            entry["outcome"] = "pending"
            world.log.append(entry)
        filtered = any(key.startswith("Filter.") for key in flat) or "MaxResults" in flat
        admitted = world.settings.throttle.admit(
            action,
            filtered=filtered or not action.startswith("Describe"),
            scope=region,
            now_s=world.now_s(),
        )
        epoch = world.epoch
        await self._sleep()
        if world.epoch is not epoch:
            # A reset came in between: this call belongs to a world that is gone.
            _reset(request)
            return _HTML
        if admitted:
            reply, outcome = await self._disturbed(request, action, flat, key, act)
        else:
            world.throttled[action] += 1
            reply, outcome = _refusal(throttled()), "RequestLimitExceeded"
        if entry is not None:
            entry["outcome"], entry["took_s"] = outcome, world.now_s() - entry["at_s"]
        return reply

    async def _sleep(self) -> None:
        least_s, most_s = self._world.settings.latency_s
        if most_s > 0:
            await asyncio.sleep(self._world.random.uniform(least_s, most_s))

    async def _disturbed(
        self,
        request: web.BaseRequest,
        action: str,
        flat: dict[str, str],
        key: str,
        act: Callable[[], Reply],
    ) -> tuple[Reply, str]:
        fault = take(self._world.settings.faults, action, flat, key)
        if fault is not None:
            self._world.faulted[action] += 1
        if fault is not None and fault.when == "before" and fault.do != "delay":
            return await self._fail(request, fault), f"fault:{fault.do}"
        if fault is not None and fault.do == "delay" and fault.when == "before":
            await self._wait(fault.delay_s)
        reply = act()
        outcome = self._count_error(action, reply)
        if action in POINT_IN_TIME and outcome == "ok":
            await self._world.disks.carried_out()
        if fault is not None and fault.when == "after":
            if fault.do == "delay":
                await self._wait(fault.delay_s)
            else:
                return await self._fail(request, fault), f"{outcome}, fault:{fault.do}"
        return reply, outcome

    def _count_error(self, action: str, reply: Reply) -> str:
        if reply.status < 400:  # noqa: PLR2004 (HTTP)
            return "ok"
        found = _ERROR_CODE.search(reply.body.decode(errors="replace"))
        code = found[1] if found else str(reply.status)
        self._world.errors[f"{action}:{code}"] += 1
        return code

    async def _fail(self, request: web.BaseRequest, fault: Fault) -> Reply:
        match fault.do:
            case "error":
                return _refusal(Ec2Error(fault.code, fault.message, fault.http_status))
            case "html":
                return _HTML
            case "hang":
                await self._wait(self._world.settings.hang_max_s)
        _reset(request)
        return _HTML

    async def _wait(self, seconds: float) -> None:
        """Wait, at most until the next reset."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._released.wait(), seconds)

    def _control(self, request: web.BaseRequest, body: bytes) -> web.Response:
        try:
            if request.method == "POST":
                document = json.loads(body or b"{}")
                if document.get("reset"):
                    self._reset_world()
                control.apply(self._world, document)
        except (ValueError, TypeError, AttributeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        self._world.advance()
        report = control.report(self._world, request.query)
        report.update(self._moto.states())
        return web.json_response(report)

    async def _disk_changes(self, request: web.BaseRequest) -> web.Response:
        """Answer a long poll: what is due happens meanwhile, as if somebody asked for it."""
        world = self._world
        if request.method == "DELETE":
            world.disks.left()
            return web.json_response({})
        try:
            after = int(request.query.get("after", "0"))
            until_s = time.monotonic() + min(float(request.query.get("wait_s", "0")), _POLL_MAX_S)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        # Once, not at each turn: a follower may leave meanwhile, and its question, which nobody
        # hears any more, would make it one for ever.
        world.disks.asked(after)
        while True:
            world.advance()
            changes = world.disks.since(after)
            left_s = until_s - time.monotonic()
            if changes or left_s <= 0 or not world.disks.is_followed:
                return web.json_response({"last": world.disks.last, "changes": changes})
            await world.disks.wait(min(left_s, world.due_in_s()))

    def _reset_world(self) -> None:
        self._released.set()
        self._released = asyncio.Event()
        self._moto.reset()
        self._world.reset()


def _refusal(error: Ec2Error) -> Reply:
    return Reply(error.status, "text/xml", error.xml().encode())


def _response(reply: Reply) -> web.Response:
    return web.Response(
        status=reply.status, body=reply.body, headers={"Content-Type": reply.content_type}
    )


def _reset(request: web.BaseRequest) -> None:
    """Tear the connection down so that the client reads ECONNRESET, not an end of file."""
    transport = request.transport
    if transport is None:
        return
    tcp = transport.get_extra_info("socket")
    if tcp is not None:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
