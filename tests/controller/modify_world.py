"""The modifier in virtual time: an API server's claims, and a cloud that modifies volumes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest

from provisioner.controller.modifying import record, steps
from provisioner.controller.modifying.flow import Modifier
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.ec2.watcher import Watcher
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES, Resource
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.modification import Modification
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import VolumeAttributesClass
from tests.controller.modify_cloud import VOLUME, Cloud
from tests.ec2.virtual_time import Clock, in_virtual_time

T = TypeVar("T")
Json = dict[str, Any]
DRIVER = "ebs.csi.aws.com"
BEGIN = datetime(2026, 11, 22, tzinfo=UTC)


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
        self.options: Json = {}
        self.caches = self._new_caches()
        for module in (record, steps):
            if hasattr(module, "utc_now"):
                monkeypatch.setattr(module, "utc_now", self.now)
        self._tasks: list[asyncio.Task[None]] = []
        self.put("claim", claim_json())
        self.put("pv", persistent_volume_json())
        self.modifier = self.process()

    def _new_caches(self) -> Caches:
        caches = Caches(cast("KubeClient", self), self.metrics, DRIVER)
        caches._served.append(caches.attributes_classes)
        return caches

    def is_older_than_1_34(self) -> None:
        """The API server does not serve VolumeAttributesClasses of storage.k8s.io/v1."""
        self.caches._served.remove(self.caches.attributes_classes)

    def is_upgraded(self) -> None:
        """The API server serves them."""
        self.caches._served.append(self.caches.attributes_classes)

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.clock())

    def process(self) -> Modifier:
        """A process that begins with what is written, and knows nothing else."""
        cloud = self.cloud
        modifications: Watcher[Modification] = Watcher(
            cloud, metrics=self.metrics, kind="modifications", clock=self.clock
        )
        self.watcher = modifications
        services = SimpleNamespace(
            settings=Settings(driver=DRIVER, **self.options),
            client=self,
            caches=self.caches,
            events=SimpleNamespace(record=self._record),
            metrics=self.metrics,
            volumes=cloud,
            ceilings=SimpleNamespace(of=cloud.ceiling_of),
            modifications=cloud,
            volume_reads=SimpleNamespace(volume=cloud.read),
            modification_reads=cloud,
            watchers=SimpleNamespace(modifications=modifications),
        )
        return Modifier(cast("Services", services))

    async def run(self, seconds: float) -> None:
        """Let the flow work for so long."""
        if not self._tasks:
            self.modifier.subscribe()
            self._tasks = [
                asyncio.create_task(self.modifier.queue.run()),
                asyncio.create_task(self.watcher.run()),
            ]
        await asyncio.sleep(seconds)

    async def die(self) -> None:
        """As SIGKILL ends it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def restart(self) -> None:
        """Another process, which knows nothing but what is written."""
        await self.die()
        self.caches = self._new_caches()
        for kind in self.objects:
            self._show(kind)
        self.modifier = self.process()

    def heed_annotations(self) -> None:
        """The flow with the option for the annotations from before there were classes."""
        self.options = {"modify_annotations": True}
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

    def attributes_class(self, name: str, driver: str = DRIVER, **parameters: str) -> None:
        metadata = {"name": name, "uid": f"uid-{name}"}
        self.put(name, {"metadata": metadata, "driverName": driver, "parameters": parameters})

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


def wants_both(world: World, *, mode: str = "Block") -> None:
    """The user asks for 20 GiB and class "gold" at once."""
    world.put("claim", claim_json(mode=mode))
    world.attributes_class("gold", iops="4000")
    world.ask("20Gi", "gold")


def has_both(world: World) -> bool:
    """Whether all is as ``wants_both`` wants it, with nothing left behind."""
    claim, pv = world.claim, world.persistent_volume
    return (
        (claim.capacity, pv.capacity) == ("20Gi", "20Gi")
        and claim.current_attributes_class_name == pv.attributes_class_name == "gold"
        and claim.modify_status is None
        and not world.conditions
    )


def told(
    story: Callable[[World], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> World:
    """The world after a story."""

    async def whole(clock: Clock) -> World:
        world = World(clock, monkeypatch)
        await story(world)
        await world.die()
        bugs = {"flow": "modify", "reason": "Bug"}
        counted = world.metrics.registry.get_sample_value(
            "ebs_provisioner_flow_failures_total", bugs
        )
        assert not counted, "an exception that the flow does not know"
        return world

    return in_virtual_time(whole)
