"""Who asks the same at the same time shares an answer, which is never older than the question."""

import asyncio
import itertools

import pytest

from provisioner.kube.shared_reads import SharedReads


class Server:
    """Answers with a number of its own each time; ``gate`` holds answers back."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began = 0
        self.failure: Exception | None = None
        self._numbers = itertools.count(1)

    async def ask(self) -> int:
        self.began = number = next(self._numbers)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return number


async def asked(reads: SharedReads[int], server: Server, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(reads.read("pods", server.ask)) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_those_who_ask_at_the_same_time_share_one_request():
    reads, server = SharedReads[int](), Server()
    tasks = await asked(reads, server, 3)
    server.gate.set()

    assert await asyncio.gather(*tasks) == [1, 1, 1]


async def test_an_answer_to_a_request_that_had_begun_before_is_nobodys_who_asks_later():
    reads, server = SharedReads[int](), Server()
    first = await asked(reads, server, 1)
    later = await asked(reads, server, 2)
    assert server.began == 1
    server.gate.set()

    assert await asyncio.gather(*first, *later) == [1, 2, 2]
    assert await asyncio.gather(*await asked(reads, server, 2)) == [3, 3]


async def test_other_questions_do_not_wait():
    reads, server, free = SharedReads[int](), Server(), Server()
    tasks = await asked(reads, server, 1)
    free.gate.set()

    assert await reads.read("quotas", free.ask) == 1
    server.gate.set()
    assert await asyncio.gather(*tasks) == [1]


async def test_a_failure_is_everybodys_and_the_next_request_is_another_one():
    reads, server = SharedReads[int](), Server()
    server.failure = ValueError("no")
    server.gate.set()

    for each in await asked(reads, server, 2):
        with pytest.raises(ValueError, match="no"):
            await each
    server.failure = None
    assert await reads.read("pods", server.ask) == 2


async def test_who_is_cancelled_takes_nothing_from_the_others():
    reads, server = SharedReads[int](), Server()
    first, second = await asked(reads, server, 2)
    first.cancel()
    server.gate.set()

    assert await second == 1
    (ended,) = await asyncio.gather(first, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    assert await reads.read("pods", server.ask) == 2
