"""Services that answer at once with what a test has laid out, and remember what was asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from provisioner.controller.shared.caches import Caches
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Sighting, Watcher
from provisioner.kube.client import KubeClient
from provisioner.kube.events import Regarding
from provisioner.metrics import Metrics
from provisioner.model.decision import Later, Next
from provisioner.model.errors import KubeError, Reason
from provisioner.model.volume import CreateRequest, Volume, VolumeState
from tests.builders import DRIVER


@dataclass
class Kube:
    """An API server. ``objects``: by name, for GET; ``answers``: of writes, in order."""

    objects: dict[str, Any] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)
    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        where = f"{namespace}/{name}" if namespace else name
        self.read.append(f"{resource.plural} {where}")
        if name not in self.objects:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        return self.objects[name]

    async def create(self, resource: Any, body: Any, namespace: str = "") -> Any:
        return self._write("create", resource, body)

    async def patch(self, resource: Any, name: str, body: Any, **_: Any) -> Any:
        return self._write("patch", resource, body)

    async def delete(self, resource: Any, name: str, **given: Any) -> Any:
        return self._write("delete", resource, given)

    def _write(self, verb: str, resource: Any, body: Any) -> Any:
        self.sent.append((verb, resource.plural, body))
        return _answer(self.answers.pop(0))


@dataclass
class Ec2:
    """Volumes. ``answers``: of CreateVolume, in order; ``waits_s``: in the limiter, for each;
    ``meanwhile``: what happens while a call is under way."""

    answers: list[Volume | Exception] = field(default_factory=list)
    requests: list[CreateRequest] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    failure: Exception | None = None
    shown: list[Volume] = field(default_factory=list)
    made: dict[str, Volume] = field(default_factory=dict)
    waits_s: float = 0.0
    meanwhile: Callable[[], None] = lambda: None

    @property
    def patient(self) -> Ec2:
        return self

    async def find_any(self, *_: Any) -> list[Volume]:
        if self.failure is not None:
            raise self.failure
        return self.shown

    async def create(self, request: CreateRequest, *, gate: Any) -> Any:
        await asyncio.sleep(self.waits_s)
        gate()
        self.requests.append(request)
        self.meanwhile()
        volume = _answer(self.answers.pop(0))
        self.made[volume.volume_id] = volume
        return volume

    async def delete(self, volume_id: str, *, gate: Any) -> None:
        await gate()
        if self.failure is not None:
            raise self.failure
        self.deleted.append(volume_id)


class CurrentCaches(Caches):
    """Caches that are never behind.

    ``news``: what happens right before they are asked for proof; ``news_of_moves``: right before
    the moves alone are."""

    def __init__(self, kube: object = None) -> None:
        super().__init__(cast("KubeClient", kube), Metrics(), DRIVER)
        self.news: Callable[[], None] = lambda: None
        self.news_of_moves: Callable[[], None] = lambda: None

    async def catch_up(self, *informers: object) -> None:
        self.news_of_moves() if informers == (self.moves,) else self.news()


class PromptWatcher(Watcher[Volume]):
    """Has looked already when it is asked, at volumes that EC2 has made and not only begun."""

    def __init__(self, ec2: Ec2, metrics: Metrics) -> None:
        super().__init__(cast("Volumes", ec2), metrics=metrics)
        self._ec2 = ec2

    def sighting(self, volume_id: str) -> Sighting[Volume] | None:
        volume = self._ec2.made.get(volume_id)
        if volume is None or volume.state is VolumeState.CREATING:
            return super().sighting(volume_id)
        return Sighting(volume, at_s=0.0)


@dataclass
class Events:
    """What users were told."""

    told: list[str] = field(default_factory=list)

    def record(self, regarding: Regarding, *, warning: bool, reason: str, message: str) -> None:
        self.told.append(message)

    def forget(self, *_: Any) -> None:
        return


def _answer(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def seconds(following: Next) -> float | None:
    """After how many seconds a flow wants another pass, None for none of its own."""
    return following.seconds if isinstance(following, Later) else None
