"""A call whose thread is held up on its way to EC2 (signing, connecting) leaves in time or never."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from provisioner.ec2 import calls as calls_module
from provisioner.ec2.calls import Ec2Calls
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.sandbox.strict_ec2.client import StrictEc2

ATTACH = {"VolumeId": "vol-0123456789abcdef0", "InstanceId": "i-0123456789abcdef0"}


class Signing:
    """Keeps each request between its thread and EC2 until it is let go."""

    def __init__(self, calls: Ec2Calls) -> None:
        self.reached = asyncio.Event()
        self._let_go = threading.Event()
        self._loop = asyncio.get_running_loop()
        calls._client.meta.events.register("before-sign.ec2", self._hold)

    def _hold(self, **_: object) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        self._let_go.wait(60)

    def let_go(self) -> None:
        self._let_go.set()


async def held_up(
    calls: Ec2Calls, action: str = "AttachVolume"
) -> tuple[Signing, asyncio.Task[Any]]:
    signing = Signing(calls)
    params = ATTACH if action == "AttachVolume" else {}
    calling = asyncio.create_task(calls.call(action, params))
    await signing.reached.wait()
    return signing, calling


async def refused(calling: asyncio.Task[Any]) -> Ec2Error:
    with pytest.raises(Ec2Error) as caught:
        await calling
    return caught.value


async def test_a_call_that_was_given_up_never_reaches_ec2(
    calls: Ec2Calls, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(calls_module, "CALL_TIMEOUT_S", 0.02)
    monkeypatch.setattr(calls_module, "LEAVES_WITHIN_S", 0.01)
    signing, calling = await held_up(calls)
    assert (await refused(calling)).reason is Reason.REPLY_LOST

    signing.let_go()
    calls._threads.shutdown(wait=True)

    assert "AttachVolume" not in strict_ec2.counts()


async def test_a_call_that_is_late_but_waited_for_has_done_nothing(
    calls: Ec2Calls, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(calls_module, "LEAVES_WITHIN_S", 0.0)
    signing, calling = await held_up(calls)
    signing.let_go()

    error = await refused(calling)

    assert (error.reason, error.outcome) == (Reason.TIMED_OUT, Outcome.NOTHING)
    assert "AttachVolume" not in strict_ec2.counts()


async def test_a_call_that_has_the_lease_lost_under_it_does_not_leave(
    calls: Ec2Calls, strict_ec2: StrictEc2
):
    leads = True
    calls.may_change = lambda: leads
    signing, calling = await held_up(calls)
    leads = False
    signing.let_go()

    error = await refused(calling)

    assert (error.reason, error.outcome) == (Reason.NOT_LEADING, Outcome.NOTHING)
    assert "AttachVolume" not in strict_ec2.counts()


async def test_a_call_that_sigterm_meets_in_its_thread_does_not_leave(
    calls: Ec2Calls, strict_ec2: StrictEc2
):
    signing, calling = await held_up(calls)
    calls.stop_changing()
    signing.let_go()

    assert (await refused(calling)).reason is Reason.NOT_LEADING
    assert "AttachVolume" not in strict_ec2.counts()


async def test_nothing_leaves_once_the_edge_is_closed(calls: Ec2Calls, strict_ec2: StrictEc2):
    signing, calling = await held_up(calls, "DescribeVolumes")
    began_s = time.monotonic()
    await calls.close()
    assert time.monotonic() - began_s < 30  # the call under way, which takes 60, is not waited for
    signing.let_go()

    assert (await refused(calling)).reason is Reason.NOT_LEADING
    assert "DescribeVolumes" not in strict_ec2.counts()


async def test_a_call_that_is_held_up_for_a_moment_leaves(calls: Ec2Calls, strict_ec2: StrictEc2):
    signing, calling = await held_up(calls, "DescribeVolumes")
    signing.let_go()

    assert await calling
    assert strict_ec2.counts()["DescribeVolumes"] == 1
