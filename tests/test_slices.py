"""Going through many objects: all of them, while others on the loop go on."""

import asyncio
from collections.abc import Iterator

from provisioner.slices import between_slices, in_slices, slices_of


async def test_others_go_on_after_each_slice():
    seen: list[int | str] = []

    async def other() -> None:
        while True:
            seen.append("other")
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    async for each in in_slices(range(6), 2):
        seen += [each]
    beside.cancel()

    assert [each for each in seen if each != "other"] == [0, 1, 2, 3, 4, 5]
    assert seen[:8] == [0, 1, "other", 2, 3, "other", 4, 5]


async def test_a_slice_may_be_had_whole() -> None:
    assert [some async for some in slices_of("abcde", 2)] == [["a", "b"], ["c", "d"], ["e"]]


async def test_what_changes_meanwhile_is_neither_seen_nor_a_mistake():
    objects = {1: "a", 2: "b", 3: "c"}

    seen = []
    async for each in in_slices(objects.values(), 1):
        seen.append(each)
        objects.pop(3, None)
        objects[4] = "d"

    assert seen == ["a", "b", "c"]


async def test_others_go_on_between_two_slices_of_a_piece_of_work() -> None:
    done: list[str] = []

    def work() -> Iterator[None]:
        for slice_ in ("first", "second"):
            done.append(slice_)
            yield

    async def other() -> None:
        done.append("other")

    going_on = asyncio.ensure_future(other())
    await between_slices(work())
    await going_on

    assert done == ["first", "other", "second"]
