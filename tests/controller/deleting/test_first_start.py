"""Thousands of PersistentVolumes lack our finalizer when we first start: nobody waits for that."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from provisioner.controller.deleting.flow import Deleter
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.kube.client import CONCURRENCY, KubeClient, Transport
from provisioner.kube.resources import CLAIMS
from provisioner.metrics import Metrics
from provisioner.model.persistent_volume import PROVISIONER_FINALIZER
from tests.builders import DRIVER, a_persistent_volume
from tests.controller.services import CurrentCaches
from tests.ec2.virtual_time import Clock, in_virtual_time

COUNT = 300


class SlowApi:
    """A transport as ours: some requests at once, the others in order. Each takes 0.2 s."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self.answered: list[str] = []

    async def send(self, _: object, __: str, path: str, **___: Any) -> bytes:
        async with self._slots:
            await asyncio.sleep(0.2)
            self.answered.append(path)
            name = path.rpartition("/")[2]
            finalizers = [PROVISIONER_FINALIZER]
            meta = {"name": name, "resourceVersion": "9", "finalizers": finalizers}
            return json.dumps({"metadata": meta}).encode()


def test_a_claims_request_waits_for_few_of_those_that_add_finalizers():
    async def story(clock: Clock) -> tuple[float, int]:
        api, caches = SlowApi(), CurrentCaches()
        client = KubeClient(cast("Transport", api))
        for number in range(COUNT):
            lacking = a_persistent_volume(f"pv-{number}", uid=f"uid-{number}", finalizers=())
            caches.persistent_volumes._store.apply(lacking)
        services = SimpleNamespace(
            settings=Settings(driver=DRIVER),
            client=client,
            caches=caches,
            volumes=None,
            unclaimed=None,
            events=None,
            metrics=Metrics(),
        )
        deleter = Deleter(cast("Services", services))
        deleter.subscribe()
        running = asyncio.create_task(deleter.queue.run())
        await asyncio.sleep(0.3)
        began_s = clock()
        await client.get(CLAIMS, "data", "shop")
        waited_s = clock() - began_s
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return waited_s, len({path for path in api.answered if "persistentvolumes/" in path})

    waited_s, added = in_virtual_time(story)

    assert (round(waited_s, 3), added) == (0.2, COUNT)
