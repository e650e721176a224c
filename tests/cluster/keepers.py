"""Places where replicas of the webhook keep certificates: a Secret, two configurations, a load."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import signal
import ssl
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from provisioner.sandbox import processes
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.control_plane import free_port
from tests.cluster import hands
from tests.cluster.mortal_keeper import Order
from tests.cluster.replicas import eventually
from tests.webhook import pairs
from tests.webhook.pairs import Issued
from webhook.certificates import issuing
from webhook.certificates.issuing import Names
from webhook.model.review import Json

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
PLURALS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
# Minutes in a cluster; here what is waited for takes milliseconds, and a machine that stalls does so
# for a second or two.
WAITS = {"settle_s": 2.5, "check_s": 5.0}
_LOAD_S = 0.03
NAMES = Names(ips=("127.0.0.1",))


class Nursery:
    """Bears replicas, and ends them all with itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._bearing = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls) -> AsyncIterator[Nursery]:
        path = os.pathsep.join(each for each in sys.path if each)
        process = await asyncio.create_subprocess_exec(
            *processes.dying_with_us([sys.executable, "-m", "tests.cluster.mortal_keeper"]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        try:
            yield cls(process)
        finally:
            process.terminate()
            await process.communicate()

    async def bear(self, order: Order) -> int:
        """Begin a life; its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._bearing, asyncio.timeout(30):
            self._process.stdin.write(order.encode())
            return int(await self._process.stdout.readline())


@dataclass
class Replica:
    """One life of a replica."""

    pid: int
    order: Order

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    async def ready(self) -> None:
        def is_ready() -> bool:
            assert self.alive, self.log[-3000:]
            return Path(self.order.ready).exists()

        await eventually("a replica is ready", is_ready)

    async def ended(self) -> None:
        await eventually(f"a replica dies at {self.order.at}", lambda: not self.alive)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        await eventually("a replica is dead", lambda: not self.alive)

    @property
    def log(self) -> str:
        path = Path(self.order.log)
        return path.read_text() if path.exists() else ""

    @property
    def warnings(self) -> list[Json]:
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["level"] == "warning"]

    def shown(self) -> bytes:
        """The certificate that it shows to clients."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.order.port), timeout=5)
        return ssl.PEM_cert_to_DER_cert(pem)


@dataclass
class Keep:
    """One Secret with its configurations, which ask about ConfigMaps that carry its label."""

    api: Api
    nursery: Nursery
    kubeconfig: Path
    namespace: str
    folder: Path
    name: str = field(default_factory=lambda: f"keep-{uuid.uuid4().hex[:8]}")
    port: int = field(default_factory=free_port)
    replicas: list[Replica] = field(default_factory=list)
    asked: int = 0
    failures: list[str] = field(default_factory=list)
    _applied: bool = False
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    # -- replicas

    async def replica(self, **more: Any) -> Replica:
        """Begin a life; ``more`` as ``Order`` takes it."""
        if not self._applied:
            await self.apply()
        stem = self.folder / f"{self.name}-{next(self._numbers)}"
        settings: dict[str, Any] = {
            "kubeconfig": str(self.kubeconfig),
            "namespace": self.namespace,
            "secret": self.name,
            "registration": self.name,
            "port": self.port,
            "log": f"{stem}.log",
            "ready": f"{stem}.ready",
            "waits": WAITS,
        }
        order = Order(**settings | more)
        born = Replica(await self.nursery.bear(order), order)
        self.replicas.append(born)
        return born

    async def apply(self, **query: str) -> None:
        """As a GitOps tool applies the manifests: all fields but caBundle."""
        self._applied = True
        for plural, body in zip(PLURALS, self.table().values(), strict=True):
            path = f"{CONFIGURATIONS}/{plural}/{self.name}"
            await self.api.patch(path, body, kind="apply", fieldManager="gitops", **query)

    def table(self, *others: str) -> dict[str, Json]:
        """Both configurations. ``Fail``: a review that goes wrong is a refused ConfigMap."""
        url = f"https://127.0.0.1:{self.port}/review"
        webhook = {
            "name": f"{self.name}.keep.example",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": url},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "operations": ["CREATE"],
                    "scope": "Namespaced",
                }
            ],
            "objectSelector": {"matchLabels": {"keep": self.name}},
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 5,
        }
        return {
            kind: {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": self.name, "labels": {"keep": self.name}},
                "webhooks": [webhook, *(webhook | {"name": each} for each in others)],
            }
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        }

    # -- what is there

    async def put_secret(self, data: dict[str, bytes]) -> None:
        """Write the Secret as somebody else does: whole."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        body = {
            "metadata": {"name": self.name},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        try:
            await self.api.create(path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            await self.api.request("PUT", f"{path}/{self.name}", body)

    async def secret(self) -> dict[str, bytes]:
        found = await self.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/{self.name}")
        return {k: base64.b64decode(v) for k, v in found.get("data", {}).items()}

    async def bundles(self) -> set[bytes]:
        """What the webhooks are trusted by; raises ApiError while one is not there."""
        found = [await self.api.get(f"{CONFIGURATIONS}/{each}/{self.name}") for each in PLURALS]
        return {
            base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
            for configuration in found
            for webhook in configuration["webhooks"]
        }

    async def settled(self) -> dict[str, bytes]:
        """Wait until one young chain of an authority that can sign is served, and it is trusted."""

        async def is_settled() -> dict[str, bytes] | None:
            try:
                secret, bundles = await self.secret(), await self.bundles()
                leaf = issuing.read_leaf(secret["tls.crt"], secret["tls.key"])
            except (ApiError, KeyError, issuing.CertificateError):
                return None
            known = issuing.authorities(secret["ca.crt"])
            young = leaf.not_after - datetime.now(UTC) > timedelta(days=80)
            signs = issuing.signing_key(secret["ca.key"], known)
            trusted = all(signs in issuing.authorities(each) for each in bundles)
            good = young and trusted and "next.crt" not in secret
            return secret if good and issuing.signer(leaf, known) == signs else None

        found: dict[str, bytes] = await eventually("the certificates are settled", is_settled)
        return found

    # -- reviews

    async def ask(self) -> str:
        """Have one object reviewed twice; what went wrong, "" for nothing."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        body = {"metadata": {"generateName": "asked-", "labels": {"keep": self.name}}}
        self.asked += 1
        try:
            await self.api.request("POST", path, body, dryRun="All")
        except ApiError as error:
            return str(error)
        return ""

    @contextlib.asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Reviews one after the other; ``failures`` has what went wrong."""

        async def ask_on() -> None:
            while True:
                if failure := await self.ask():
                    self.failures.append(failure)
                await asyncio.sleep(_LOAD_S)

        asking = asyncio.create_task(ask_on())
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    @property
    def distrust(self) -> list[str]:
        """The failures for which a certificate was to blame; a dead replica is another matter."""
        words = ("x509", "tls:", "certificate")
        return [each for each in self.failures if any(word in each for word in words)]

    async def remove(self) -> None:
        """End all replicas and take everything away."""
        for replica in self.replicas:
            await replica.kill()
        for plural in PLURALS:
            await hands.discard(self.api, f"{CONFIGURATIONS}/{plural}/{self.name}")


def issued(age_days: float = 0) -> Issued:
    """A certificate for 127.0.0.1 that was made so long ago: it lasts for 90 days."""
    return pairs.issue(NAMES, datetime.now(UTC) - timedelta(days=age_days))


def data_of(pair: Issued) -> dict[str, bytes]:
    """A Secret with this certificate, and the key of its authority."""
    return former(pair) | {"ca.key": pair.authority_key}


def former(pair: Issued) -> dict[str, bytes]:
    """A Secret of a release that threw that key away."""
    return {"ca.crt": pair.authority, "tls.crt": pair.certificate, "tls.key": pair.key}
