"""Tests of one module that run at the same time, because most of their time is waiting.

Each is a story in a place of its own, mostly a ``Place``. The first test that is asked for starts all that were
selected; a test then only waits for the end of its own story.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

STORY_S = 200.0

Story = Callable[..., Coroutine[Any, Any, None]]
Open = AbstractAsyncContextManager[Any]


class Stories:
    """The stories under way, by the ids of their tests."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def end_of(self, test_id: str) -> None:
        await self.tasks[test_id]


class Together:
    """The stories of one module; ``fixture`` has those under way, each for ``within_s`` at most."""

    def __init__(self, fixture: str = "stories", within_s: float = STORY_S) -> None:
        self._fixture = fixture
        self._within_s = within_s
        self._stories: dict[str, Story] = {}

    def test(self, story: Story) -> Callable[..., Awaitable[None]]:
        """Make a test of a story, whose first parameter is ``place``."""
        self._stories[story.__name__] = story

        @functools.wraps(story)
        async def wait(request: pytest.FixtureRequest, **given: Any) -> None:
            await given[self._fixture].end_of(request.node.nodeid)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        given = [p for name, p in inspect.signature(story).parameters.items() if name != "place"]
        ours = [inspect.Parameter(name, kind) for name in (self._fixture, "request")]
        vars(wait)["__signature__"] = inspect.Signature([*ours, *given])
        return wait

    @asynccontextmanager
    async def started(
        self, a_place: Callable[[], Open], request: pytest.FixtureRequest
    ) -> AsyncIterator[Stories]:
        """Start the stories of the tests that were selected in this module.

        Args:
            a_place: opens the place of one story.
            request: of the fixture.
        """
        stories = Stories()
        for item in request.session.items:
            if item.path != request.path or not isinstance(item, pytest.Function):
                continue
            if any(mark.args[0] for mark in item.iter_markers("skipif")):
                continue
            story = self._stories.get(item.originalname)
            if story is not None:
                arguments = item.callspec.params if hasattr(item, "callspec") else {}
                told = _tell(a_place(), story, dict(arguments), self._within_s)
                stories.tasks[item.nodeid] = asyncio.create_task(told, name=item.name)
        try:
            yield stories
        finally:
            for task in stories.tasks.values():
                task.cancel()
            await asyncio.gather(*stories.tasks.values(), return_exceptions=True)


async def _tell(opened: Open, story: Story, arguments: dict[str, Any], within_s: float) -> None:
    async with asyncio.timeout(within_s), opened as place:
        await story(place, **arguments)
