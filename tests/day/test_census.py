"""What is counted of a controller's memory, and what is not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from tests.day import census


class _Meta(msgspec.Struct, gc=False):
    names: tuple[str, ...]


@dataclass(slots=True)
class _Flow:
    """As the product's flows, from which an entry may leak."""

    by_uid: dict[str, _Meta] = field(default_factory=dict)


_Flow.__module__ = "provisioner.of_a_test"


class _Edge:
    def __init__(self) -> None:
        self.much = [object() for _ in range(1000)]


def test_an_entry_that_stays_is_counted_and_its_owner_named() -> None:
    flow = _Flow()
    before = census.count([flow], [], ())
    for n in range(100):
        flow.by_uid[f"uid-{n}"] = _Meta((f"name-{n}",))

    after = census.count([flow], [], ())

    assert after.objects - before.objects == 400  # keys, structs, tuples, names
    assert after.size_bytes > before.size_bytes
    assert after.containers == {"_Flow.by_uid": 100}


def test_what_is_beyond_the_edges_is_nobodys() -> None:
    edge = _Edge()
    holder = [edge]

    assert census.count([holder], [], ()).objects > 1000
    assert census.count([holder], [edge], ()).objects == 1
    assert census.count([holder], [], (_Edge,)).objects == 1


async def test_what_a_task_works_on_is_counted() -> None:
    async def work() -> None:
        held = [object() for _ in range(500)]
        await asyncio.Event().wait()
        del held

    task = asyncio.create_task(work())
    await asyncio.sleep(0)

    found = census.count([task], [asyncio.get_running_loop()], (type(asyncio.get_running_loop()),))

    assert found.objects > 500
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
