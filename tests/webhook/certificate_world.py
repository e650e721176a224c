"""An API server in memory that holds the certificates' objects, and what clients make of them.

Every request takes a random while before and after its effect, so one seed is one interleaving. A
request may also be a replica's last, or lose its reply. After each change it is checked that no
replica that is ready serves what somebody's bundle does not trust.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol, cast

import msgspec
from cryptography import x509
from cryptography.x509 import verification

from provisioner.kube import wire
from provisioner.kube.client import KubeClient, Patch
from provisioner.model.errors import KubeError, Outcome, Reason
from tests.ec2.virtual_time import Clock
from tests.json_patch import merged
from tests.webhook.pairs import NAMES, NOW, Issued
from tests.webhook.services import configurations
from webhook.certificates.rotation_rules import Waits
from webhook.model.review import Json

NAMESPACE, SECRET, NAME = "web", "tls", "ebs-webhook"
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
BEFORE, AFTER, LOST = "dies before", "dies after", "loses the reply"
WAITS = Waits()
LAG_S = WAITS.settle_s / 2  # by which an API server may be behind with the configurations


class Killed(BaseException):
    """SIGKILL: nothing that handles errors may handle it."""


@dataclass(frozen=True)
class View:
    """What an API server trusts; until some time after ``superseded_s`` others may still do so."""

    bundles: tuple[bytes, ...]
    superseded_s: float = float("inf")


@lru_cache(maxsize=4096)
def trusts(bundle: bytes, chain: bytes, now: datetime) -> bool:
    """By cryptography's own verifier, not by the product's reading."""
    store = verification.Store(x509.load_pem_x509_certificates(bundle))
    leaf = x509.load_pem_x509_certificate(chain)
    verifier = verification.PolicyBuilder().store(store).time(now)
    try:
        verifier.build_server_verifier(x509.DNSName(NAMES.dns[0])).verify(leaf, [])
    except verification.VerificationError:
        return False
    return True


class Server(Protocol):
    """A replica, as far as clients see it."""

    name: str
    ready_s: float | None

    @property
    def alive(self) -> bool: ...

    @property
    def chain(self) -> bytes: ...


@dataclass
class World:
    """The objects by plural and key, all requests to change one, and all that is served."""

    clock: Clock
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    slow_s: float = 0.05
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    version: int = 100
    log: list[tuple[int, str, bytes]] = field(default_factory=list)
    views: dict[str, list[View]] = field(default_factory=dict)
    replicas: list[Server] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    outages: list[str] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock())

    def put(self, plural: str, key: str, obj: Json) -> Json:
        """Save an object as it is to be, whoever wants it so."""
        self.version += 1
        obj = copy.deepcopy(obj)
        obj.setdefault("metadata", {})["resourceVersion"] = str(self.version)
        obj["metadata"].setdefault("name", key.rpartition("/")[2])
        line = msgspec.json.encode({"type": "MODIFIED", "object": obj})
        self.objects[plural, key] = obj
        self.log.append((self.version, plural, line))
        if plural != "secrets":
            self._note_view(plural, obj)
        self.changed.set()
        self.changed = asyncio.Event()
        self.check()
        return obj

    def register(self) -> None:
        """Apply the manifests: no webhook is trusted by anything yet."""
        table = configurations()
        self.put(MUTATING, NAME, table["MutatingWebhookConfiguration"])
        self.put(VALIDATING, NAME, table["ValidatingWebhookConfiguration"])

    def trust(self, bundle: bytes) -> None:
        """Somebody writes what every webhook is trusted by."""
        text = base64.b64encode(bundle).decode()
        for plural in (MUTATING, VALIDATING):
            changed = copy.deepcopy(self.objects[plural, NAME])
            for webhook in changed["webhooks"]:
                webhook["clientConfig"]["caBundle"] = text
            self.put(plural, NAME, changed)

    def put_secret(self, data: Mapping[str, bytes]) -> None:
        """Somebody writes the Secret, and takes what was in it away."""
        values = {key: base64.b64encode(value).decode() for key, value in data.items()}
        metadata = {"name": SECRET, "namespace": NAMESPACE}
        self.put("secrets", f"{NAMESPACE}/{SECRET}", {"metadata": metadata, "data": values})

    @property
    def secret(self) -> dict[str, bytes]:
        found = self.objects.get(("secrets", f"{NAMESPACE}/{SECRET}"), {})
        return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}

    @property
    def bundles(self) -> set[bytes]:
        """What the webhooks are trusted by now."""
        return {bundle for views in self.views.values() for bundle in views[-1].bundles}

    def check(self) -> None:
        """Note an outage wherever something ready serves what an API server does not trust.

        One that has become ready a moment ago is not sent to yet by an API server that is behind.
        """
        today = NOW + timedelta(days=self.clock() // 86400)
        for replica in self.replicas:
            if not replica.alive or replica.ready_s is None or not replica.chain:
                continue
            for view in (view for views in self.views.values() for view in views):
                late = view.superseded_s < float("inf")
                if late and not (replica.ready_s <= view.superseded_s > self.clock() - LAG_S):
                    continue
                for bundle in filter(None, view.bundles):
                    if not trusts(bundle, replica.chain, today):
                        self.outages.append(f"{replica.name} at {self.clock():.1f} s")

    def _note_view(self, plural: str, obj: Json) -> None:
        bundles = tuple(
            base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in obj["webhooks"]
        )
        views = self.views.setdefault(plural, [])
        if views:
            views[-1] = View(views[-1].bundles, self.clock())
        views.append(View(bundles))


@dataclass
class Edge:
    """A ``KubeClient`` of one life. ``fates``: by label, what becomes of a request."""

    world: World
    fates: Callable[[str], str] = lambda _: ""
    managers: set[str] = field(default_factory=set)

    @property
    def client(self) -> KubeClient:
        return cast("KubeClient", self)

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        await self._pass()
        key = f"{namespace}/{name}" if namespace else name
        found = self.world.objects.get((resource.plural, key))
        await self._pass()
        if found is None:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"there is no {key}")
        return wire.decode_object(resource, msgspec.json.encode(found))

    async def list(self, resource: Any, *, keep: Any, trim: Any, **_: Any) -> wire.Listing[Any]:
        await self._pass()
        items = [
            obj for (plural, _), obj in self.world.objects.items() if plural == resource.plural
        ]
        reader = wire.PageReader(resource, keep, trim)
        metadata = {"resourceVersion": str(self.world.version)}
        reader.read(msgspec.json.encode({"metadata": metadata, "items": items}))
        return reader.listing()

    async def watch(
        self, resource: Any, *, resource_version: str, **_: Any
    ) -> AsyncIterator[wire.WatchLine]:
        seen = int(resource_version)
        while True:
            changed = self.world.changed
            for version, line in self._since(resource.plural, seen):
                await self._pass()
                seen = version
                yield msgspec.json.decode(line, type=wire.WatchLine)
            await changed.wait()

    def _since(self, plural: str, seen: int) -> Iterator[tuple[int, bytes]]:
        yield from [(v, line) for v, kind, line in self.world.log if kind == plural and v > seen]

    async def create(self, resource: Any, body: Json, namespace: str = "") -> Any:
        name = body["metadata"]["name"]
        key = f"{namespace}/{name}" if namespace else name

        def effect() -> Json:
            if (resource.plural, key) in self.world.objects:
                raise KubeError(Reason.OBJECT_EXISTS, f"{key} is there")
            return self.world.put(resource.plural, key, body)

        return await self._write(f"create {resource.plural}", resource, effect)

    async def patch(
        self,
        resource: Any,
        name: str,
        body: Json,
        *,
        kind: Patch,
        namespace: str = "",
        manager: str = "",
    ) -> Any:
        self.managers |= {manager} if kind is Patch.APPLY else set()
        key = f"{namespace}/{name}" if namespace else name

        def effect() -> Json:
            there = self.world.objects.get((resource.plural, key))
            if there is None or _version(there) != body["metadata"].get("resourceVersion"):
                raise KubeError(Reason.CONFLICT, f"{key} has changed")
            merge = applied if kind is Patch.APPLY else merged
            return self.world.put(resource.plural, key, merge(there, body))

        return await self._write(f"{kind.name} {resource.plural}", resource, effect)

    async def _write(self, what: str, resource: Any, effect: Callable[[], Json]) -> Any:
        label = f"{what} #{1 + sum(each.startswith(what) for each in self.world.tried)}"
        self.world.tried.append(label)
        fate = self.fates(label)
        await self._pass()
        if fate == BEFORE:
            raise Killed
        saved = effect()
        self.world.writes.append(label)
        await self._pass()
        if fate == AFTER:
            raise Killed
        if fate == LOST:
            raise KubeError(Reason.REPLY_LOST, "the reply is lost", outcome=Outcome.UNKNOWN)
        return wire.decode_object(resource, msgspec.json.encode(saved))

    async def _pass(self) -> None:
        await asyncio.sleep(self.world.rng.uniform(0.0, self.world.slow_s))


def data_of(serving: Issued) -> dict[str, bytes]:
    """A Secret whose authority signs."""
    return former(serving) | {"ca.key": serving.authority_key}


def former(serving: Issued, upcoming: Issued | None = None) -> dict[str, bytes]:
    """A Secret of releases that threw each authority's key away, perhaps with its next pair."""
    data = {"ca.crt": serving.authority, "tls.crt": serving.certificate, "tls.key": serving.key}
    if upcoming is not None:
        data["ca.crt"] = upcoming.authority + serving.authority
        data |= {"next.crt": upcoming.certificate, "next.key": upcoming.key}
    return data


def applied(there: Json, patch: Json) -> Json:
    """Server-side apply as far as it is used: lists of webhooks are merged by name."""
    result = copy.deepcopy(there)
    by_name = {webhook["name"]: webhook for webhook in result["webhooks"]}
    for wanted in patch["webhooks"]:
        by_name[wanted["name"]]["clientConfig"] |= wanted["clientConfig"]
    return result


def _version(obj: Json) -> str:
    return str(obj["metadata"]["resourceVersion"])
