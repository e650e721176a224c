"""Tests that leak a task, and one that does not; ``test_leak_check.py`` runs them by this name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

_kept: list[asyncio.Task[None]] = []


def leave_behind() -> None:
    _kept.append(asyncio.create_task(asyncio.sleep(60), name="left behind"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def busy() -> AsyncIterator[asyncio.Event]:
    """A long-lived task that starts others while tests run."""
    go = asyncio.Event()

    async def start_others() -> None:
        await go.wait()
        await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))

    task = asyncio.create_task(start_others(), name="of the module")
    yield go
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="module")
async def careless() -> None:
    leave_behind()


async def test_leaks_in_its_own_loop():
    leave_behind()


@pytest.mark.asyncio(loop_scope="module")
async def test_is_innocent(busy: asyncio.Event):
    busy.set()
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.asyncio(loop_scope="module")
async def test_leaks_in_the_modules_loop(busy: asyncio.Event):
    leave_behind()


@pytest.mark.asyncio(loop_scope="module")
async def test_has_a_fixture_that_leaks(busy: asyncio.Event, careless: None):
    pass


@pytest.mark.asyncio(loop_scope="module")
async def test_comes_after_those_that_leaked(busy: asyncio.Event):
    pass
