"""The issue's "No orphans" where something goes wrong, each with a controller of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from provisioner.sandbox.api import Api, ApiError
from tests.cluster import epochs, hands
from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS
from tests.cluster.hands import Ec2Hand
from tests.cluster.replicas import Replica, eventually, installed
from tests.cluster.specimens import Specimens, options, sweeps

ONE_SWEEP = ("--orphan-min-age", "0.001s", "--orphan-sweep-interval", "1h")


class House:
    """A namespace, a cluster id, and EC2 watched."""

    def __init__(self, background: Background, api: Api, namespace: str) -> None:
        self.background = background
        self.sandbox = background.sandbox
        self.api = api
        self.namespace = namespace
        self.hand = Ec2Hand(self.sandbox.ec2_endpoint)
        first = self.sandbox.instances[0]
        self.specimens = Specimens(namespace, namespace, first.zone, first.instance_id)

    def replica(self, name: str, *more: str) -> Replica:
        return Replica(self.sandbox, *options(4.0), *more, name=f"{self.namespace}-{name}")

    def sweeping(self) -> Replica:
        return self.replica("sweeps", "--cluster-id", self.namespace, "--orphan-min-age", "1s")

    async def swept(self) -> None:
        """At least two sweeps more than now."""
        enough = len(sweeps(self.hand, self.namespace)) + 2
        await eventually("sweeps", lambda: len(sweeps(self.hand, self.namespace)) >= enough)

    async def deleted(self) -> None:
        gone = self.specimens.ids["young"]
        await eventually(
            "the orphan is gone", lambda: gone not in self.hand.of_cluster(self.namespace)
        )


async def no_attachments(api: Api) -> None:
    """Without those that stories of other files have left: each has a controller call EC2 again."""
    for found in (await api.get(ATTACHMENTS))["items"]:
        path = f"{ATTACHMENTS}/{found['metadata']['name']}"
        with contextlib.suppress(ApiError):  # gone meanwhile
            await api.patch(path, {"metadata": {"finalizers": None}})
        await hands.discard(api, path)


@pytest.fixture
async def house(background: Background, api: Api, namespace: str) -> AsyncIterator[House]:
    await installed(background)
    await epochs.of_ours(api)
    await no_attachments(api)
    made = House(background, api, namespace)
    await hands.make_class(api, namespace)
    made.hand.watch()
    yield made
    made.hand.control(**hands.CALM)
    await made.specimens.clean_up(made.hand, api)
    await hands.discard(api, f"{hands.CLASSES}/{namespace}")


async def test_told_to_report_to_be_off_or_without_a_cluster_id_it_touches_nothing(house: House):
    await house.specimens.make(house.hand, house.api)
    house.specimens.make_young(house.hand)
    house.hand.watch()
    cluster = ("--cluster-id", house.namespace)
    described = 'ebs_provisioner_ec2_calls_total{action="DescribeVolumes",outcome="ok"}'
    reported = 'ebs_provisioner_orphans_total{outcome="reported"}'
    async with (
        house.replica("reports", *cluster, "--orphan-sweep", "report") as reports,
        house.replica("off", *cluster, "--orphan-sweep", "off") as off,
        house.replica("nameless") as nameless,
    ):

        async def all_reported() -> bool:
            return await reports.metric(reported) == 6

        await eventually("it has reported", all_reported)
        await house.swept()
        assert await reports.metric(reported) == 6
        assert await off.metric(described) == 1  # it only learns what is marked
        assert await nameless.metric(described) == 0

    unmarked = {house.specimens.ids["named"], house.specimens.ids["named in-tree"]}
    for call in house.hand.changes():
        assert call["action"] == "DeleteTags"
        assert set(call["params"].values()) & unmarked


async def test_a_list_that_ec2_refuses_ends_the_sweep_with_nothing_touched(house: House):
    async with house.sweeping() as replica:
        await house.swept()
        refused = {"action": "DescribeVolumes", "do": "error", "code": "UnauthorizedOperation"}
        by_cluster = {"Filter.1.Name": f"tag:kubernetes.io/cluster/{house.namespace}"}
        house.hand.control(
            faults=[{**refused, "http_status": 403, "n": 10**6, "match": by_cluster}]
        )
        house.specimens.make_young(house.hand)
        await eventually("sweeps end early", lambda: replica.log.count("ended early") >= 5)
        assert house.hand.changes("DeleteVolume", "DeleteTags") == []

        house.hand.control(faults=None)
        await house.deleted()


async def test_a_list_that_the_api_server_cannot_give_ends_the_sweep_with_nothing_touched(
    house: House,
):
    plane = house.sandbox.plane
    async with house.sweeping() as replica:
        await house.swept()
        await house.background.call(plane.stop_api_server())
        try:
            house.specimens.make_young(house.hand)
            await eventually("sweeps end early", lambda: replica.log.count("ended early") >= 3)
            assert house.hand.changes("DeleteVolume", "DeleteTags") == []
        finally:
            await house.background.call(plane.start_api_server())
        await house.deleted()


async def test_a_volume_that_cannot_be_deleted_does_not_keep_the_others(house: House):
    stubborn = house.specimens.make_young(house.hand)
    others = [house.specimens.make_young(house.hand) for _ in range(6)]
    refused = {"action": "DeleteVolume", "do": "error", "code": "OperationNotPermitted"}
    house.hand.control(
        faults=[{**refused, "http_status": 403, "n": 10**6, "match": {"VolumeId": stubborn}}]
    )
    async with house.replica("sweeps", "--cluster-id", house.namespace, *ONE_SWEEP):
        await eventually(
            "the others are gone", lambda: set(house.hand.of_cluster(house.namespace)) == {stubborn}
        )
        tried = house.hand.changes("DeleteVolume")
        # All in one sweep, whichever came first.
        assert len(sweeps(house.hand, house.namespace)) == 1
        assert len(tried) == len(others) + 1


async def test_in_flight_a_volume_whose_claim_is_gone_is_left_to_its_own_flow(house: House):
    house.hand.control(
        faults=[  # what would show it as available; a sweep asks by tag
            {"action": "DescribeVolumes", "do": "error", "n": 6, "match": {"VolumeId": "vol-*"}}
        ],
        delays={"create_s": 0.5},
    )
    async with house.sweeping() as replica:
        await hands.make_claim(house.api, house.namespace, "short-lived", house.namespace)
        await eventually("EC2 has it", lambda: house.hand.of_cluster(house.namespace))
        await hands.discard(house.api, hands.claims_of(house.namespace))
        await house.swept()
        await eventually("it is gone", lambda: not house.hand.of_cluster(house.namespace))
        # By way of a persistent volume, like any other.
        assert await replica.metric('ebs_provisioner_orphans_total{outcome="deleted"}') == 0
        assert "volume provisioned" in replica.log


async def test_nothing_is_attached_before_its_mark_is_confirmed_to_be_gone(house: House):
    house.hand.control(faults=[{"action": "DeleteTags", "do": "error", "n": 2}])
    async with house.sweeping():
        await hands.make_claim(house.api, house.namespace, "data", house.namespace)
        await hands.make_pod(house.api, house.namespace, "main", "data")
        await eventually("it is attached", lambda: house.hand.changes("AttachVolume"))
        calls = [
            (call["action"], call["outcome"])
            for call in house.hand.changes("DeleteTags", "AttachVolume")
        ]
        assert calls[:4] == [
            *(("DeleteTags", "fault:error"), ("DeleteTags", "fault:error")),
            *(("DeleteTags", "ok"), ("AttachVolume", "ok")),
        ]
