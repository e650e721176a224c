from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from provisioner.sandbox.api import Api
from tests.cluster.background import Background
from tests.cluster.kill_show import KillStory
from tests.cluster.replicas import installed


@pytest.fixture
async def story(background: Background, api: Api, namespace: str) -> AsyncIterator[KillStory]:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 -- shown when the test fails
    told = KillStory(await installed(background), api, namespace, seed)
    yield told
    await told.clean_up()


async def test_killed_every_three_seconds_it_binds_all_claims_and_leaves_nothing(
    story: KillStory,
):
    report = await story.claims_with_pods(50, 50)

    print(report)  # noqa: T201 -- the issue's figures
    assert report.kills >= 3
    assert len(report.ever_bound) == 100
    assert len(report.volumes_by_name) == 100
    assert report.duplicates == []
    assert report.left == []


async def test_claims_deleted_while_it_lies_dead_leave_only_what_their_class_retains(
    story: KillStory,
):
    report = await story.claims_that_nobody_saw_go(80, 20)

    print(report)  # noqa: T201 -- the issue's figures
    assert report.claims == 100
    assert report.retained
    assert len(report.volumes_by_name) > len(report.retained), "nothing had to be deleted"
    # Each was made for a claim that was there: none once more for one that is gone.
    assert report.creates == len(report.volumes_by_name)
    assert report.duplicates == []
    assert len(report.left) == len(report.retained)
    for kept in report.retained:
        assert kept["metadata"]["name"] == f"pvc-{kept['spec']['claimRef']['uid']}"
        assert kept["spec"]["claimRef"]["name"].startswith("kept-")
