"""Bodies of any size, sent in any way, whole or not."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webhook.front_world import (
    BODY,
    PODS,
    VOLUMES,
    Gate,
    later,
    raw,
    read_answer,
    review,
    until,
    world,
)
from webhook.model.fair_share import FairShares
from webhook.serving.server import Limits, _held

MIB = 1 << 20
KIB = 1 << 10
STRANGER = "127.0.0.2"


def large(size: int) -> bytes:
    """A review of this many bytes."""
    body = msgspec.json.encode(review(object={"data": ""}))
    return body.replace(b'"data":""', b'"data":"' + b"x" * (size - len(body)) + b'"')


async def test_a_body_of_9_mib_is_read():
    """As much as etcd stores may be, escaped."""
    async with world() as it:
        assert (await it.post(large(9 * MIB)))[0] == 200


@pytest.mark.parametrize("strict", [False, True])
async def test_a_review_of_11_mib_is_answered_by_policy_which_names_the_bound(*, strict: bool):
    async with world(strict=strict) as it:
        status, body = await it.post(large(11 * MIB), VOLUMES, url=it.url(VOLUMES))

    response = msgspec.json.decode(body)["response"]
    said = response["status"]["message"] if strict else response["warnings"][0]
    assert (status, response["uid"], response["allowed"]) == (200, "u-1", not strict)
    assert "the body has more than 10485760 bytes" in said
    assert response.get("status", {}).get("code") == (422 if strict else None)


@pytest.mark.parametrize("strict", [False, True])
async def test_a_pod_of_11_mib_may_name_another_tenants_volume_and_is_refused(*, strict: bool):
    async with world(strict=strict) as it:
        _, body = await it.post(large(11 * MIB))

    response = msgspec.json.decode(body)["response"]
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert "the body has more than 10485760 bytes" in response["status"]["message"]


async def test_11_mib_that_are_no_review_are_refused():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"x" * 5000, content_length=str(11 * MIB)))
        answer = await read_answer(reader)

    assert answer.status == 413
    assert answer.body == b"the body has more than 10485760 bytes\n"


async def test_who_declares_11_mib_and_sends_nothing_is_not_waited_for():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"", content_length=str(11 * MIB)))
        await until(lambda: it.counted("connections") == 1.0)
        await asyncio.sleep(0.05)  # until its head is read; if not, the test only says less
        later(Limits().body_s)

        assert (await read_answer(reader)).status == 413


async def test_a_body_without_a_length_is_refused():
    async with world() as it:
        assert (await it.post(BODY, chunked=True))[0] == 411


async def test_a_body_that_stops_half_way_ends():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(BODY)[:-10])
        await until(lambda: it.front._small_bodies.held)
        later(Limits().body_s)
        answer = await read_answer(reader)
        later(Limits().body_s)  # what else is sent is read for so long, and thrown away
        rest = await reader.read()

    assert (answer.status, rest) == (408, b"")
    assert answer.headers["connection"] == "close"


async def test_a_body_that_only_drips_ends_with_the_budget():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"", path=f"{PODS}?timeout=100ms", content_length="100000"))
        answering = asyncio.create_task(read_answer(reader))
        while not answering.done():
            writer.write(b" ")
            await asyncio.wait([answering], timeout=0.01)

    assert (await answering).status == 408


async def test_small_bodies_have_room_of_their_own():
    gate = Gate()
    async with world(gate, limits=Limits(bodies=MIB)) as it:
        first = asyncio.create_task(it.post(large(MIB)))
        await gate.begun.wait()
        refused, _ = await it.post(large(256 * KIB + 1))
        second = asyncio.create_task(it.post(large(256 * KIB)))
        await until(lambda: it.counted("reviews_in_flight") == 2.0)
        gate.open.set()

        assert refused == 503
        assert [(await each)[0] for each in (first, second)] == [200, 200]
        assert (it.front._bodies.held, it.front._small_bodies.held) == (0, 0)


@pytest.mark.parametrize(("room", "size"), [("small_bodies", 100 * KIB), ("bodies", MIB)])
async def test_bodies_that_a_stranger_declares_and_holds_back_go_for_the_api_servers(room, size):
    async with (
        world(limits=Limits(**{room: 2 * size})) as it,
        it.wire(peer=STRANGER) as first,
        it.wire(peer=STRANGER) as second,
    ):
        for number, (_, writer) in enumerate((first, second), 1):
            writer.write(raw(b" ", content_length=str(size)))
            held = it.front._bodies if room == "bodies" else it.front._small_bodies
            await until(lambda: held.held == number * size)  # noqa: B023 -- awaited here
        status, _ = await it.post(large(size - 100))

        assert status == 200
        assert (await read_answer(first[0])).status == 503
        second[1].write(b" " * size)
        assert (await read_answer(second[0])).status == 400


def of_many_parts(count: int) -> bytes:
    """A review whose object has so many lists that hold nothing."""
    body = msgspec.json.encode(review(object={"data": "?"}))
    return body.replace(b'"?"', b"[" + b",".join([b"[]"] * count) + b"]")


async def test_bodies_that_are_small_and_full_of_tiny_parts_have_a_bound_together():
    gate = Gate()
    async with world(gate, limits=Limits(parts=5_000)) as it:
        first = asyncio.create_task(it.post(of_many_parts(2_000)))
        await gate.begun.wait()
        refused, _ = await it.post(of_many_parts(2_000))
        gate.open.set()

        assert (refused, (await first)[0]) == (503, 200)
        assert (it.front._parts.held, it.front._small_bodies.held) == (0, 0)


async def test_a_strangers_tiny_parts_go_for_the_api_servers():
    gate = Gate()
    async with (
        world(gate, limits=Limits(parts=15_000)) as it,
        it.wire(peer=STRANGER) as first,
        it.wire(peer=STRANGER) as second,
    ):
        for number, (_, writer) in enumerate((first, second), 1):
            writer.write(raw(of_many_parts(3_000)))
            await until(lambda: it.front._parts.held > number * 6_000)  # noqa: B023 -- awaited here
        own = asyncio.create_task(it.post(of_many_parts(3_000)))

        assert (await read_answer(first[0])).status == 503
        gate.open.set()
        assert ((await own)[0], (await read_answer(second[0])).status) == (200, 200)


@pytest.mark.parametrize("rounds_later", range(3))
async def test_who_loses_a_second_share_while_it_ends_harms_nobody(rounds_later: int):
    """A timeout that is over cannot be set again until its task has heard of it, a round later."""
    bodies, parts = FairShares(20), FairShares(20)

    async def stranger() -> None:
        async with asyncio.timeout(None) as whole:
            with _held(bodies, STRANGER, 20, whole), _held(parts, STRANGER, 20, whole):
                await asyncio.Event().wait()

    async def api_server(room: FairShares, peer: str, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)
        async with asyncio.timeout(None) as whole:
            with _held(room, peer, 5, whole):
                await asyncio.sleep(0)

    ending = asyncio.create_task(stranger())
    await asyncio.sleep(0)
    found = await asyncio.gather(
        api_server(bodies, "api-1", 0),
        api_server(parts, "api-2", rounds_later),
        ending,
        return_exceptions=True,
    )

    assert [*found[:2]] == [None, None]
    assert isinstance(found[2], TimeoutError)


async def test_who_leaves_within_a_body_holds_nothing():
    async with world() as it:
        for _ in range(3):
            async with it.wire() as (_, writer):
                writer.write(raw(BODY)[:-10])
                await until(lambda: it.front._small_bodies.held)
            await until(lambda: not it.front._small_bodies.held)

        await until(lambda: it.counted("connections") == 0.0)


@given(body=st.binary(max_size=200) | st.builds(lambda text: text.encode(), st.text()))
@settings(max_examples=40)
def test_any_body_gets_a_complete_answer(body):
    async def scenario() -> None:
        async with world() as it, it.wire() as (reader, writer):
            writer.write(raw(body))
            answer = await read_answer(reader)
            assert answer.status in {200, 400}
            writer.write(raw(BODY))
            assert (await read_answer(reader)).status == 200

    asyncio.run(scenario())
