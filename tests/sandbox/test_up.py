from __future__ import annotations

import asyncio

import pytest

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.up import beside


async def test_the_block_and_the_work_beside_it_go_on_together() -> None:
    block, work = asyncio.Event(), asyncio.Event()

    async def both() -> None:
        work.set()
        await block.wait()

    async with beside(both()):
        await work.wait()
        block.set()


async def test_the_end_of_the_block_waits_for_the_work() -> None:
    done = []

    async def some() -> None:
        await asyncio.sleep(0)
        done.append("work")

    async with beside(some()):
        done.append("block")

    assert done == ["block", "work"]


async def test_what_the_work_raises_is_raised_at_the_end_of_the_block() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise SandboxError("the start of the webhook took more than 60 s")

    with pytest.raises(SandboxError, match="the start of the webhook"):
        async with beside(fails()):
            await asyncio.sleep(0)


@pytest.mark.parametrize("fails_too", [False, True])
async def test_a_block_that_fails_gives_the_work_up_and_is_what_is_told(fails_too: bool) -> None:  # noqa: FBT001
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")
            if fails_too:
                raise SandboxError("the webhook failed as well")

    async def block() -> None:
        async with beside(work()):
            await asyncio.sleep(0)
            raise SandboxError("the node died")

    with pytest.raises(SandboxError, match="the node died"):
        await block()

    assert ended == ["work"]
