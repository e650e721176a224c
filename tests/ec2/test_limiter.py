import asyncio

import pytest

from provisioner.ec2.limiter import RESERVE, Limiter, Rate, Rates, Urgency, documented
from provisioner.metrics import Metrics
from tests.ec2.simulated_ec2 import Run, run
from tests.ec2.virtual_time import Clock, in_virtual_time

CREATE, ATTACH = documented("CreateVolume"), documented("AttachVolume")
FEW = Rates({"CreateVolume": Rate(1, 1)})


def simulate(
    count: int, action: str, quota: Rate, *, tokens: float | None = None, after_s: float = 0.0
) -> Run:
    result = in_virtual_time(
        lambda clock: run(count, action, quota, clock, tokens=tokens, after_s=after_s)
    )
    print(f"{count} {action} at {quota.burst:.0f}:{quota.per_s:.0f}/s: {result}")  # noqa: T201 -- with -s, figures
    return result


def test_300_creates_at_the_documented_quota_take_hardly_longer_than_aws_allows() -> None:
    floor_s = (300 - CREATE.burst) / CREATE.per_s

    result = simulate(300, "CreateVolume", CREATE)

    assert result.seconds <= 1.08 * floor_s
    assert result.throttled_share <= 0.02


def test_a_long_run_at_the_documented_quota_is_hardly_ever_throttled() -> None:
    result = simulate(3000, "CreateVolume", CREATE)

    assert result.seconds <= 1.02 * (3000 - CREATE.burst) / CREATE.per_s
    assert result.throttled_share <= 0.005


def test_a_quota_raised_20_times_is_used_within_seconds_without_a_flag() -> None:
    result = simulate(1000, "AttachVolume", ATTACH.times(20), after_s=2.0)

    assert result.seconds <= 9.0
    assert not result.throttled_at


async def attach_raised_then_detach(quota: Rate, clock: Clock) -> Run:
    limiter = Limiter(clock=clock)
    await run(1000, "AttachVolume", ATTACH.times(20), clock, limiter=limiter)
    return await run(1000, "DetachVolume", quota, clock, limiter=limiter)


def test_an_action_begins_where_another_was_seen_to_be_raised() -> None:
    first = simulate(1000, "DetachVolume", ATTACH.times(20))

    second = in_virtual_time(lambda clock: attach_raised_then_detach(ATTACH.times(20), clock))

    print(f"after the raised action: {second}")  # noqa: T201 -- with -s, figures
    assert second.seconds <= first.seconds - 1.0
    assert not second.throttled_at


def test_an_action_that_alone_was_not_raised_costs_one_round_of_throttles() -> None:
    result = in_virtual_time(lambda clock: attach_raised_then_detach(ATTACH, clock))

    print(f"after the raised action: {result}")  # noqa: T201 -- with -s, figures
    assert result.seconds <= 1.02 * (1000 - ATTACH.burst) / ATTACH.per_s
    assert len(result.throttled_at) <= 64 + 6


def test_a_token_given_back_after_a_throttle_is_void() -> None:
    async def story(clock: Clock) -> float:
        limiter = Limiter(Rates({"CreateVolume": Rate(10, 1)}), clock=clock)
        unsent = [await limiter.acquire("CreateVolume") for _ in range(9)]
        sent = await limiter.acquire("CreateVolume")
        await asyncio.sleep(0.2)
        limiter.throttled(sent)
        for grant in unsent:
            limiter.give_back(grant)
        began_s = clock()
        await limiter.acquire("CreateVolume")
        limiter.close()
        return clock() - began_s

    assert in_virtual_time(story) == pytest.approx(2.0, abs=0.6)


@pytest.mark.parametrize("factor", [2, 3, 5, 10])
def test_a_quota_raised_a_little_is_found_after_the_first_throttle(factor: float) -> None:
    quota = ATTACH.times(factor)
    floor_s = (1000 - quota.burst) / quota.per_s

    result = simulate(1000, "AttachVolume", quota)

    assert result.seconds <= 1.1 * floor_s + 10.0
    assert result.throttled_share <= 0.08


def test_an_account_that_others_use_too_is_shared_with_few_throttles() -> None:
    result = simulate(300, "CreateVolume", Rate(100, 2))

    assert result.seconds <= 1.1 * 200 / 2
    assert result.throttled_share <= 0.10


def test_a_burst_that_is_already_used_up_costs_one_round_of_throttles() -> None:
    result = simulate(300, "CreateVolume", CREATE, tokens=0.0)

    assert result.seconds <= 1.08 * 300 / CREATE.per_s
    assert len(result.throttled_at) <= 64 + 6


def test_callers_of_one_action_go_first_come_first_served() -> None:
    async def story(clock: Clock) -> list[int]:
        order: list[int] = []
        limiter = Limiter(FEW, clock=clock)

        async def caller(name: int) -> None:
            await limiter.acquire("CreateVolume")
            order.append(name)
            limiter.release()

        async with asyncio.TaskGroup() as group:
            for name in range(20):
                group.create_task(caller(name))
        limiter.close()
        return order

    assert in_virtual_time(story) == list(range(20))


def test_background_calls_wait_until_nobody_else_does() -> None:
    async def story(clock: Clock) -> list[str]:
        order: list[str] = []
        limiter = Limiter(FEW, clock=clock)

        async def caller(name: str, urgency: Urgency) -> None:
            await limiter.acquire("CreateVolume", urgency)
            order.append(name)
            limiter.release()

        await limiter.acquire("CreateVolume")
        async with asyncio.TaskGroup() as group:
            group.create_task(caller("sweep", Urgency.BACKGROUND))
            await asyncio.sleep(0)
            group.create_task(caller("claim", Urgency.NORMAL))
        limiter.close()
        return order

    assert in_virtual_time(story) == ["claim", "sweep"]


async def _patient_beside_others(clock: Clock) -> tuple[Run, list[float]]:
    """200 patient creates at the documented quota; how long each of 20 others waits for leave."""
    limiter = Limiter(clock=clock)
    waits_s: list[float] = []

    async def others() -> None:
        for _ in range(20):
            await asyncio.sleep(1)
            asked_at = clock()
            await limiter.acquire("CreateVolume")
            waits_s.append(clock() - asked_at)
            limiter.release()

    beside = asyncio.create_task(others())
    action, quota = "CreateVolume", CREATE
    patient = Urgency.PATIENT
    done = await run(200, action, quota, clock, limiter=limiter, urgency=patient)
    await beside
    return done, waits_s


def test_patient_calls_leave_enough_tokens_for_who_comes_now_and_then() -> None:
    result, waits_s = in_virtual_time(_patient_beside_others)

    assert waits_s == [0.0] * 20
    assert not result.throttled_at
    # 220 calls and the reserve, of the same bucket
    assert result.seconds <= 1.05 * (220 + RESERVE - CREATE.burst) / CREATE.per_s


def test_patient_calls_never_try_whether_a_quota_is_raised() -> None:
    async def story(clock: Clock) -> tuple[Run, float]:
        limiter = Limiter(clock=clock)
        quota = CREATE.times(20)
        patient = Urgency.PATIENT
        done = await run(300, "CreateVolume", quota, clock, limiter=limiter, urgency=patient)
        return done, limiter.per_s("CreateVolume")

    result, per_s = in_virtual_time(story)

    assert per_s == CREATE.per_s
    assert result.seconds >= (300 - CREATE.burst) / CREATE.per_s


def test_the_rate_recovers_from_a_throttle_while_only_patient_calls_wait() -> None:
    async def story(clock: Clock) -> tuple[float, float]:
        limiter = Limiter(clock=clock)
        for _ in range(10):
            await asyncio.sleep(2)
            limiter.throttled(await limiter.acquire("CreateVolume"))
            limiter.release()
        low = limiter.per_s("CreateVolume")
        patient = Urgency.PATIENT
        await run(200, "CreateVolume", CREATE, clock, limiter=limiter, urgency=patient)
        return low, limiter.per_s("CreateVolume")

    low, after = in_virtual_time(story)

    assert low < 0.5 * CREATE.per_s
    assert after == CREATE.per_s


def test_a_bucket_smaller_than_what_is_left_to_others_serves_patient_calls_too() -> None:
    async def story(clock: Clock) -> float:
        limiter = Limiter(FEW, clock=clock)
        for _ in range(3):
            await limiter.acquire("CreateVolume", Urgency.PATIENT)
            limiter.release()
        limiter.close()
        return clock()

    assert in_virtual_time(story) == pytest.approx(2.0, abs=0.1)


def test_while_threads_are_short_what_frees_something_goes_first() -> None:
    async def story(clock: Clock) -> list[str]:
        order: list[str] = []
        limiter = Limiter(at_once=1, clock=clock)

        async def caller(action: str, urgency: Urgency) -> None:
            await limiter.acquire(action, urgency)
            order.append(action)
            await asyncio.sleep(1)
            limiter.release()

        async with asyncio.TaskGroup() as group:
            group.create_task(caller("DescribeVolumes", Urgency.BACKGROUND))
            await asyncio.sleep(0.5)
            group.create_task(caller("AttachVolume", Urgency.NORMAL))
            await asyncio.sleep(0)
            group.create_task(caller("DetachVolume", Urgency.RELEASE))
        limiter.close()
        return order

    assert in_virtual_time(story) == ["DescribeVolumes", "DetachVolume", "AttachVolume"]


def test_one_action_that_is_throttled_does_not_hold_up_another() -> None:
    async def story(clock: Clock) -> float:
        limiter = Limiter(FEW, at_once=2, clock=clock)
        await limiter.acquire("CreateVolume")
        stuck = asyncio.create_task(limiter.acquire("CreateVolume"))
        await asyncio.sleep(0)
        asked_at = clock()
        await limiter.acquire("AttachVolume")
        waited_s = clock() - asked_at
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        limiter.close()
        return waited_s

    assert in_virtual_time(story) == 0


def test_a_throttled_caller_keeps_its_place_in_the_queue() -> None:
    async def story(clock: Clock) -> list[str]:
        order: list[str] = []
        limiter = Limiter(Rates({"CreateVolume": Rate(1, 1)}), clock=clock)
        first = await limiter.acquire("CreateVolume")

        async def later() -> None:
            await limiter.acquire("CreateVolume")
            order.append("later")
            limiter.release()

        other = asyncio.create_task(later())
        await asyncio.sleep(0)
        limiter.throttled(first)
        limiter.release()
        await limiter.acquire("CreateVolume", place=first.place)
        order.append("first")
        limiter.release()
        await other
        limiter.close()
        return order

    assert in_virtual_time(story) == ["first", "later"]


def test_a_caller_that_gives_up_leaves_token_and_thread_to_the_next() -> None:
    async def story(clock: Clock) -> float:
        limiter = Limiter(Rates({"CreateVolume": Rate(1, 1)}), at_once=1, clock=clock)
        await limiter.acquire("CreateVolume")
        waiting = [asyncio.create_task(limiter.acquire("CreateVolume")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(2)
        limiter.release()  # grants to waiting[1] …
        waiting[1].cancel()  # … who leaves before it has noticed
        await asyncio.gather(*waiting[:2], return_exceptions=True)
        got_at = clock()
        await waiting[2]
        limiter.close()
        return clock() - got_at

    assert in_virtual_time(story) < 1.0


def test_a_rate_above_the_documented_one_survives_a_pause() -> None:
    async def story(clock: Clock) -> tuple[float, float]:
        limiter = Limiter(clock=clock)
        async with asyncio.TaskGroup() as group:
            for _ in range(200):
                group.create_task(_one(limiter))
        learnt = limiter.per_s("AttachVolume")
        await asyncio.sleep(600)
        limiter.close()
        return learnt, limiter.per_s("AttachVolume")

    learnt, later = in_virtual_time(story)

    assert learnt > ATTACH.per_s
    assert later == learnt


def test_waiting_for_threads_is_no_reason_to_raise_the_rate() -> None:
    async def story(clock: Clock) -> float:
        limiter = Limiter(at_once=2, clock=clock)
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(_one(limiter, 1.0))
        limiter.close()
        return limiter.per_s("AttachVolume")

    assert in_virtual_time(story) == ATTACH.per_s


def test_says_how_long_callers_waited() -> None:
    async def story(clock: Clock) -> float | None:
        metrics = Metrics()
        limiter = Limiter(FEW, metrics=metrics, clock=clock)
        await limiter.acquire("CreateVolume")
        await limiter.acquire("CreateVolume")
        limiter.close()
        return metrics.registry.get_sample_value(
            "ebs_provisioner_ec2_limiter_wait_seconds_total", {"action": "CreateVolume"}
        )

    assert in_virtual_time(story) == pytest.approx(0.75, abs=0.3)


async def _one(limiter: Limiter, seconds: float = 0.1) -> None:
    await limiter.acquire("AttachVolume")
    await asyncio.sleep(seconds)
    limiter.release()
