"""A front with TLS of its own, and clients that speak to it properly and badly."""

import asyncio
import datetime as dt
import io
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import aiohttp
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from webhook.metrics import WebhookMetrics
from webhook.model.review import Answer, Handler, Json, Request, allow
from webhook.serving.dispatch import Dispatcher
from webhook.serving.server import Front, Limits, Rounds
from webhook.settings import Callers

PODS = "/validate/pods"
VOLUMES = "/mutate/persistentvolumes"


@dataclass(frozen=True)
class Contexts:
    server: ssl.SSLContext
    client: ssl.SSLContext


@cache
def contexts() -> Contexts:
    """A certificate for 127.0.0.1, signed by itself, for the server; and trust in it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "front")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = os.memfd_create("pair")
    os.write(file, secret + pem)
    server.load_cert_chain(f"/proc/self/fd/{file}")
    os.close(file)
    return Contexts(server, ssl.create_default_context(cadata=pem.decode()))


@dataclass(frozen=True)
class Got:
    """A complete HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def read_answer(reader: asyncio.StreamReader) -> Got:
    """Read one answer; raises IncompleteReadError for a part of one."""
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
    return Got(int(first.split(" ")[1]), headers, body)


def raw(body: bytes, *, path: str = f"{PODS}?timeout=5s", **headers: str) -> bytes:
    """A POST as its bytes; ``content_length="9"`` sets or overrides a header."""
    given = {"host": "it", "content-type": "application/json", "content-length": str(len(body))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def until(holds: Callable[[], object], within_s: float = 10.0) -> None:
    """Wait until something holds that has no event."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 -- see above
            await asyncio.sleep(0.002)


def later(seconds: float) -> None:
    """Let it be so much later, for all who go by the loop's clock.

    So a test holds that an interval has passed, or has not, however slow the machine is.
    """
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds  # type: ignore[method-assign]


async def fine(_: Request, __: float) -> Answer:
    return allow("Fine")


@dataclass(frozen=True)
class World:
    """A front that listens, and what it counts."""

    front: Front
    metrics: WebhookMetrics
    session: aiohttp.ClientSession
    serving: asyncio.Task[None] | None = None

    def url(self, path: str = PODS, timeout: str = "5s") -> str:
        return f"https://127.0.0.1:{self.front.port}{path}?timeout={timeout}"

    async def post(self, body: bytes | Json, path: str = PODS, **options: Any) -> tuple[int, bytes]:
        data = io.BytesIO(body if isinstance(body, bytes) else msgspec.json.encode(body))
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        async with self.session.post(
            options.pop("url", self.url(path)), data=data, headers=headers, **options
        ) as response:
            return response.status, await response.read()

    async def ask(self, body: Json, path: str = PODS) -> Json:
        """What a review is answered, when it is answered as one."""
        status, answer = await self.post(body, path)
        assert status == 200, answer
        response: Json = msgspec.json.decode(answer)["response"]
        return response

    @asynccontextmanager
    async def wire(
        self, *, tls: bool = True, peer: str = "127.0.0.1"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection on which to write anything, from an address."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.front.port,
            ssl=contexts().client if tls else None,
            local_addr=(peer, 0),
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"ebs_webhook_{name}", labels) or 0.0


@asynccontextmanager
async def world(
    handler: Handler = fine,
    *,
    limits: Limits | None = None,
    handlers: Mapping[str, Handler] | None = None,
    stop: asyncio.Event | None = None,
    listen: str = "127.0.0.1:0",
    strict: bool = False,
    callers: Callers | None = None,
    rounds: Rounds | None = None,
) -> AsyncIterator[World]:
    """A front in its context; or, given ``stop``, one that serves until then."""
    metrics = WebhookMetrics()
    both = {PODS: handler, VOLUMES: handler}
    dispatcher = Dispatcher(handlers or both, strict=strict, metrics=metrics)
    front = Front(
        dispatcher,
        contexts().server,
        listen=listen,
        metrics=metrics,
        limits=limits,
        callers=callers,
        rounds=rounds,
    )
    timeout = aiohttp.ClientTimeout(total=10)
    connector = aiohttp.TCPConnector(ssl=contexts().client, limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        if stop is None:
            async with front:
                yield World(front, metrics, session)
            return
        serving = asyncio.create_task(front.serve(stop))
        try:
            await until(lambda: not front.problem())
            yield World(front, metrics, session, serving)
        finally:
            serving.cancel()
            await asyncio.wait([serving])


def review(
    resource: str = "pods", uid: str = "u-1", operation: str = "CREATE", **request: Any
) -> Json:
    group, _, plural = resource.rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "operation": operation,
            "resource": {"group": group, "version": "v1", "resource": plural},
            "object": {"metadata": {"name": "it"}},
            **request,
        },
    }


BODY = msgspec.json.encode(review())
CLIENT_HELLO_HALF = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


class Gate:
    """A handler that waits until it is opened."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, _: Request, __: float) -> Answer:
        self.begun.set()
        await self.open.wait()
        return allow("Fine")


async def asked(wire: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> int:
    reader, writer = wire
    writer.write(raw(BODY))
    return (await read_answer(reader)).status
