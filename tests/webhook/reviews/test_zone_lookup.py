"""Where a volume is: EC2 is asked seldom, believed once it has answered, never waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from provisioner.model.errors import Ec2Error, Reason
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.webhook.edges import Ec2, failing
from webhook.metrics import WebhookMetrics
from webhook.model.fair_share import PEER
from webhook.reviews import zone_lookup as lookup_module
from webhook.reviews.persistent_volume_rules import Doubt, Found, Missing
from webhook.reviews.zone_lookup import ZoneLookup

A, B = "us-east-1a", "us-east-1b"
Story = Callable[[ZoneLookup, Clock], Awaitable[Any]]


def told(ec2: Ec2, story: Story, metrics: WebhookMetrics | None = None) -> Any:
    """Run a story with a look-up over this EC2, in virtual time."""

    async def whole(clock: Clock) -> Any:
        lookup = ZoneLookup(ec2.volumes, metrics or WebhookMetrics())
        try:
            return await story(lookup, clock)
        finally:
            await lookup.close()

    return in_virtual_time(whole)


def no(reason: Reason) -> Ec2Error:
    message = "arn:aws:sts::123456789012:assumed-role/secret is not authorized"
    return Ec2Error(reason, message, action="DescribeVolumes")


def test_a_zone_is_asked_for_once_and_known_for_ever():
    ec2 = Ec2({"vol-1": A})

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        first = await lookup.zone("vol-1", deadline=clock() + 3)
        ec2.zones.clear()
        await asyncio.sleep(1_000_000)
        return [first, await lookup.zone("vol-1", deadline=clock())]

    assert told(ec2, story) == [Found(A), Found(A)]
    assert ec2.asked == [["vol-1"]]


def test_whether_it_still_exists_is_asked_again_after_minutes():
    ec2 = Ec2({"vol-1": A})

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        async def answer() -> Any:
            return await lookup.zone("vol-1", deadline=clock() + 3, existing=True)

        said = [await answer()]
        ec2.zones.clear()
        said.append(await answer())
        await asyncio.sleep(301)
        return [*said, await answer(), await lookup.zone("vol-1", deadline=clock() + 3)]

    assert told(ec2, story) == [Found(A), Found(A), Missing(), Missing()]


def test_a_zone_of_long_ago_counts_while_ec2_says_nothing():
    ec2 = Ec2({"vol-1": A})

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        await lookup.zone("vol-1", deadline=clock() + 3)
        await asyncio.sleep(301)
        ec2.first = failing(no(Reason.THROTTLED))
        return await lookup.zone("vol-1", deadline=clock() + 3, existing=True)

    assert told(ec2, story) == Found(A)


def test_those_who_ask_together_share_a_call():
    volumes = {f"vol-{n}": A if n % 2 else B for n in range(150)}
    ec2 = Ec2(volumes)

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        asked = [*volumes, *volumes]
        return await asyncio.gather(*(lookup.zone(each, deadline=3.0) for each in asked))

    assert told(ec2, story) == [Found(zone) for zone in (*volumes.values(), *volumes.values())]
    assert [len(call) for call in ec2.asked] == [150]


def test_who_can_wait_asks_about_many_by_one_call_and_once_more_about_what_is_missing():
    ec2 = Ec2({f"vol-{n}": A if n % 2 else B for n in range(150)})

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        await lookup.zone("vol-0", deadline=clock() + 3)
        return await lookup.zones([*ec2.zones, "vol-1", "vol-abc", "no volume's id"])

    truths = told(ec2, story)

    assert {each: truths.pop(each) for each in ("vol-abc", "no volume's id")} == {
        "vol-abc": Missing(),
        "no volume's id": Missing(),
    }
    assert truths == {each: Found(zone) for each, zone in ec2.zones.items()}
    assert [len(each) for each in ec2.asked] == [1, 150, 1]
    assert ec2.asked[2] == ["vol-abc"]


def test_who_can_wait_is_told_why_ec2_did_not_answer():
    ec2 = Ec2({"vol-1": A, "vol-2": A})

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        await lookup.zone("vol-1", deadline=clock() + 3)
        ec2.first = failing(no(Reason.PERMISSION_DENIED))
        return await lookup.zones(["vol-1", "vol-2"])

    assert told(ec2, story) == {
        "vol-1": Found(A),
        "vol-2": Doubt("EC2 denies ec2:DescribeVolumes to the webhook's IAM role"),
    }


def test_who_asks_about_many_leaves_the_memory_to_those_who_cannot_wait(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(lookup_module, "_MOST_ZONES", 3)
    ec2 = Ec2({f"vol-{n}": A for n in range(10)})

    async def story(lookup: ZoneLookup, clock: Clock) -> list[str]:
        await lookup.zone("vol-7", deadline=clock() + 3)
        await lookup.zones(ec2.zones)
        return [each for each in ec2.zones if lookup.seen(each)]

    assert told(ec2, story) == ["vol-0", "vol-1", "vol-7"]


def test_a_volume_counts_as_missing_when_ec2_has_said_so_twice():
    ec2 = Ec2()

    async def story(lookup: ZoneLookup, clock: Clock) -> tuple[Any, float]:
        return await lookup.zone("vol-1", deadline=3.0), clock()

    truth, took_s = told(ec2, story)
    assert truth == Missing()
    assert ec2.asked == [["vol-1"], ["vol-1"]]
    assert 1.0 < took_s < 1.5


def test_a_volume_that_ec2_shows_late_is_found_by_the_second_question():
    ec2 = Ec2()

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        asyncio.get_running_loop().call_later(0.5, ec2.zones.update, {"vol-1": A})
        return await lookup.zone("vol-1", deadline=3.0)

    assert told(ec2, story) == Found(A)


def test_that_a_volume_is_missing_is_believed_for_five_seconds_at_most():
    ec2 = Ec2()

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        truths = [await lookup.zone("vol-1", deadline=clock() + 3)]
        ec2.zones["vol-1"] = A
        await asyncio.sleep(4.9)
        truths.append(await lookup.zone("vol-1", deadline=clock() + 3))
        await asyncio.sleep(0.1)
        truths.append(await lookup.zone("vol-1", deadline=clock() + 3))
        return truths

    assert told(ec2, story) == [Missing(), Missing(), Found(A)]


def test_nobody_waits_longer_than_the_deadline_and_the_next_one_has_the_answer():
    ec2 = Ec2({"vol-1": A}, first=lambda: asyncio.sleep(60))

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        first = await lookup.zone("vol-1", deadline=2.0)
        left_at = clock()
        await asyncio.sleep(60)
        second = await lookup.zone("vol-1", deadline=100.0)
        return [type(first), left_at, second]

    assert told(ec2, story) == [Doubt, 2.0, Found(A)]
    assert len(ec2.asked) == 1


def test_a_question_goes_on_when_the_one_who_asked_is_gone():
    ec2 = Ec2()

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        leaving = asyncio.create_task(lookup.zone("vol-1", deadline=5.0))
        await asyncio.sleep(0.3)  # EC2 has said no once
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await asyncio.sleep(2)
        return await lookup.zone("vol-1", deadline=clock())

    assert told(ec2, story) == Missing()
    assert len(ec2.asked) == 2


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (Reason.PERMISSION_DENIED, "EC2 denies ec2:DescribeVolumes to the webhook's IAM role"),
        (Reason.CREDENTIALS_INVALID, "the webhook has no usable AWS credentials"),
        (Reason.UNREACHABLE, "EC2 cannot be reached"),
        (Reason.REPLY_LOST, "EC2 gave no usable answer"),
        (Reason.INVALID_REQUEST, "EC2 could not be asked; the log of the webhook says why"),
    ],
)
def test_an_error_is_a_doubt_that_says_why_and_tells_no_names(reason: Reason, why: str):
    ec2 = Ec2({"vol-1": A}, first=failing(no(reason)))

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        doubt = await lookup.zone("vol-1", deadline=5.0)
        ec2.first = None
        return [doubt, await lookup.zone("vol-1", deadline=5.0)]

    assert told(ec2, story) == [Doubt(why), Found(A)]


def test_an_error_at_the_second_question_is_a_doubt_too():
    ec2 = Ec2()

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        asyncio.get_running_loop().call_later(
            0.5, setattr, ec2, "first", failing(no(Reason.UNREACHABLE))
        )
        return await lookup.zone("vol-1", deadline=5.0)

    assert told(ec2, story) == Doubt("EC2 cannot be reached")


@pytest.mark.parametrize("text", ["", "vol-*", "my volume", "VOL-1", "vol-1/../vol-2"])
def test_what_is_no_volume_id_is_missing_and_never_asked_for(text: str):
    ec2 = Ec2({text: A})

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        return await lookup.zone(text, deadline=5.0)

    assert told(ec2, story) == Missing()
    assert ec2.asked == []


def test_a_flood_of_questions_costs_twenty_calls_at_once_then_five_a_second():
    ec2 = Ec2()

    async def story(lookup: ZoneLookup, clock: Clock) -> int:
        for n in range(1_000):
            asyncio.get_running_loop().call_later(n / 100, lookup._coalescer.ask, f"vol-{n}")
        await asyncio.sleep(10)
        return len(ec2.asked)

    assert 60 <= told(ec2, story) <= 71


def test_while_ec2_is_silent_questions_do_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup_module, "_MOST_UNDER_WAY", 3)
    ec2 = Ec2({f"vol-{n}": A for n in range(5)}, first=lambda: asyncio.sleep(60))

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        ids = [f"vol-{n}" for n in range(5)]
        asked = [asyncio.create_task(lookup.zone(each, deadline=90.0)) for each in ids]
        await asyncio.wait(asked, timeout=1)
        early = [each.result() for each in asked if each.done()]
        return [*early, *(await asyncio.gather(*asked[:3]))]

    too_many = Doubt("too many lookups in EC2 are already in progress")
    assert told(ec2, story) == [too_many] * 2 + [Found(A)] * 3


@pytest.mark.parametrize("same_volume", [False, True])
def test_a_strangers_questions_take_no_place_of_the_api_servers(
    monkeypatch: pytest.MonkeyPatch, *, same_volume: bool
):
    monkeypatch.setattr(lookup_module, "_MOST_UNDER_WAY", 5)
    ec2 = Ec2({f"vol-{n}": A for n in range(9)}, first=lambda: asyncio.sleep(60))

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        def ask(peer: str, number: int) -> asyncio.Task[Any]:
            PEER.set(peer)  # a task has its context from here
            return asyncio.create_task(lookup.zone(f"vol-{number}", deadline=300.0))

        strangers = [ask("10.9.9.9", n) for n in range(6)]
        await asyncio.sleep(1)
        # Also one that the stranger has asked about, and loses his place for.
        api_servers = [ask("10.0.0.1", n) for n in ((8, 0) if same_volume else (8,))]
        return [
            await asyncio.gather(*api_servers),
            sum(isinstance(each, Doubt) for each in await asyncio.gather(*strangers)),
        ]

    answers, lost = told(ec2, story)
    assert set(answers) == {Found(A)}
    assert lost == 2 + same_volume


def test_a_question_for_which_there_is_no_place_takes_none_of_anothers(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(lookup_module, "_MOST_UNDER_WAY", 4)
    monkeypatch.setattr(lookup_module, "_MOST_INLINE_UNDER_WAY", 1)
    ec2 = Ec2({f"vol-{n}": A for n in range(9)}, first=lambda: asyncio.sleep(60))

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        def ask(peer: str, number: int, *, inline: bool = False) -> asyncio.Task[Any]:
            PEER.set(peer)  # a task has its context from here
            return asyncio.create_task(lookup.zone(f"vol-{number}", deadline=300.0, inline=inline))

        many = [ask("10.0.0.1", n) for n in range(3)]
        inline = [ask("10.0.0.2", 7, inline=True)]
        await asyncio.sleep(1)
        began = dict(lookup._under_way)
        inline += [ask("10.0.0.2", 8, inline=True)]
        await asyncio.sleep(1)
        same = lookup._under_way == began
        return [same, await asyncio.gather(*many), await asyncio.gather(*inline)]

    too_many = Doubt("too many lookups in EC2 are already in progress")
    assert told(ec2, story) == [True, [Found(A)] * 3, [Found(A), too_many]]


def test_after_one_has_waited_in_vain_the_next_ones_do_not_until_ec2_answers_again():
    stuck = asyncio.Event()

    async def wait() -> None:
        await stuck.wait()

    ec2 = Ec2({f"vol-{number}": A for number in range(100)}, first=wait)

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        waited: list[float] = []
        for number in range(100):
            began = clock()
            said = await lookup.zone(f"vol-{number}", deadline=clock() + 4.5)
            assert isinstance(said, Doubt)
            waited.append(clock() - began)
        stuck.set()
        await asyncio.sleep(2)
        known = await lookup.zone("vol-99", deadline=clock())
        began = clock()
        ec2.zones["vol-100"] = A
        new = await lookup.zone("vol-100", deadline=clock() + 4.5)
        return [sum(waited), known, new]

    assert told(ec2, story) == [4.5, Found(A), Found(A)]


def test_who_could_not_wait_says_nothing_about_ec2():
    ec2 = Ec2({"vol-1": A, "vol-2": A})

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        hasty = await lookup.zone("vol-1", deadline=clock())
        return [type(hasty), await lookup.zone("vol-2", deadline=clock() + 3)]

    assert told(ec2, story) == [Doubt, Found(A)]


def test_volumes_that_pods_name_take_but_a_few_places(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup_module, "_MOST_INLINE_UNDER_WAY", 2)
    ec2 = Ec2({f"vol-{n}": A for n in range(5)}, first=lambda: asyncio.sleep(60))

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        async with asyncio.TaskGroup() as tasks:
            inline = [
                tasks.create_task(lookup.zone(f"vol-{n}", deadline=90.0, inline=True))
                for n in (0, 1, 2)
            ]
            await asyncio.sleep(1)
            others = [tasks.create_task(lookup.zone(f"vol-{n}", deadline=300.0)) for n in (2, 3)]
        later = await lookup.zone("vol-4", deadline=600.0, inline=True)
        return [each.result() for each in (*inline, *others)] + [later]

    too_many = Doubt("too many lookups in EC2 are already in progress")
    assert told(ec2, story) == [Found(A), Found(A), too_many, Found(A), Found(A), Found(A)]


def test_who_cannot_wait_for_the_second_question_hears_the_answer_to_the_first():
    ec2 = Ec2()

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        early = await lookup.zone("vol-1", deadline=0.8)
        return [early, await lookup.zone("vol-1", deadline=3.0)]

    assert told(ec2, story) == [Doubt("EC2 does not show vol-1 yet; it may not exist"), Missing()]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup_module, "_MOST_ZONES", 2)
    monkeypatch.setattr(lookup_module, "_MOST_MISSING", 2)
    ec2 = Ec2({f"vol-{n}": A for n in range(3)})

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        for n in range(6):
            await lookup.zone(f"vol-{n}", deadline=clock() + 3)
        return [list(lookup._found), list(lookup._missing_until_s)]

    assert told(ec2, story) == [["vol-1", "vol-2"], ["vol-4", "vol-5"]]


def test_a_volume_without_a_zone_is_a_doubt():
    ec2 = Ec2({"vol-1": ""})

    async def story(lookup: ZoneLookup, clock: Clock) -> Any:
        return await lookup.zone("vol-1", deadline=3.0)

    assert told(ec2, story) == Doubt("EC2 shows vol-1 without a zone")


def test_closing_leaves_nobody_waiting():
    ec2 = Ec2({"vol-1": A}, first=lambda: asyncio.sleep(60))

    async def story(lookup: ZoneLookup, clock: Clock) -> list[Any]:
        waiting = asyncio.create_task(lookup.zone("vol-1", deadline=100.0))
        await asyncio.sleep(1)
        await lookup.close()
        return [type(await waiting), clock()]

    assert told(ec2, story) == [Doubt, 1.0]


def test_questions_are_counted_by_source_and_outcome():
    metrics = WebhookMetrics()
    ec2 = Ec2({"vol-1": A})

    async def story(lookup: ZoneLookup, clock: Clock) -> None:
        for volume_id in ("vol-1", "vol-1", "vol-2", "vol-2"):
            await lookup.zone(volume_id, deadline=clock() + 3)
        ec2.first = failing(no(Reason.UNREACHABLE))
        await lookup.zone("vol-3", deadline=clock() + 3)

    told(ec2, story, metrics)

    counted = {
        (source, outcome): metrics.registry.get_sample_value(
            "ebs_webhook_lookups_total", {"source": source, "outcome": outcome}
        )
        for source in ("cache", "ec2")
        for outcome in ("found", "missing", "doubt")
    }
    assert counted == {
        ("cache", "found"): 1,
        ("cache", "missing"): 1,
        ("cache", "doubt"): None,
        ("ec2", "found"): 1,
        ("ec2", "missing"): 1,
        ("ec2", "doubt"): 1,
    }
