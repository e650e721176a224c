"""A volume is modified once at a time and four times a day: what waits, what is told, what follows.

Here a modification takes as long as it does in small: a second until the new size is there, some
more until the next one may begin.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from tests.cluster import growing
from tests.cluster.background import Background
from tests.cluster.cluster import PVS, Cluster, Json, opened
from tests.cluster.hands import CALM
from tests.cluster.place import Place, a_place
from tests.cluster.together import Stories, Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

SLOWLY_S = 150.0
IN_SMALL = {"modify_s": 1.0, "optimize_s": 4.0}
HOURS = {"modify_s": 1.0, "optimize_s": 7_200.0}
A_DAY = 4
"""Modifications of one volume in 24 hours."""

Started = tuple[Place, str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background) as running:
        await running.control(delays=IN_SMALL)
        yield running
        await running.control(delays=CALM["delays"] | dict.fromkeys(IN_SMALL, 0.0))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def failing(cluster: Cluster) -> AsyncIterator[Started]:
    """A claim whose first modification fails: asked for while nothing else is."""
    async with a_place(cluster) as place:
        pv, volume_id = await growing.a_volume(place, volumeMode="Block")
        await cluster.control(failing_modifications=1)
        await growing.ask(place, "24Gi")
        await place.is_requested(volume_id, "ModifyVolume")
        yield place, pv, volume_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def for_hours(cluster: Cluster, failing: Started) -> AsyncIterator[Started]:
    """A claim whose volume is optimizing for two hours: asked for while nothing else is."""
    async with a_place(cluster) as place:
        pv, volume_id = await growing.a_volume(place, volumeMode="Block")
        await cluster.control(delays=HOURS)
        await growing.ask(place, "24Gi")
        await place.is_requested(volume_id, "ModifyVolume")
        await cluster.control(delays=IN_SMALL)
        yield place, pv, volume_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(cluster: Cluster, for_hours: Started) -> AsyncIterator[Started]:
    """A claim whose volume EC2 modifies only once in a while: it was refused while nothing else is.

    A day in small, of which EC2 alone tells when it is over.
    """
    async with a_place(cluster) as place:
        pv, volume_id = await growing.a_volume(place, volumeMode="Block")
        await cluster.control(
            modification_budget=1,
            modification_window_s=20.0,
            modification_refusal="You can modify volume {volume_id} again after {next_at}.",
        )
        await by_hand(place, volume_id, Iops=4_000)
        await is_completed(place, volume_id)
        await growing.ask(place, "24Gi")
        await growing.told(place, "VolumeResizeFailed", "ModificationLimitReached")
        await cluster.control(modification_budget=A_DAY, modification_window_s=86_400.0)
        yield place, pv, volume_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(
    cluster: Cluster, limited: object, request: pytest.FixtureRequest
) -> AsyncIterator[Stories]:
    async with together.started(lambda: a_place(cluster), request) as running:
        yield running


async def modification(place: Place, volume_id: str) -> Json:
    """The latest one, as EC2 tells it."""
    wanted = [{"Name": "volume-id", "Values": [volume_id]}]
    found = await asyncio.to_thread(
        place.cluster.ec2.describe_volumes_modifications, Filters=wanted
    )
    return dict(found["VolumesModifications"][0])


async def by_hand(place: Place, volume_id: str, **changes: object) -> None:
    """Modify a volume as somebody at a console does."""
    await asyncio.to_thread(place.cluster.ec2.modify_volume, VolumeId=volume_id, **changes)


async def is_completed(place: Place, volume_id: str) -> None:
    async def seen() -> bool:
        return bool((await modification(place, volume_id))["ModificationState"] == "completed")

    await place.cluster.until("the modification is completed", seen)


async def by_us(place: Place, volume_id: str) -> list[Json]:
    """The modifications that are not those of ``by_hand`` in this file, which change IOPS alone."""
    sent = await growing.modifies(place, volume_id)
    return [each for each in sent if each.keys() != {"Iops"}]


def allocated(claim: Json) -> str:
    return str((claim["status"].get("allocatedResources") or {}).get("storage", ""))


async def shown(place: Place) -> list[str]:
    """What ``kubectl ebs volumes`` prints for the story's namespace."""
    sandbox = place.cluster.sandbox
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "ebs", "volumes", "--namespace", place.name),
        *("--kubeconfig", str(sandbox.plane.kubeconfig)),
        env={**os.environ, **sandbox.aws_environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode().splitlines()


async def test_optimizing_for_hours_is_success_and_the_next_wish_waits(
    cluster: Cluster, stories: Stories, for_hours: Started
):
    place, pv, volume_id = for_hours

    await growing.has_size(place, "24Gi")
    assert (await modification(place, volume_id))["ModificationState"] == "optimizing"
    assert await growing.size_of(place, pv) == "24Gi"
    await growing.told(place, "VolumeResizeSuccessful")

    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    await growing.ask(place, attributes=fast)
    claim = await growing.claim_when(
        place, "InProgress", lambda c: growing.modify_status(c) == "InProgress"
    )
    assert "ModifyVolumeError" not in growing.conditions(claim)
    await growing.told(place, "", "optimizing")
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]
    heading, row = await shown(place)
    assert heading.startswith("CLAIM")
    assert row.startswith(f"{place.name}/data")
    assert "optimizing 0%" in row
    assert "3 until 20" in row


async def test_a_modification_that_fails_is_told_and_made_again(
    cluster: Cluster, stories: Stories, failing: Started
):
    place, pv, volume_id = failing

    await growing.told(place, "VolumeResizeFailed", pv)
    await growing.has_size(place, "24Gi", timeout_s=SLOWLY_S)

    assert await growing.modifies(place, volume_id) == [{"Size": "24"}] * 2


async def test_once_the_time_is_over_that_ec2_has_told_it_goes_on(
    cluster: Cluster, stories: Stories, limited: Started
):
    place, _, volume_id = limited

    await growing.has_size(place, "24Gi")

    assert await by_us(place, volume_id) == [{"Size": "24"}] * 2


@together.test
async def test_what_is_wanted_while_one_runs_is_one_next_modification(place: Place):
    _, volume_id = await growing.a_volume(place, volumeMode="Block")
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    await growing.ask(place, "22Gi")
    await place.is_requested(volume_id, "ModifyVolume")

    await growing.ask(place, "23Gi")
    await growing.ask(place, "24Gi")
    await growing.ask(place, attributes=fast)
    await growing.has_size(place, "24Gi")
    await growing.claim_when(place, "fast", lambda c: growing.current_class(c) == fast)

    assert await growing.modifies(place, volume_id) == [
        {"Size": "22"},
        {"Size": "24", **growing.AS_FAST},
    ]
    warnings = [e["message"] for e in await growing.events(place) if e["type"] == "Warning"]
    assert [text for text in warnings if "failed" in text] == []


@together.test
async def test_a_modification_made_by_hand_is_waited_for(place: Place):
    _, volume_id = await growing.a_volume(place, volumeMode="Block")
    await by_hand(place, volume_id, Iops=4_000)

    await growing.ask(place, "24Gi")
    await growing.has_size(place, "24Gi")

    ours = await by_us(place, volume_id)
    assert ours == [{"Size": "24"}] * len(ours)
    assert 1 <= len(ours) <= 2


@together.test
async def test_a_fifth_modification_is_not_sent_and_the_claim_says_until_when(place: Place):
    pv, volume_id = await growing.a_volume(place, volumeMode="Block")
    for size_gib in range(21, 21 + A_DAY):
        await growing.ask(place, f"{size_gib}Gi")
        await growing.has_size(place, f"{size_gib}Gi")

    await growing.ask(place, "40Gi")
    event = await growing.told(place, "", "24 h")

    tomorrow = (await modification(place, volume_id))["StartTime"].date().isoformat()
    assert event["type"] == "Warning"
    assert tomorrow[:4] in event["message"]
    assert len(await growing.modifies(place, volume_id)) == A_DAY
    _, row = await shown(place)
    assert "24Gi->40Gi" in row
    assert "0 until 20" in row
    assert await growing.size_of(place, pv) == "24Gi"


@together.test
async def test_what_ec2_says_of_its_own_limit_wins_and_is_not_run_against(place: Place):
    _, volume_id = await growing.a_volume(place, volumeMode="Block")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for iops in range(A_DAY):  # of which ours knows the last one
        await by_hand(place, volume_id, Iops=4_000 + iops)
        if not iops:
            began: datetime = (await modification(place, volume_id))["StartTime"]
            tomorrow = began + timedelta(days=1)
        await is_completed(place, volume_id)

    await growing.ask(place, "24Gi")
    await growing.told(place, "VolumeResizeFailed", f"until {tomorrow:%Y-%m-%d %H:%M}")
    # Another wish is another reason to look, and none to ask EC2 again.
    await growing.ask(place, "25Gi")
    await growing.claim_when(place, "25Gi", lambda c: allocated(c) == "25Gi")

    assert await by_us(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_claim_deleted_while_its_volume_is_modified_goes_with_it(place: Place):
    pv, volume_id = await growing.a_volume(place)

    await growing.ask(place, "24Gi")
    await place.is_requested(volume_id, "ModifyVolume")
    await place.remove(f"{place.claims}/data")

    await place.is_gone(f"{PVS}/{pv}", SLOWLY_S)
    assert await place.cluster.volume(volume_id) is None
