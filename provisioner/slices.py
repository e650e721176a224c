"""Going through all objects of a large cluster without holding up the event loop."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from typing import TypeVar

T = TypeVar("T")


async def in_slices(items: Collection[T], at_a_time: int = 2_000) -> AsyncIterator[T]:
    """Go through what is there now, with a pass of the event loop after each slice.

    Args:
        items: may be a live view: what changes meanwhile is not seen.
        at_a_time: of a slice; choose it so that one takes some milliseconds.
    """
    for number, each in enumerate(list(items), 1):
        yield each
        if number % at_a_time == 0:
            await asyncio.sleep(0)


async def between_slices(work: Iterator[None]) -> None:
    """Do a piece of work that is cut into slices, with a pass of the event loop after each."""
    for _ in work:
        await asyncio.sleep(0)
