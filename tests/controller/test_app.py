"""The controller process between its election and its end, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from msgspec.structs import replace

from provisioner.controller.app import Controller
from provisioner.controller.ownership.aws_access import Unusable
from provisioner.controller.shared.settings import Settings
from provisioner.kube.client import KubeClient
from provisioner.kube.lease import Lease, Leases, LeaseSettings, LeaseSpec
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.meta import ObjectMeta
from tests.controller.cloud import Cloud
from tests.ec2.virtual_time import Clock, in_virtual_time

NAMES = ("one", "two")


class LeaseApi:
    """The leases, as an API server keeps them."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.writes = 0

    async def get(self, _: Any, name: str, __: str) -> Lease:
        if name not in self.leases:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        return self.leases[name]

    async def create(self, _: Any, body: Any, __: str) -> Lease:
        name = body["metadata"]["name"]
        made = Lease(metadata=ObjectMeta(name=name))
        return self._write(made, body["spec"], body["metadata"]["annotations"])

    async def patch(self, _: Any, name: str, body: Any, **__: Any) -> Lease:
        found = self.leases[name]
        if body["metadata"]["resourceVersion"] != found.metadata.resource_version:
            raise KubeError(Reason.CONFLICT, "changed meanwhile")
        spec = {"renewTime": found.spec.renew_time} | body["spec"]
        return self._write(found, spec, body["metadata"]["annotations"])

    def _write(
        self, found: Lease, spec: dict[str, Any], annotations: dict[str, str] | None = None
    ) -> Lease:
        self.writes += 1
        metadata = replace(
            found.metadata,
            resource_version=str(self.writes),
            annotations={**found.annotations, **(annotations or {})},
        )
        holder = LeaseSpec(
            holder_identity=spec["holderIdentity"],
            lease_duration_seconds=spec["leaseDurationSeconds"],
            renew_time=spec.get("renewTime"),
        )
        written = self.leases[metadata.name] = replace(found, metadata=metadata, spec=holder)
        return written

    @property
    def holders(self) -> list[str | None]:
        return [self.leases[name].spec.holder_identity for name in NAMES]


class Process:
    """A controller whose caches take 60 s to catch up with what the leader before it wrote."""

    def __init__(
        self, clock: Clock, monkeypatch: pytest.MonkeyPatch, api: LeaseApi | None = None
    ) -> None:
        self.api = api or LeaseApi()
        self.lost = asyncio.Event()
        self.cloud = Cloud(clock)
        client = cast("KubeClient", self.api)
        metrics = Metrics()
        self.controller = Controller(Settings(), client, client, self.cloud, metrics)
        self.controller.leases = leases_of(self, "me", clock)
        monkeypatch.setattr(self.controller.caches, "run", asyncio.Event().wait)
        monkeypatch.setattr(self.controller.caches, "synced", lambda: asyncio.sleep(0))
        monkeypatch.setattr(self.controller.caches, "refresh", lambda: asyncio.sleep(60))


def leases_of(process: Process, identity: str, clock: Clock) -> Leases:
    return Leases(
        cast("KubeClient", process.api),
        LeaseSettings(namespace="kube-system", names=NAMES, identity=identity),
        on_lost=process.lost.set,
        metrics=Metrics(),
        clock=clock,
    )


Story = Callable[[Process, asyncio.Event], Coroutine[Any, Any, None]]


def told(story: Story, monkeypatch: pytest.MonkeyPatch) -> LeaseApi:
    """Run the process until its end, in which the story has its part."""

    async def whole(clock: Clock) -> LeaseApi:
        process, stop = Process(clock, monkeypatch), asyncio.Event()
        running = asyncio.create_task(process.controller.run(stop))
        await story(process, stop)
        await running
        written = process.api.writes
        await asyncio.sleep(100)
        assert process.api.writes == written  # nothing takes back what was given up
        return process.api

    return in_virtual_time(whole)


def test_the_leases_are_renewed_while_the_caches_catch_up(monkeypatch: pytest.MonkeyPatch):
    async def story(process: Process, stop: asyncio.Event) -> None:
        await asyncio.sleep(59)
        assert not process.controller.leading.is_set()
        assert process.controller.leases.held()
        await asyncio.sleep(2)
        assert process.controller.still_leading()
        await asyncio.sleep(60)
        assert process.controller.still_leading()
        assert not process.lost.is_set()
        stop.set()

    assert told(story, monkeypatch).holders == ["", ""]


def test_a_stop_while_the_caches_catch_up_gives_the_leases_back(monkeypatch: pytest.MonkeyPatch):
    async def story(process: Process, stop: asyncio.Event) -> None:
        await asyncio.sleep(30)
        stop.set()

    assert told(story, monkeypatch).holders == ["", ""]


def test_a_lease_lost_while_the_caches_catch_up_ends_the_process(monkeypatch: pytest.MonkeyPatch):
    async def story(process: Process, stop: asyncio.Event) -> None:
        await asyncio.sleep(1)
        thief = {"holderIdentity": "thief", "leaseDurationSeconds": 15}
        process.api._write(process.api.leases["two"], thief)
        async with asyncio.timeout(10):
            await process.lost.wait()
        stop.set()

    assert told(story, monkeypatch).holders == ["", "thief"]


def without_credentials(process: Process) -> list[Unusable]:
    """What is wrong with a process, for the test to change; nothing at first."""
    wrong: list[Unusable] = []

    async def unusable() -> Unusable | None:
        return wrong[0] if wrong else None

    process.controller.aws_access._unusable = unusable  # type: ignore[method-assign]
    return wrong


def test_a_leader_without_credentials_gives_the_leases_to_one_that_has_some(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(clock: Clock) -> tuple[float, str]:
        api = LeaseApi()
        first = Process(clock, monkeypatch, api)
        wrong = without_credentials(first)
        running = asyncio.create_task(first.controller.run(asyncio.Event()))
        await first.controller.leading.wait()
        second, stop = Process(clock, monkeypatch, api), asyncio.Event()
        second.controller.leases = leases_of(second, "other", clock)
        standing_by = asyncio.create_task(second.controller.run(stop))
        await asyncio.sleep(100)
        assert not second.controller.leases.held()

        began_s = clock()
        wrong.append(Unusable(Reason.CREDENTIALS_INVALID, "no AWS credentials: none are found"))
        with pytest.raises(StorageError) as caught:
            await running
        await second.controller.leading.wait()
        took_s = clock() - began_s
        stop.set()
        await standing_by
        return took_s, caught.value.message

    took_s, message = in_virtual_time(story)

    assert took_s < 60 + 5 + 60 + 15  # patience, a look, its caches, a try
    assert "stops leading: no AWS credentials" in message


def test_where_no_replica_has_credentials_none_takes_the_leases(monkeypatch: pytest.MonkeyPatch):
    async def story(clock: Clock) -> LeaseApi:
        api = LeaseApi()
        process, stop = Process(clock, monkeypatch, api), asyncio.Event()
        wrong = without_credentials(process)
        wrong.append(Unusable(Reason.CREDENTIALS_INVALID, "no AWS credentials: none are found"))
        running = asyncio.create_task(process.controller.run(stop))
        await asyncio.sleep(3600)
        assert api.writes == 0

        wrong.clear()
        async with asyncio.timeout(70):
            await process.controller.leading.wait()
        stop.set()
        await running
        return api

    assert in_virtual_time(story).holders == ["", ""]
