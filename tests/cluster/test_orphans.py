"""The issue's "No orphans", sentence by sentence, in a real cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from provisioner.model.names import UNCLAIMED, VOLUME_NAME
from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster import epochs, hands
from tests.cluster.background import Background
from tests.cluster.hands import Ec2Hand, Json
from tests.cluster.replicas import Replica, eventually, installed
from tests.cluster.specimens import Specimens, names, options, sweeps

MIN_AGE_S = 4.0


@dataclass
class Seen:
    """What a run of sweeps did."""

    specimens: Specimens
    calls: list[Json] = field(default_factory=list)
    volumes: dict[str, Json] = field(default_factory=dict)
    persistent_volumes: list[Json] = field(default_factory=list)
    counted: dict[str, float] = field(default_factory=dict)
    log: str = ""

    def tags_of(self, subject: str) -> dict[str, str]:
        return hands.tags_of(self.volumes[self.specimens.ids[subject]])

    def calls_for(self, subject: str) -> list[str]:
        """The changes that the controller asked for, of one volume."""
        volume_id = self.specimens.ids[subject]
        return [
            call["action"]
            for call in self.calls
            if call["action"] in ("DeleteVolume", "DeleteTags") and names(call, volume_id)
        ]


async def _watch_sweeps(sandbox: Sandbox, api: Api, specimens: Specimens, hand: Ec2Hand) -> Seen:
    seen = Seen(specimens)
    await specimens.make(hand, api)
    await epochs.of_ours(api)
    hand.watch()
    replica = Replica(
        sandbox,
        "--cluster-id",
        specimens.cluster_id,
        *options(MIN_AGE_S),
        name=specimens.cluster_id,
    )
    async with replica:

        def gone(subject: str) -> bool:
            return any(
                names(call, specimens.ids[subject]) and call["outcome"] == "ok"
                for call in hand.changes("DeleteVolume")
            )

        await eventually("the orphan is deleted", lambda: gone("delete"))
        specimens.make_young(hand)

        async def kept() -> bool:
            found = await hands.persistent_volumes(api, specimens.namespace)
            return [each["status"].get("phase") for each in found] == ["Released"]

        await eventually("the retained one is shown as Released", kept)
        await eventually("the young one has grown old", lambda: gone("young"))
        enough = len(sweeps(hand, specimens.cluster_id)) + 3
        await eventually("more sweeps", lambda: len(sweeps(hand, specimens.cluster_id)) >= enough)
        for outcome in ("deleted", "retained", "reported"):
            series = f'ebs_provisioner_orphans_total{{outcome="{outcome}"}}'
            seen.counted[outcome] = await replica.metric(series)
    seen.calls = hand.log()
    seen.volumes = {volume["VolumeId"]: volume for volume in hand.volumes()}
    seen.persistent_volumes = await hands.items(api, hands.PVS)
    seen.log = replica.log
    return seen


async def _in_one_namespace(background: Background) -> Seen:
    sandbox = await installed(background)
    plane, hand = sandbox.plane, Ec2Hand(sandbox.ec2_endpoint)
    admin = plane.credentials.tokens["admin"]
    async with (
        Api(plane.server, plane.credentials.authority, admin) as api,
        hands.temporary_namespace(api) as name,
    ):
        first = sandbox.instances[0]
        specimens = Specimens(name, name, first.zone, first.instance_id)
        try:
            return await _watch_sweeps(sandbox, api, specimens, hand)
        finally:
            hand.control(**hands.CALM)
            await specimens.clean_up(hand, api)


@pytest.fixture(scope="module")
def seen(background: Background) -> Seen:
    """All specimens under one controller, once for all sentences."""
    return asyncio.run(_in_one_namespace(background))


def test_marked_unattached_old_and_named_by_nothing_it_is_deleted(seen: Seen):
    assert seen.calls_for("delete") == ["DeleteVolume"]
    assert seen.specimens.ids["delete"] not in seen.volumes


def test_of_a_class_that_retains_it_is_put_under_a_persistent_volume(seen: Seen):
    kept = seen.specimens.ids["retain"]
    (found,) = [
        each
        for each in seen.persistent_volumes
        if (each["spec"].get("csi") or {}).get("volumeHandle") == kept
    ]
    name = seen.specimens.written["retain"][VOLUME_NAME]

    assert found["metadata"]["name"] == name
    assert found["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert found["spec"]["claimRef"]["uid"] == name.removeprefix("pvc-")
    assert found["spec"]["claimRef"]["name"] == "gone"
    assert found["spec"]["claimRef"]["namespace"] == seen.specimens.namespace
    assert found["status"]["phase"] == "Released"
    assert kept in seen.volumes
    assert UNCLAIMED not in seen.tags_of("retain")


@pytest.mark.parametrize("subject", ["unmarked", "unmarked too", "recycle"])
def test_without_a_mark_that_says_what_to_do_it_is_reported_once(seen: Seen, subject: str):
    volume_id = seen.specimens.ids[subject]
    lines = [line for line in seen.log.splitlines() if volume_id in line]

    assert len(lines) == 1
    assert "no PersistentVolume names" in lines[0]
    assert seen.calls_for(subject) == []
    assert seen.tags_of(subject) == seen.specimens.written[subject]


def test_each_outcome_is_counted(seen: Seen):
    assert seen.counted == {"deleted": 2, "retained": 1, "reported": 3}


@pytest.mark.parametrize(
    "subject", ["other cluster", "one cluster tag of two", "attached", "living claim"]
)
def test_what_is_not_an_orphan_of_ours_is_untouched_and_not_reported(seen: Seen, subject: str):
    assert seen.calls_for(subject) == []
    assert seen.tags_of(subject) == seen.specimens.written[subject]
    assert seen.specimens.ids[subject] not in seen.log


@pytest.mark.parametrize("subject", ["named", "named in-tree"])
def test_what_a_persistent_volume_names_loses_its_mark_and_nothing_else(seen: Seen, subject: str):
    written = seen.specimens.written[subject]

    assert seen.calls_for(subject) == ["DeleteTags"]
    assert seen.tags_of(subject) == {k: v for k, v in written.items() if k != UNCLAIMED}


def test_marks_of_named_volumes_are_gone_before_the_first_sweep(seen: Seen):
    hand_log = [call for call in seen.calls if call["outcome"] == "ok"]
    named = (seen.specimens.ids["named"], seen.specimens.ids["named in-tree"])
    ours = f"tag:kubernetes.io/cluster/{seen.specimens.cluster_id}"
    unmarked = [
        next(
            index
            for index, call in enumerate(hand_log)
            if call["action"] == "DeleteTags" and names(call, volume_id)
        )
        for volume_id in named
    ]
    first_sweep = next(
        index
        for index, call in enumerate(hand_log)
        if call["params"].get("Filter.1.Name") == ours and "Filter.3.Name" not in call["params"]
    )

    assert max(unmarked) < first_sweep


def test_too_young_it_is_left_until_it_is_old_enough(seen: Seen):
    (deleted,) = [
        call
        for call in seen.calls
        if call["action"] == "DeleteVolume" and names(call, seen.specimens.ids["young"])
    ]
    # The last CreateVolume is that of the young one.
    made = [call for call in seen.calls if call["action"] == "CreateVolume"][-1]

    # CreateTime has whole seconds.
    assert deleted["at_s"] - made["at_s"] > MIN_AGE_S - 1
