"""``kubectl ebs cost`` where prices or a cluster id are missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.inspect.cost import command, flow
from provisioner.inspect.cost.cost_rules import ORPHAN, Owner, volume_item
from provisioner.inspect.orphans.look import ClusterSide, Own
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume import Volume, VolumeState
from provisioner.prices.price_rules import Prices


async def test_a_price_list_without_an_answer_is_a_gap_and_amounts_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
):
    async def away(*_: object) -> None:
        raise StorageError(Reason.UNREACHABLE, "pricing get_products: no answer")

    readers: Any = SimpleNamespace(cloud=SimpleNamespace(region="eu-west-1", gaps=[]))
    monkeypatch.setattr(command, "prices_of", away)

    prices, told = await command._prices(readers, "api")

    assert (prices.rates, told) == (None, [])
    assert [each.message for each in readers.cloud.gaps] == ["pricing get_products: no answer"]


def nameless(monkeypatch: pytest.MonkeyPatch, *unread: str) -> Any:
    """Readers of a cluster without volumes and without a cluster id."""

    async def side(_: object) -> ClusterSide:
        return ClusterSide({}, frozenset(), {}, unread)

    monkeypatch.setattr(flow, "cluster_side", side)
    return SimpleNamespace(cloud=SimpleNamespace(calls=object(), gaps=[]))


async def test_a_cluster_without_an_id_is_a_remark_and_no_failure(monkeypatch: pytest.MonkeyPatch):
    readers = nameless(monkeypatch)

    assert await flow._tagged(readers) == flow._Tagged([], [], [], [flow.NO_CLUSTER_ID])
    assert readers.cloud.gaps == []


async def test_a_cluster_id_that_cannot_be_read_is_a_gap(monkeypatch: pytest.MonkeyPatch):
    readers = nameless(monkeypatch, "ebs/x")

    assert await flow._tagged(readers) == flow._Tagged()
    assert "Deployment ebs/x" in readers.cloud.gaps[0].message


async def test_ec2_is_asked_only_for_volumes_that_the_look_for_orphans_has_not_shown():
    def a_volume(volume_id: str) -> Volume:
        return Volume(volume_id, VolumeState.AVAILABLE, "eu-west-1a", 1)

    async def volumes(ids: list[str]) -> dict[str, Volume]:
        asked.append(ids)
        return {each: a_volume(each) for each in ids if each != "vol-gone"}

    asked: list[list[str]] = []
    readers: Any = SimpleNamespace(cloud=SimpleNamespace(volumes=volumes))
    wanted = ("vol-seen", "vol-untagged", "vol-gone")

    found = await flow._volumes(readers, wanted, map(a_volume, ("vol-seen", "vol-orphan")))

    assert {each.volume_id for each in found} == {"vol-seen", "vol-untagged"}
    assert asked == [["vol-untagged", "vol-gone"]]


async def test_what_another_living_cluster_has_is_not_counted_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
):
    async def own(*_: object) -> Own:
        return Own([], {"prod": "instance i-0 has its tag and is no node here"})

    readers = nameless(monkeypatch)
    monkeypatch.setattr(flow, "look_at_own", own)

    found = await flow._tagged(readers)

    assert (found.ids, found.volumes, found.orphans) == ([], [], [])
    assert "of cluster prod" in found.remarks[0]
    assert "living cluster (instance i-0 has its tag" in found.remarks[0]


def test_the_json_of_what_is_billed_commands_no_terminal():
    volume = Volume("vol-1", VolumeState.AVAILABLE, "eu-west-1a", 1)
    item = volume_item(volume, Owner("shop", "data\x9b2J"), ORPHAN, None)

    lines = command._lines([item], Prices("eu-west-1", "USD", None, ""), "claim", "json")

    assert '"data\\u009b2J"' in "".join(lines)
