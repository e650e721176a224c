"""A replica that keeps its certificates and answers every review, and dies at one numbered request.

``python -m tests.cluster.mortal_keeper`` imports the product once and then forks a child for each
order on its standard input. A child is the product's ``Rotation`` and its ``Contexts`` on a real
wire; of the rest of the webhook it has only an answer, "yes", on a connection that it then closes,
so that every review is a handshake of its own.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner import logs
from provisioner.kube.client import KubeClient, Transport
from provisioner.kube.credentials import Credentials
from provisioner.kube.failures import Attempt
from webhook.certificates.flow import Rotation
from webhook.certificates.issuing import Names
from webhook.certificates.rotation_rules import Waits
from webhook.certificates.tls import Contexts
from webhook.certificates.tls_secret import TlsSecret
from webhook.certificates.webhook_configurations import Configurations
from webhook.metrics import WebhookMetrics
from webhook.model import review

BEFORE, AFTER = "dies before the send", "dies before the reply"
_CHANGES = frozenset({"POST", "PATCH", "PUT", "DELETE"})
_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One life.

    Attributes:
        port: where it listens on 127.0.0.1, perhaps beside others.
        registration: name of both configurations; "" if they and the Secret are somebody else's.
        off_s: how far its wall clock is off.
        at: label of the request ("PATCH secrets #1") at which its fate comes, "" for a long life.
    """

    kubeconfig: str
    namespace: str
    secret: str
    registration: str
    port: int
    log: str
    ready: str
    dns: tuple[str, ...] = ()
    waits: dict[str, float] = field(default_factory=dict)
    off_s: float = 0.0
    at: str = ""
    fate: str = ""

    def encode(self) -> bytes:
        """As the nursery reads it."""
        return json.dumps(asdict(self)).encode() + b"\n"


class MortalTransport(Transport):
    """The product's transport, which kills its own process at the ordered request."""

    def __init__(self, credentials: Credentials, order: Order) -> None:
        super().__init__(credentials)
        self._order = order
        self._seen: Counter[str] = Counter()

    async def send(self, attempt: Attempt, method: str, path: str, **options: Any) -> bytes:
        """One request, if we live to send it."""
        if method not in _CHANGES:
            return await super().send(attempt, method, path, **options)
        what = f"{method} {attempt.target.partition(' ')[0]}"
        self._seen[what] += 1
        fate = self._order.fate if f"{what} #{self._seen[what]}" == self._order.at else ""
        if fate == BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)
        data = await super().send(attempt, method, path, **options)
        if fate == AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
        return data


async def live(order: Order) -> None:
    """One life."""
    credentials = Credentials(order.kubeconfig, None)
    await credentials.load()
    contexts, off = Contexts(), timedelta(seconds=order.off_s)
    async with KubeClient(MortalTransport(credentials, order)) as client:
        configurations = Configurations(client, name=order.registration)
        rotation = Rotation(
            TlsSecret(client, namespace=order.namespace, name=order.secret),
            contexts,
            WebhookMetrics(),
            names=Names(dns=tuple(order.dns), ips=("127.0.0.1",)),
            registration=configurations if order.registration else None,
            waits=Waits(**order.waits),
            now=lambda: datetime.now(UTC) + off,
        )
        keeping = asyncio.create_task(rotation.run())
        runner = web.AppRunner(_answering(), access_log=None)
        await runner.setup()
        site = web.TCPSite(
            runner, "127.0.0.1", order.port, ssl_context=contexts.front, reuse_port=True
        )
        # Only now: where two share a port, the one that has no certificate must get no connection.
        await rotation.ready.wait()
        await site.start()
        _note(order.ready)
        await keeping


def _note(ready: str) -> None:
    Path(ready).touch()


def _answering() -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        asked = review.decode(await request.read(), dict)
        response = web.Response(
            body=review.encode(asked.uid, review.allow("Fine")), content_type="application/json"
        )
        response.force_close()
        return response

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    return app


def _bear(order: Order) -> int:
    """Fork a child that lives by the order; its process id."""
    ours = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != ours:
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        logs.configure("json", "info")
        asyncio.run(live(order))
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
    finally:
        sys.stderr.flush()
        os._exit(1)


def serve() -> None:
    """Bear a child for each line of standard input; answer with its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: no zombies
    for line in sys.stdin:
        sys.stdout.write(f"{_bear(Order(**json.loads(line)))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
