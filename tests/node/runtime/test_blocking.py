"""Looks that may hang: bounded, one at a time per key, and in nobody's way."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.runtime.blocking import BlockingCalls
from tests.node import threads

pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


async def test_gives_the_result_and_keeps_nothing():
    blocking = BlockingCalls()

    assert await blocking.call("a", lambda: 3, what="it") == 3
    assert len(blocking) == 0


async def test_raises_what_the_function_raises():
    def fails() -> None:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        await BlockingCalls().call("a", fails, what="it")


async def test_one_that_hangs_is_told_and_others_are_served():
    blocking, back = BlockingCalls(0.05), threading.Event()
    with pytest.raises(NodeError) as hangs:
        await blocking.call("a", back.wait, what="looking at /a")

    assert hangs.value.reason is Reason.TIMED_OUT
    assert hangs.value.message.startswith("looking at /a has been hanging for 0 s")
    assert await blocking.call("b", lambda: 3, what="it") == 3
    back.set()


async def test_of_one_key_one_runs_at_a_time():
    blocking, back = BlockingCalls(), threading.Event()
    order: list[str] = []

    def first() -> None:
        back.wait()
        order.append("first")

    one = asyncio.ensure_future(blocking.call("a", first, what="it"))
    two = asyncio.ensure_future(blocking.call("a", lambda: order.append("second"), what="it"))
    await asyncio.sleep(0)
    assert len(blocking) == 1
    back.set()
    await asyncio.gather(one, two)

    assert order == ["first", "second"]


async def test_a_waiter_that_leaves_lets_it_end():
    blocking, back = BlockingCalls(), threading.Event()
    waiter = asyncio.ensure_future(blocking.call("a", back.wait, what="it"))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert len(blocking) == 1
    back.set()

    assert await blocking.call("a", lambda: 3, what="it") == 3
    assert len(blocking) == 0


async def test_a_result_that_nobody_gets_is_taken_back_whenever_it_comes():
    blocking, back, told = BlockingCalls(0.05), threading.Event(), asyncio.Event()
    taken_back: list[str] = []

    def open_it() -> str:
        back.wait()
        return "a thing to be closed"

    with pytest.raises(NodeError):
        await blocking.call("a", open_it, what="it", undo=taken_back.append, if_left=told.set)
    assert told.is_set()
    assert taken_back == []
    back.set()
    await blocking.call("a", int, what="it")

    assert taken_back == ["a thing to be closed"]


async def test_what_is_not_bounded_is_waited_for_until_it_ends():
    blocking = BlockingCalls(0.0)

    await blocking.call("a", lambda: time.sleep(0.05), what="it", is_bounded=False)


async def test_a_thread_that_cannot_be_started_keeps_nobody():
    blocking = BlockingCalls(0.05)

    with threads.none_starts(), pytest.raises(NodeError) as refused:
        await blocking.call("a", lambda: 3, what="looking at /a")

    assert refused.value.reason is Reason.PROGRAM_MISSING
    assert refused.value.message.startswith("cannot start a thread (can't start new thread)")
    assert len(blocking) == 0
    assert await blocking.call("a", lambda: 3, what="looking at /a") == 3


def test_the_end_of_the_process_does_not_wait():
    script = (
        "import asyncio, threading\n"
        "from provisioner.node.runtime.blocking import BlockingCalls\n"
        "async def main():\n"
        "    waiter = asyncio.ensure_future(\n"
        "        BlockingCalls().call('a', threading.Event().wait, what='it'))\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "print('ended')\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script], timeout=60, check=True, capture_output=True, text=True
    )

    assert (ended.stdout, ended.stderr) == ("ended\n", "")
