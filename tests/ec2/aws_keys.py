"""Where AWS credentials come from: an instance metadata service with a role, and an STS.

Both on one port of the loopback, strict as AWS's own, and slow, absent or wrong as they are told.
Sources: EC2 user guide "Retrieve security credentials from instance metadata"; STS API reference
AssumeRoleWithWebIdentity (read 2026-11-22).

``/_control``: ``GET`` tells how often each was asked; ``POST`` of a JSON object sets any of
``Trouble``'s fields, and ``reset: true`` all of them and the counts.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

from aiohttp import web

from provisioner.sandbox.real_node.imds import InstanceMetadata

ROLE = "ebs-provisioner"
_ROLES = "meta-data/iam/security-credentials/"
_STS = "https://sts.amazonaws.com/doc/2011-06-15/"
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass
class Trouble:
    """What is wrong with them; nothing at first.

    Attributes:
        absent: connections are torn down, as by a machine where nothing listens.
        token_delay_s: the metadata service takes so long over each of the next ``slow_tokens``.
        slow_tokens: how many; -1 for all.
        hop_limit: the token's packet gets lost on its way to a pod: no PUT is ever answered.
        has_role: whether the instance has one.
        sts_delay_s: STS takes so long.
        sts_denies: STS refuses to have the role assumed.
        lifetime_s: of the keys that both give out; they may have expired already.
        key_id: of these keys.
    """

    absent: bool = False
    token_delay_s: float = 0.0
    slow_tokens: int = -1
    hop_limit: bool = False
    has_role: bool = True
    sts_delay_s: float = 0.0
    sts_denies: bool = False
    lifetime_s: float = 6 * 3600.0
    key_id: str = "ASIAIOSFODNN7EXAMPLE"


class AwsKeys:
    """Both services of one instance; change ``trouble`` and read ``asked`` while it serves."""

    def __init__(self, zone: str = "us-east-1a") -> None:
        self._instance = InstanceMetadata("i-0123456789abcdef0", "m5.large", zone)
        self.trouble = Trouble()
        self.asked: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if request.path == "/_control":
            return await self._control(request)
        if self.trouble.absent:
            return _torn_down(request)
        if request.path.startswith("/latest/"):
            return await self._metadata(request)
        return await self._sts(request)

    async def _control(self, request: web.Request) -> web.Response:
        document = await request.json() if request.method == "POST" else {}
        if document.pop("reset", False):
            self.trouble = Trouble()
            self.asked.clear()
        unknown = document.keys() - {field.name for field in fields(Trouble)}
        if unknown:
            error = f"unknown control keys: {', '.join(sorted(unknown))}"
            return web.json_response({"error": error}, status=400)
        for name, value in document.items():
            setattr(self.trouble, name, value)
        return web.json_response({"asked": self.asked})

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        trouble = self.trouble
        if request.method == "PUT":
            self.asked["PUT token"] += 1
            if trouble.hop_limit:
                await asyncio.Event().wait()
            if trouble.slow_tokens:
                trouble.slow_tokens -= 1
                await asyncio.sleep(trouble.token_delay_s)
            return await self._instance.answer(request)
        self.asked["GET metadata"] += 1
        found = await self._instance.answer(request)
        path = request.path.removeprefix("/latest/")
        if found.status != 404 or not trouble.has_role:
            return found
        if path == _ROLES:
            return web.Response(text=ROLE)
        if path == _ROLES + ROLE:
            return web.json_response({"Code": "Success", "Type": "AWS-HMAC", **self._keys("Token")})
        return found

    def _keys(self, token: str) -> dict[str, str]:
        until = datetime.now(UTC) + timedelta(seconds=self.trouble.lifetime_s)
        return {
            "AccessKeyId": self.trouble.key_id,
            "SecretAccessKey": "secret",
            token: "session",
            "Expiration": until.strftime(_MOMENT),
        }

    async def _sts(self, request: web.Request) -> web.Response:
        asked = await request.post()
        action = str(asked.get("Action"))
        self.asked[action] += 1
        await asyncio.sleep(self.trouble.sts_delay_s)
        if action != "AssumeRoleWithWebIdentity" or self.trouble.sts_denies:
            why = f"Not authorized to perform sts:{action}"
            return _xml(
                "ErrorResponse",
                f"<Error><Type>Sender</Type><Code>AccessDenied</Code><Message>{escape(why)}"
                "</Message></Error><RequestId>1</RequestId>",
                status=403,
            )
        keys = "".join(f"<{k}>{v}</{k}>" for k, v in self._keys("SessionToken").items())
        role = escape(str(asked.get("RoleArn")))
        user = f"<Arn>{role}</Arn><AssumedRoleId>AROA:session</AssumedRoleId>"
        result = f"<Credentials>{keys}</Credentials><AssumedRoleUser>{user}</AssumedRoleUser>"
        return _xml(
            f"{action}Response",
            f"<{action}Result>{result}</{action}Result>"
            "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>",
        )


@asynccontextmanager
async def serving(keys: AwsKeys, *, port: int = 0) -> AsyncIterator[str]:
    """Serve until the context ends; gives the URL.

    It is for AWS_EC2_METADATA_SERVICE_ENDPOINT (with a slash at its end) and AWS_ENDPOINT_URL_STS.
    """
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", keys.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _xml(name: str, content: str, *, status: int = 200) -> web.Response:
    text = f'<{name} xmlns="{_STS}">{content}</{name}>'
    return web.Response(text=text, status=status, content_type="text/xml")


def _torn_down(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)
