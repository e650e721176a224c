"""Evictions are recorded before they are sent, hold to budgets, and can be repeated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import convert, structs, to_builtins

from provisioner.controller.moving.phase_rules import Await
from provisioner.controller.moving.pods.consumer_rules import GiveUp
from provisioner.controller.moving.pods.restart_rules import Evict
from provisioner.controller.moving.pods.restarts import Restarts
from provisioner.controller.shared.services import Services
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject
from provisioner.model.volume_move import VolumeMoveStatus
from provisioner.model.webhook_configuration import WebhookConfiguration
from provisioner.model.workload import ControlledPod
from tests.controller.move_record import FakeRecord
from tests.controller.moving.pods.test_gate_rules import a_hook
from tests.controller.moving.pods.test_restart_rules import a_pod, a_restart


class Record(FakeRecord):
    """The pods of the claim."""

    def __init__(self, *pods: ControlledPod) -> None:
        super().__init__(None)
        self.there = list(pods)

    async def pods(self, _: Any) -> list[Any]:
        return self.there


class Kube:
    """Answers of the API server, and what was evicted."""

    def __init__(self, failure: Exception | None = None, **found: Any) -> None:
        self.failure, self.found = failure, found
        self.evicted: list[Any] = []
        self.recorded_before: list[int] = []

    async def create(
        self, resource: Any, body: Any, namespace: str, *, name: str, subresource: str
    ) -> KubeObject:
        assert (resource.plural, namespace, subresource) == ("pods", "shop", "eviction")
        assert body["metadata"]["name"] == name
        self.evicted.append(body)
        if self.failure is not None:
            raise self.failure
        return KubeObject()

    async def get(self, resource: Any, name: str, _: str = "") -> Any:
        assert (resource.plural, name) == ("mutatingwebhookconfigurations", "ebs-webhook")
        if "webhooks" not in self.found:
            raise KubeError(Reason.OBJECT_NOT_FOUND, "there is none", status=404)
        return WebhookConfiguration(webhooks=self.found["webhooks"])


def restarts(record: Record, kube: Kube) -> Restarts:
    return Restarts(cast("Services", SimpleNamespace(client=kube)), cast("Any", record))


async def test_exactly_the_pod_that_was_seen_is_evicted_after_it_is_recorded():
    record, kube = Record(a_pod()), Kube()

    assert isinstance(await restarts(record, kube).stop(a_restart()), Evict)

    assert record.written[-1]["restarts"] == ["first"]
    assert record.announced == [
        "False pod web-0 of StatefulSet web is evicted; the one in its place starts after the swap"
    ]
    (sent,) = kube.evicted
    assert (sent["apiVersion"], sent["kind"]) == ("policy/v1", "Eviction")
    assert sent["deleteOptions"] == {"preconditions": {"uid": "first"}}


async def test_a_pod_that_the_plan_does_not_name_warns():
    record = Record(a_pod("web-7", "later"))

    await restarts(record, Kube()).stop(a_restart())

    (said,) = record.announced
    assert said.startswith("True pod web-7")


async def test_pods_that_came_after_the_plan_are_all_evicted_and_may_come_back_as_often():
    """Of one planned pod, there are five by now: none of them was held back, or could be."""
    record, move = Record(*(a_pod(f"web-{at}", f"first-{at}") for at in range(5))), a_restart()

    async def evict() -> Any:
        nonlocal move
        step = await restarts(record, Kube()).stop(move)
        if isinstance(step, Evict):
            status = {**to_builtins(move.told), **record.written[-1]}
            move = structs.replace(move, status=convert(status, VolumeMoveStatus))
            record.there = [each for each in record.there if each.uid != step.pod.uid]
        return step

    for _ in range(5):
        assert isinstance(await evict(), Evict)
    assert (await evict(), len(move.told.restarts)) == (None, 5)

    for at in range(15):
        record.there = [a_pod(f"web-{at % 5}", f"again-{at}")]
        assert isinstance(await evict(), Evict)
    record.there = [a_pod("web-0", "once more")]
    assert isinstance(await evict(), GiveUp)


async def test_after_a_crash_the_recorded_eviction_is_sent_and_nothing_written():
    record, kube = Record(a_pod()), Kube()

    await restarts(record, kube).stop(a_restart("first"))

    assert (len(kube.evicted), record.written) == (1, [])


async def test_a_lost_record_sends_no_eviction():
    class Broken(Record):
        async def announce(self, *_: Any, **__: Any) -> Any:
            raise KubeError(Reason.CONFLICT, "the move has changed")

    kube = Kube()
    with pytest.raises(KubeError):
        await restarts(Broken(a_pod()), kube).stop(a_restart())
    assert kube.evicted == []


@pytest.mark.parametrize(
    "refusal",
    [
        KubeError(Reason.THROTTLED, "it would violate the pod's disruption budget"),
        # As the API server answers, with 500; nothing was evicted.
        KubeError(
            Reason.REPLY_LOST,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support (disruption budget a and b)",
        ),
    ],
)
async def test_a_budget_that_does_not_allow_it_is_waited_for_and_told(refusal: KubeError):
    step = await restarts(Record(a_pod()), Kube(refusal)).stop(a_restart("first"))

    assert isinstance(step, Await)
    assert "pod web-0 may not be evicted yet" in step.message
    assert "disruption budget" in step.message
    assert "PodDisruptionBudget" in step.message


@pytest.mark.parametrize("reason", [Reason.OBJECT_NOT_FOUND, Reason.CONFLICT])
async def test_a_pod_that_is_gone_or_another_one_by_now_needs_no_eviction(reason: Reason):
    kube = Kube(KubeError(reason, "it is not there"))

    assert isinstance(await restarts(Record(a_pod()), kube).stop(a_restart("first")), Evict)


async def test_the_hold_is_read_from_the_webhooks_configuration():
    there = restarts(Record(), Kube(webhooks=[a_hook()]))

    assert await there.has_hold("shop")
    assert not await there.has_hold("kube-system")
    assert not await restarts(Record(), Kube(webhooks=None)).has_hold("shop")
    assert not await restarts(Record(), Kube()).has_hold("shop")
