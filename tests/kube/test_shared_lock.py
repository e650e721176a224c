"""A lock that many may hold together, or one alone."""

import asyncio
from contextlib import suppress

from provisioner.kube.shared_lock import SharedLock
from tests.ec2.virtual_time import Clock, in_virtual_time


class Story:
    """What has been held, in the order of beginnings and ends."""

    def __init__(self) -> None:
        self.lock = SharedLock()
        self.seen: list[str] = []

    async def share(self, name: str, at_s: float, for_s: float) -> None:
        await asyncio.sleep(at_s)
        async with self.lock.shared():
            await self._hold(name, for_s)

    async def have_alone(self, name: str, at_s: float, for_s: float) -> None:
        await asyncio.sleep(at_s)
        async with self.lock.alone():
            await self._hold(name, for_s)

    async def _hold(self, name: str, for_s: float) -> None:
        self.seen.append(f"{name} begins")
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(for_s)
        self.seen.append(f"{name} ends")


def test_many_hold_it_together_and_who_wants_it_alone_is_passed_by_nobody() -> None:
    async def whole(_: Clock) -> list[str]:
        story = Story()
        await asyncio.gather(
            story.share("first", 0, 3),
            story.share("second", 1, 3),
            story.have_alone("alone", 2, 5),
            story.share("late", 2.5, 1),
        )
        return story.seen

    assert in_virtual_time(whole) == [
        *("first begins", "second begins", "first ends", "second ends"),
        *("alone begins", "alone ends", "late begins", "late ends"),
    ]


def test_who_gives_up_waiting_to_have_it_alone_lets_the_others_in() -> None:
    async def whole(_: Clock) -> list[str]:
        story = Story()
        waiting = asyncio.create_task(story.have_alone("alone", 1, 5))
        sharing = [story.share("first", 0, 4), story.share("late", 1.5, 1)]
        asyncio.get_running_loop().call_later(2, waiting.cancel)
        await asyncio.gather(*sharing)
        await asyncio.gather(waiting, return_exceptions=True)
        return story.seen

    assert in_virtual_time(whole) == ["first begins", "late begins", "late ends", "first ends"]
