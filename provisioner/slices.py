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
    async for some in slices_of(items, at_a_time):
        for each in some:
            yield each


async def slices_of(items: Collection[T], at_a_time: int = 2_000) -> AsyncIterator[list[T]]:
    """``in_slices``, for what takes many at once."""
    now = list(items)
    for at in range(0, len(now), at_a_time):
        yield now[at : at + at_a_time]
        await asyncio.sleep(0)


async def between_slices(work: Iterator[None]) -> None:
    """Do a piece of work that is cut into slices, with a pass of the event loop after each."""
    for _ in work:
        await asyncio.sleep(0)
