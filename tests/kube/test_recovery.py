"""How soon work goes on once what stood in its way is gone."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.kube.failures import Attempt, of_answer
from provisioner.kube.queue import KeyedQueue
from provisioner.metrics import Metrics
from provisioner.model.decision import SETTLED, Next
from provisioner.model.errors import KubeError, Reason, StorageError
from tests.ec2.virtual_time import Clock, in_virtual_time

GONE_AFTER_S = 1200.0
WRITE = Attempt("patch", "persistentvolumes pv-1")


def answered(code: int, reason: str) -> KubeError:
    body = f'{{"kind":"Status","reason":"{reason}","message":"no","code":{code}}}'
    return of_answer(WRITE, code, body.encode())


def late_by_s(error: StorageError) -> float:
    """How long after the end of its cause a key that has failed for 20 minutes succeeds."""

    async def story(clock: Clock) -> float:
        done: list[float] = []

        async def handler(_: str) -> Next:
            if clock() < GONE_AFTER_S:
                raise error
            done.append(clock())
            return SETTLED

        queue = KeyedQueue("flow", handler, Metrics(), random=lambda: 1.0)
        work = asyncio.create_task(queue.run())
        queue.add("a")
        await asyncio.sleep(GONE_AFTER_S + 400)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return done[0] - GONE_AFTER_S

    return in_virtual_time(story)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(answered(401, "Unauthorized"), id="a token that was renewed"),
        pytest.param(answered(429, "TooManyRequests"), id="an API server that was busy"),
        pytest.param(answered(500, "InternalError"), id="a webhook or an etcd that was away"),
        pytest.param(answered(503, "ServiceUnavailable"), id="an API server that was away"),
        pytest.param(answered(504, "Timeout"), id="an API server that was slow"),
        pytest.param(
            StorageError(Reason.CREDENTIALS_INVALID, "expired"), id="AWS credentials, renewed"
        ),
    ],
)
def test_work_goes_on_within_30_s_after_an_outage(error: KubeError):
    assert late_by_s(error) <= 30


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(answered(403, "Forbidden"), id="a right that is missing"),
        pytest.param(answered(422, "Invalid"), id="an object that is refused"),
        pytest.param(StorageError(Reason.INVALID_REQUEST, "no"), id="what EC2 cannot do"),
    ],
)
def test_what_was_refused_is_asked_for_every_five_minutes_at_most(error: StorageError):
    assert 30 < late_by_s(error) <= 300
