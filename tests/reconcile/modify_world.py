"""The modifier in virtual time: an API server's claims, and a cloud that modifies volumes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest

from provisioner.edges import Edges
from provisioner.ec2.watcher import Watcher
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES, Resource
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim
from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason
from provisioner.model.modification import (
    Modification,
    ModificationState,
    ModifyRequest,
    shape_of,
)
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_attributes_class import VolumeAttributesClass
from provisioner.reconcile import modify_record, modify_refusals, modify_sending, modify_steps
from provisioner.reconcile.caches import Caches
from provisioner.reconcile.modify import Modifier
from provisioner.settings import Settings
from tests.ec2.virtual_time import Clock, in_virtual_time

T = TypeVar("T")
Json = dict[str, Any]
DRIVER, VOLUME = "ebs.csi.aws.com", "vol-0123456789abcdef0"
BEGIN = datetime(2026, 11, 22, tzinfo=UTC)
CALL_S = 0.1
MODIFYING_S, OPTIMIZING_S = 3.0, 600.0


class Cloud:
    """One volume that can be modified.

    Attributes:
        sent: every ModifyVolume that reached EC2, carried out or not.
        refuses: for a request, the error that it gets, or None.
        loses: so many replies are lost, after the effect; ``drops``: before it.
        hides_s: so long after it began a modification is not shown.
        fails: so many modifications fail.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.volume: Volume | None = Volume(
            VOLUME, VolumeState.IN_USE, "us-east-1a", 10, "gp3", 3000, 125
        )
        self.latest_: Modification | None = None
        self.sent: list[ModifyRequest] = []
        self.taken = 0
        self.reads = 0
        self.tagged: list[Json] = []
        self.refuses: Callable[[ModifyRequest], Ec2Error | None] = lambda _: None
        self.loses = self.drops = self.fails = 0
        self.hides_s = 0.0
        self.waits_s = 0.0
        self.modifying_s, self.optimizing_s = MODIFYING_S, OPTIMIZING_S
        self.meanwhile: Callable[[], None] = lambda: None
        self.budget = 4
        self.began: list[datetime] = []

    async def modify(self, request: ModifyRequest, *, gate: Any = None) -> Modification:
        await asyncio.sleep(self.waits_s)
        if gate is not None:
            await gate()
        self.sent.append(request)
        self.meanwhile()
        await asyncio.sleep(CALL_S)
        if self.drops:
            self.drops -= 1
            raise _error(Reason.REPLY_LOST, "no answer", outcome=Outcome.UNKNOWN)
        refusal = self._refusal(request)
        if refusal is not None:
            raise refusal
        begun = self._begin(request)
        if self.loses:
            self.loses -= 1
            raise _error(Reason.REPLY_LOST, "no answer", outcome=Outcome.UNKNOWN)
        return begun

    def _refusal(self, request: ModifyRequest) -> Ec2Error | None:
        now, latest = self._now(), self._shown(hidden=False)
        if latest is not None and latest.state in (
            ModificationState.MODIFYING,
            ModificationState.OPTIMIZING,
        ):
            return _error(Reason.MODIFICATION_RUNNING, "it is being modified")
        recent = [at for at in self.began if now - at < timedelta(hours=24)]
        if len(recent) >= self.budget:
            return _error(
                Reason.MODIFICATION_LIMIT,
                "used up",
                retry_at=recent[-self.budget] + timedelta(hours=24),
            )
        return self.refuses(request)

    def _begin(self, request: ModifyRequest) -> Modification:
        assert self.volume is not None
        has, now = shape_of(self.volume), self._now()
        target = replace(
            has,
            size_gib=request.size_gib or has.size_gib,
            volume_type=request.volume_type or has.volume_type,
            iops=request.iops or has.iops,
            throughput_mibps=request.throughput_mibps or has.throughput_mibps,
        )
        self.taken += 1
        self.began.append(now)
        self.latest_ = Modification(
            VOLUME, ModificationState.MODIFYING, target, original=has, started_at=now
        )
        return self.latest_

    def _shown(self, *, hidden: bool = True) -> Modification | None:
        latest = self.latest_
        if latest is None or latest.started_at is None:
            return latest
        age_s = (self._now() - latest.started_at).total_seconds()
        if hidden and age_s < self.hides_s:
            return None
        if latest.state is ModificationState.FAILED or age_s < self.modifying_s:
            return latest
        if self.fails and latest.state is ModificationState.MODIFYING:
            self.fails -= 1
            self.latest_ = replace(latest, state=ModificationState.FAILED, message="a fault")
            return self.latest_
        state = (
            ModificationState.OPTIMIZING
            if age_s < self.modifying_s + self.optimizing_s
            else ModificationState.COMPLETED
        )
        self.latest_ = replace(latest, state=state)
        if self.volume is not None:
            target = latest.target
            self.volume = replace(
                self.volume,
                size_gib=target.size_gib,
                volume_type=target.volume_type,
                iops=target.iops,
                throughput_mibps=target.throughput_mibps,
            )
        return self.latest_

    async def read(self, volume_id: str) -> Volume | None:
        self.reads += 1
        await asyncio.sleep(CALL_S)
        self._shown()
        return self.volume if volume_id == VOLUME else None

    async def latest(self, _: str) -> Modification | None:
        await asyncio.sleep(CALL_S)
        return self._shown()

    async def describe(self, ids: list[str], /) -> Mapping[str, Modification]:
        shown = self._shown()
        return {VOLUME: shown} if shown is not None and VOLUME in ids else {}

    look_for = describe

    async def tag(self, _: list[str], tags: Mapping[str, str]) -> None:
        assert self.volume is not None
        self.tagged.append(dict(tags))
        self.volume = replace(self.volume, tags=dict(self.volume.tags) | dict(tags))

    async def untag(self, _: list[str], key: str) -> None:
        assert self.volume is not None
        kept = {name: value for name, value in self.volume.tags.items() if name != key}
        self.volume = replace(self.volume, tags=kept)


def _error(reason: Reason, message: str, **given: Any) -> Ec2Error:
    return Ec2Error(reason, message, action="ModifyVolume", **given)


def refusal(reason: Reason, message: str = "EC2 says no") -> Ec2Error:
    """What EC2 answers to a ModifyVolume."""
    return _error(reason, message)


class World:
    """An API server with one claim, caches that see every write at once, and the flow."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = clock
        self.cloud = Cloud(self.now)
        self.version = 100
        self.told: list[tuple[str, str]] = []
        self.writes: list[tuple[str, Json]] = []
        self.fails_write: Callable[[str, Json], KubeError | None] = lambda *_: None
        self.objects: dict[str, Json] = {}
        self.metrics = Metrics()
        self.caches = Caches(cast("KubeClient", self), self.metrics, DRIVER)
        for module in (modify_record, modify_refusals, modify_sending, modify_steps):
            if hasattr(module, "utc_now"):
                monkeypatch.setattr(module, "utc_now", self.now)
        self.put("claim", claim_json())
        self.put("pv", persistent_volume_json())
        self.modifier = self.process()

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.clock())

    def process(self) -> Modifier:
        """A process that begins with what is written, and knows nothing else."""
        cloud = self.cloud
        modifications: Watcher[Modification] = Watcher(
            cloud, metrics=self.metrics, kind="modifications", clock=self.clock
        )
        self.watcher = modifications
        edges = SimpleNamespace(
            settings=Settings(driver=DRIVER),
            client=self,
            caches=self.caches,
            events=SimpleNamespace(record=self._record),
            metrics=self.metrics,
            volumes=cloud,
            modifications=cloud,
            volume_reads=SimpleNamespace(volume=cloud.read),
            modification_reads=cloud,
            watchers=SimpleNamespace(modifications=modifications),
        )
        return Modifier(cast("Edges", edges))

    async def run(self, seconds: float) -> None:
        """Let the flow work for so long, then end it as SIGKILL does."""
        self.modifier.subscribe()
        tasks = [
            asyncio.create_task(self.modifier.queue.run()),
            asyncio.create_task(self.watcher.run()),
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def restart(self) -> None:
        """Another process, after the one before it was killed."""
        self.caches = Caches(cast("KubeClient", self), self.metrics, DRIVER)
        for kind in self.objects:
            self._show(kind)
        self.modifier = self.process()

    # -- the API server

    def put(self, kind: str, document: Json) -> None:
        """Somebody else writes an object."""
        self.version += 1
        document = copy.deepcopy(document)
        document["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind] = document
        self._show(kind)

    def _show(self, kind: str) -> Any:
        types: dict[str, tuple[Any, Any]] = {
            "claim": (self.caches.claims, Claim),
            "pv": (self.caches.persistent_volumes, PersistentVolume),
        }
        informer, of = types.get(kind, (self.caches.attributes_classes, VolumeAttributesClass))
        found = msgspec.convert(self.objects[kind], of)
        informer._store.apply(found)
        return found

    def ask(self, size: str | None = None, attributes: str | None = None) -> None:
        """The user edits the claim."""
        claim = copy.deepcopy(self.objects["claim"])
        if size is not None:
            claim["spec"]["resources"]["requests"]["storage"] = size
        if attributes is not None:
            claim["spec"]["volumeAttributesClassName"] = attributes or None
        self.put("claim", claim)

    def attributes_class(self, name: str, **parameters: str) -> None:
        metadata = {"name": name, "uid": f"uid-{name}"}
        self.put(name, {"metadata": metadata, "driverName": DRIVER, "parameters": parameters})

    def kubelet(self) -> None:
        """Kubelet has grown the file system."""
        claim = copy.deepcopy(self.objects["claim"])
        status = claim["status"]
        assert status["allocatedResourceStatuses"]["storage"] == "NodeResizePending"
        status["capacity"] = dict(self.objects["pv"]["spec"]["capacity"])
        status["allocatedResourceStatuses"] = {}
        status["conditions"] = []
        self.put("claim", claim)

    async def get(self, resource: Resource[Any], name: str, _: str = "") -> Any:
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {resource.kind} {name}")

    async def patch(self, resource: Resource[Any], name: str, body: Json, **given: Any) -> Any:
        await asyncio.sleep(0.01)
        kind = {CLAIMS: "claim", PERSISTENT_VOLUMES: "pv"}[resource]
        failure = self.fails_write(kind, body)
        if failure is not None and failure.outcome is Outcome.NOTHING:
            raise failure
        document = copy.deepcopy(self.objects[kind])
        version = body["metadata"].get("resourceVersion")
        assert body["metadata"]["uid"] == document["metadata"]["uid"]
        if version not in (None, document["metadata"]["resourceVersion"]):
            raise KubeError(Reason.CONFLICT, "it has changed")
        change = copy.deepcopy(body)
        del change["metadata"]["uid"]
        change["metadata"].pop("resourceVersion", None)
        self.writes.append((kind, change))
        _merge(document, change)
        self.put(kind, document)
        if failure is not None:
            raise failure
        of = {"claim": Claim, "pv": PersistentVolume}[kind]
        return msgspec.convert(self.objects[kind], of)

    def _record(self, _: Any, *, reason: str, message: str, **__: Any) -> None:
        self.told.append((reason, message))

    # -- what is seen

    @property
    def claim(self) -> Claim:
        return msgspec.convert(self.objects["claim"], Claim)

    @property
    def persistent_volume(self) -> PersistentVolume:
        return msgspec.convert(self.objects["pv"], PersistentVolume)

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.told]

    @property
    def conditions(self) -> set[str]:
        status = self.claim.status
        return {each.type for each in (status.conditions or ())} if status else set()


def _merge(document: Json, change: Json) -> None:
    """A merge patch; conditions as a strategic one merges them."""
    for key, value in change.items():
        if value is None:
            document.pop(key, None)
        elif key == "conditions":
            kept = {each["type"]: each for each in document.get("conditions") or []}
            for each in value:
                if each.get("$patch") == "delete":
                    kept.pop(each["type"], None)
                else:
                    kept[each["type"]] = kept.get(each["type"], {}) | each
            document[key] = list(kept.values())
        elif isinstance(value, dict):
            inner = document.setdefault(key, {})
            _merge(inner, value)
        else:
            document[key] = value


def claim_json(size: str = "10Gi", *, mode: str = "Filesystem") -> Json:
    return {
        "metadata": {"name": "data", "namespace": "web", "uid": "u1"},
        "spec": {
            "volumeName": "pvc-u1",
            "volumeMode": mode,
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
    }


def persistent_volume_json() -> Json:
    return {
        "metadata": {"name": "pvc-u1", "uid": "pv-u1", "annotations": {}},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "claimRef": {"uid": "u1", "namespace": "web", "name": "data"},
            "csi": {"driver": DRIVER, "volumeHandle": VOLUME},
        },
        "status": {"phase": "Bound"},
    }


def told(
    story: Callable[[World], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> World:
    """The world after a story."""

    async def whole(clock: Clock) -> World:
        world = World(clock, monkeypatch)
        await story(world)
        return world

    return in_virtual_time(whole)
