"""An API server that keeps VolumeMoves, and a controller that carries them on when they are read."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from provisioner.inspect.command_line import KubeTarget
from tests.kube.conftest import kubeconfig_for

Json = dict[str, Any]
NAMESPACE, CLAIM, CLAIM_UID = "shop", "data", "claim-1"
ROOT = "/apis/ebs-provisioner.io/v1alpha1"
SHAPE: Json = {"zone": "us-east-1a", "sizeGiB": 20, "type": "gp3", "storageClassName": "fast"}
SOURCE: Json = {
    "claimUID": CLAIM_UID,
    "persistentVolume": "pv-1",
    "volumeID": "vol-1",
    "reclaimPolicy": "Delete",
    "driver": "ebs.csi.aws.com",
}
ESTIMATE: Json = {
    "leastMinutes": 2,
    "mostMinutes": 8,
    "currency": "USD",
    "pricesOf": "2026-11-01",
    "sourceMonth": "1.60",
    "targetMonth": "1.60",
    "keepingSource": "0.37",
    "snapshotMonth": "1.00",
}
PLANNED: Json = {
    "phase": "Planned",
    "plan": {
        "source": SHAPE,
        "target": SHAPE | {"zone": "us-east-1b"},
        "pods": [],
        "notes": ["the claim gets another UID"],
        "estimate": ESTIMATE,
    },
    "source": SOURCE,
}
DONE: Json = {"phase": "Done", "volume": "vol-2", "message": "PersistentVolume pv-1 keeps vol-1"}
WAY: list[Json] = [
    PLANNED,
    {"phase": "Held"},
    {"phase": "Snapshotting", "progressPercent": 4},
    {"phase": "Snapshotting", "progressPercent": 6},
    {"phase": "Snapshotting", "progressPercent": 57},
    {"phase": "Creating"},
    {"phase": "Swapping"},
    {"phase": "Cleaning"},
    DONE,
]
BEFORE, AFTER = "before", "after"
SHOP_DATA = "pvc/shop/data"
TO_B = ("--to-zone", "us-east-1b")


@dataclass
class Fault:
    """A request that is lost before or after its effect, or answered with an error, so many times."""

    method: str
    kind: str
    does: str | int
    times: int = 1
    message: str = "no"


@dataclass
class FakeCluster:
    """The state of one.

    Attributes:
        way: the statuses that a move takes, one at each look; the last one stays.
        plan: the status of a dry run; ``plans``: the same of some claims.
        claims: others, by name.
        meanwhile: called at each look at a move with its name; it may change anything.
        pods_are_read: the same of a look at pods.
        denied_claims: those of which admission lets no move be made, but dry runs.
        others: objects and lists by their path.
        denied: verbs that the user has no right to.
        log: what was asked: method, plural and name.
        asked_as: whom those who asked impersonated: user, groups and UID.
        knows: the fields of the CRD's spec, ``knows_of_to`` those of its ``to``; None for all.
    """

    url: str = ""
    folder: Path = field(default_factory=Path)
    way: list[Json] = field(default_factory=lambda: [*WAY])
    plan: Json = field(default_factory=lambda: {**PLANNED})
    claim: Json | None = field(
        default_factory=lambda: {
            "metadata": {"name": CLAIM, "namespace": NAMESPACE, "uid": CLAIM_UID},
            "spec": {"volumeName": "pv-1"},
            "status": {"phase": "Bound"},
        }
    )
    plans: dict[str, Json] = field(default_factory=dict)
    claims: dict[str, Json] = field(default_factory=dict)
    moves: dict[str, Json] = field(default_factory=dict)
    meanwhile: Callable[[str], None] = lambda _: None
    pods_are_read: Callable[[], None] = lambda: None
    others: dict[str, Json] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    denied_claims: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    log: list[tuple[str, str, str]] = field(default_factory=list)
    asked_as: set[tuple[str, ...]] = field(default_factory=set)
    bodies: list[Json] = field(default_factory=list)
    is_installed: bool = True
    knows: set[str] | None = None
    knows_of_to: set[str] | None = None
    _uids: Any = field(default_factory=lambda: itertools.count(1))
    _at: dict[str, int] = field(default_factory=dict)

    @property
    def target(self) -> KubeTarget:
        path = self.folder / "kubeconfig"
        path.write_text(kubeconfig_for(self.url, {"token": "me"}))
        return KubeTarget(str(path), None, "")

    def asked(self, method: str, kind: str = "volumemoves") -> list[str]:
        return [name for seen, plural, name in self.log if (seen, plural) == (method, kind)]

    def put(self, name: str, status: Json | None = None, **spec: Any) -> Json:
        """A move that is there."""
        made: Json = {
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"move-{next(self._uids)}"},
            "spec": {"claimName": CLAIM, "to": {"zone": "us-east-1b"}, "keepSource": "168h"} | spec,
            "status": status or {},
        }
        self.moves[name] = made
        return made

    def put_claim(self, name: str) -> None:
        """Another claim, and the plan of its move."""
        meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
        status = {"phase": "Bound"}
        self.claims[name] = {"metadata": meta, "spec": {"volumeName": f"pv-{name}"}} | {
            "status": status
        }
        source = SOURCE | {"claimUID": f"uid-{name}", "volumeID": f"vol-{name}"}
        self.plans[name] = PLANNED | {"source": source | {"persistentVolume": f"pv-{name}"}}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body = json.loads(data) if data else None
        kind, name = _what(request.path)
        parts = ("User", "Group", "Uid")
        headers = (request.headers.getall(f"Impersonate-{each}", []) for each in parts)
        self.asked_as.add(tuple(value for values in headers for value in values))
        self.log.append(
            (request.method, kind, name or (body or {}).get("metadata", {}).get("name", ""))
        )
        fault = next((f for f in self.faults if self._meets(f, request.method, kind)), None)
        if fault is not None:
            fault.times -= 1
            if isinstance(fault.does, int):
                return _status(fault.does, fault.message)
        if fault is None or fault.does == AFTER:
            refused = self._unknown_field(request, kind, body)
            answered = refused or self._do(request.method, request.path, kind, name, body)
        if fault is not None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return answered

    @staticmethod
    def _meets(fault: Fault, method: str, kind: str) -> bool:
        return fault.times > 0 and (fault.method, fault.kind) == (method, kind)

    def _do(self, method: str, path: str, kind: str, name: str, body: Any) -> web.Response:
        if kind == "selfsubjectaccessreviews":
            verb = body["spec"]["resourceAttributes"]["verb"]
            return web.json_response({"status": {"allowed": verb not in self.denied}})
        if kind == "volumemoves":
            if not self.is_installed:
                return web.Response(text="404 page not found", status=404)
            return self._moves(method, name, body)
        if kind == "persistentvolumeclaims":
            claim = self.claims.get(name) or (self.claim if name == CLAIM else None)
            return web.json_response(claim) if claim else _not_found(name)
        if kind == "pods":
            self.pods_are_read()
        if path in self.others:
            return web.json_response(self.others[path])
        return _not_found(name) if name else web.json_response({"metadata": {}, "items": []})

    def _unknown_field(self, request: web.Request, kind: str, body: Any) -> web.Response | None:
        """What a real API server does: it refuses with Strict, and else leaves the field out."""
        if (request.method, kind) != ("POST", "volumemoves"):
            return None
        strict = request.query.get("fieldValidation") == "Strict"
        for part, path, known in (
            (body["spec"], "spec", self.knows),
            (body["spec"]["to"], "spec.to", self.knows_of_to),
        ):
            for key in sorted(part.keys() - known) if known is not None else ():
                if strict:
                    message = f'strict decoding error: unknown field "{path}.{key}"'
                    return _status(400, message, "BadRequest")
                del part[key]
        return None

    def _moves(self, method: str, name: str, body: Any) -> web.Response:
        if method == "POST":
            return self._create(body)
        if not name:
            return web.json_response({"metadata": {}, "items": [*self.moves.values()]})
        if method == "GET":
            self.meanwhile(name)
        found = self.moves.get(name)
        if found is None:
            return _not_found(name)
        if method == "PATCH":
            self.bodies.append(body)
            found["spec"] |= body["spec"]
        if method == "DELETE":
            assert body["preconditions"]["uid"] == found["metadata"]["uid"]
            return web.json_response(self.moves.pop(name))
        if method == "GET":
            self._carry_on(found)
        return web.json_response(found)

    def _create(self, body: Json) -> web.Response:
        if body["spec"]["claimName"] in self.denied_claims and not dry(body):
            return _status(403, "policy: no moves of this claim", "Forbidden")
        self.bodies.append(body)
        name = body["metadata"]["name"]
        if name in self.moves:
            return _status(409, "it is there", "AlreadyExists", name)
        made = self.put(name, **body["spec"])
        kept = ("ownerReferences", "labels")
        made["metadata"] |= {k: v for k, v in body["metadata"].items() if k in kept}
        return web.json_response(made, status=201)

    def _carry_on(self, move: Json) -> None:
        if move["spec"].get("dryRun"):
            move["status"] = self.plans.get(move["spec"]["claimName"], self.plan)
            return
        status, uid = move["status"], move["metadata"]["uid"]
        if status.get("phase") in {"Done", "Refused", "Aborted"}:
            return
        if move["spec"].get("abort"):
            phase = "Aborted" if status.get("phase") == "Aborting" else "Aborting"
            move["status"] = status | {"phase": phase, "message": "aborted by its user"}
            return
        phases = [each["phase"] for each in self.way]
        here = phases.index(status["phase"]) if status.get("phase") in phases else -1
        at = min(self._at.get(uid, here - 1 if here > 0 else here) + 1, len(self.way) - 1)
        self._at[uid] = at
        move["status"] = status | {"message": ""} | self.way[at]
        if self.way[at]["phase"] == "Planned":
            move["status"] |= self.plans.get(move["spec"]["claimName"], {})


def real(cluster: FakeCluster) -> list[Json]:
    """The moves that were made to be carried out."""
    return [each for each in cluster.bodies if "claimName" in each["spec"] and not dry(each)]


def dry(body: Json) -> bool:
    """Whether a move is only planned."""
    return bool(body["spec"].get("dryRun"))


def _what(path: str) -> tuple[str, str]:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"]:
        parts = parts[2:]
    return parts[0], parts[1] if len(parts) > 1 else ""


def _not_found(name: str) -> web.Response:
    return _status(404, f"no {name}", "NotFound", name)


def _status(code: int, message: str, reason: str = "", name: str = "") -> web.Response:
    body = {
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
        "details": {"name": name},
    }
    return web.json_response(body, status=code)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[FakeCluster]:
    """A cluster that answers."""
    found = FakeCluster(folder=folder)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}"
    yield found
    await runner.cleanup()
