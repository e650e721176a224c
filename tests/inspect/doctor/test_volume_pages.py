"""Doctor reads the account's volumes once, and asks by ids only where that is cheaper."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from provisioner.inspect.command_line import Readers
from provisioner.inspect.doctor import probes
from provisioner.inspect.doctor.evidence_rules import ClusterEvidence
from provisioner.inspect.reading.aws import Aws
from provisioner.inspect.reading.cloud import Cloud
from provisioner.metrics import Metrics
from provisioner.model import tags
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.quota import STORAGE_CODES
from provisioner.model.volume import Volume, VolumeState
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.inspect.doctor import evidence as e

if TYPE_CHECKING:
    from provisioner.inspect.reading.cluster import Cluster

OURS = tags.of_cluster("prod")
BY_TYPE, BY_ID, BY_TAG = "volume-type", "volume-id", "tag"


def volume_id(number: int) -> str:
    return f"vol-{number:017x}"


def a_volume(number: int, **values: Any) -> Volume:
    return Volume(volume_id(number), VolumeState.AVAILABLE, "us-east-1a", 1, **values)


@dataclass
class Ec2:
    """An account full of volumes. A page takes a quarter of a second."""

    volumes: list[Volume]
    refuses: set[str] = field(default_factory=set)
    is_silent_about: set[str] = field(default_factory=set)
    hides: set[str] = field(default_factory=set)  # from pages, not from who knows an id
    asked: Counter[str] = field(default_factory=Counter)
    first_s: dict[str, float] = field(default_factory=dict)
    _answers: dict[Any, list[Volume]] = field(default_factory=dict)
    region = "us-east-1"

    async def call(self, action: str, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert action == "DescribeVolumes"
        name, values = params["Filters"][0]["Name"], params["Filters"][0]["Values"]
        what = name.partition(":")[0]
        self.asked[what] += 1
        self.first_s.setdefault(what, asyncio.get_running_loop().time())
        if what in self.is_silent_about:
            await asyncio.Event().wait()
        await asyncio.sleep(0.25)
        if what in self.refuses:
            raise Ec2Error(Reason.PERMISSION_DENIED, "not authorized", action=action)
        question = what, name.partition(":")[2], frozenset(values)
        if question not in self._answers:
            self._answers[question] = [*self._found(*question)]
        found = self._answers[question]
        start, size = int(params.get("NextToken", 0)), params["MaxResults"]
        more = {"NextToken": str(start + size)} if start + size < len(found) else {}
        return {"Volumes": found[start : start + size], **more}

    def _found(self, what: str, key: str, values: frozenset[str]) -> Iterator[Volume]:
        for each in self.volumes:
            if what == BY_ID:
                is_meant = each.volume_id in values
            elif what == BY_TYPE:
                is_meant = each.volume_type in values
            else:
                is_meant = each.tags.get(key) in values
            if is_meant and (what == BY_ID or each.volume_id not in self.hides):
                yield each


class Caller:
    """AWS beside that: it knows no instances, and no DryRun; ``is_silent`` about quotas."""

    region = "us-east-1"

    def __init__(self, *, is_silent: bool = False) -> None:
        self.sent: Counter[str] = Counter()
        self.ahead_s: dict[str, float] = {}
        self._is_silent = is_silent

    async def call(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    async def read_all(self, *_: Any, **__: Any) -> list[Any]:
        if self._is_silent:
            await asyncio.Event().wait()
        limits = STORAGE_CODES.items()
        return [{"QuotaCode": code, "QuotaName": of, "Value": 50.0} for of, code in limits]

    def close(self) -> None:
        pass


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Caller:
    caller = Caller()
    monkeypatch.setattr(Aws, "of_caller", lambda _: caller)
    return caller


def named(number: int) -> PlacedVolume:
    source = {"driver": e.DRIVER, "volumeHandle": volume_id(number)}
    return e.read(PlacedVolume, {"metadata": {"name": f"pv-{number}"}, "spec": {"csi": source}})


def asked(ec2: Ec2, numbers: range) -> tuple[probes.Found, float]:
    """What a cluster with these volumes is told, and after how many seconds."""
    cluster = ClusterEvidence(volumes=[*map(named, numbers)], cluster_id="prod")

    async def story(clock: Clock) -> tuple[probes.Found, float]:
        cloud = Cloud(cast("Any", ec2), Metrics())
        readers = Readers(cast("Cluster", None), cloud)
        began_s = clock()
        found = await probes.ask(readers, cluster, probes.Identity(e.DRIVER))
        seconds = clock() - began_s
        await asyncio.sleep(1)  # what was given up has ended
        return found, seconds

    return in_virtual_time(story)


def ids_of(numbers: range) -> set[str]:
    return {volume_id(n) for n in numbers}


ALL = range(4_000)


def test_the_pages_of_the_quotas_answer_for_ids_and_tags(caller: Caller):
    ec2 = Ec2([a_volume(n, tags=OURS) for n in ALL])

    (cloud, gaps, _, _), _ = asked(ec2, ALL)

    assert ec2.asked == {BY_TYPE: 8 + len(STORAGE_CODES) - 1}
    assert cloud.volumes.keys() == ids_of(ALL)
    assert {each.volume_id for each in cloud.tagged} == ids_of(ALL)
    assert next(each.number for each in cloud.quotas if each.of == "gp3") == len(ALL)
    assert gaps == {}


def test_a_volume_that_both_ways_show_is_kept_once(caller: Caller):
    (cloud, _, _, _), _ = asked(Ec2([a_volume(n, tags=OURS) for n in ALL]), ALL)

    assert all(cloud.volumes[each.volume_id] is each for each in cloud.tagged)


def test_only_what_no_page_shows_is_asked_for_by_its_id(caller: Caller):
    others = [a_volume(7, volume_type="a-later-type"), a_volume(8)]
    rest = [a_volume(n) for n in ALL if n not in {7, 8, 9}]
    ec2 = Ec2([*others, *rest], hides={volume_id(8)})

    (cloud, _, _, _), _ = asked(ec2, ALL)

    assert ec2.asked[BY_ID] == 1
    assert cloud.volumes.keys() == ids_of(ALL) - {volume_id(9)}


def test_volumes_of_others_are_counted_and_not_kept(caller: Caller):
    lookalike = {**OURS, "kubernetes.io/cluster/prod": "shared"}
    others = [a_volume(n, tags=lookalike) for n in range(3_000, 4_000)]
    ec2 = Ec2([*(a_volume(n, tags=OURS) for n in range(3_000)), *others])

    (cloud, _, _, _), _ = asked(ec2, range(3_000))

    assert cloud.volumes.keys() == ids_of(range(3_000))
    assert {each.volume_id for each in cloud.tagged} == ids_of(range(3_000))
    assert next(each.number for each in cloud.quotas if each.of == "gp3") == len(ALL)


@pytest.mark.parametrize("count", [0, 10, 2_000])
def test_a_small_cluster_in_a_large_account_waits_for_no_more_pages_than_its_ids_need(
    caller: Caller, count: int
):
    """Its volumes are on the last pages, which do not come in time."""
    others = [a_volume(n) for n in range(10_000, 60_000)]
    ec2 = Ec2([*others, *(a_volume(n, tags=OURS) for n in range(count))])

    (cloud, gaps, _, _), seconds = asked(ec2, range(count))

    assert cloud.volumes.keys() == ids_of(range(count))
    assert {each.volume_id for each in cloud.tagged} == ids_of(range(count))
    assert ec2.asked[BY_ID] == -(-count // 200)
    assert max(ec2.first_s.get(each, 0.0) for each in (BY_ID, BY_TAG)) <= 0.25 * count / 200 + 0.25
    assert gaps.keys() == {"ListServiceQuotas"}  # 100 pages do not come within 15 s
    assert seconds < 16


def test_ids_do_not_wait_for_pages_that_do_not_come(caller: Caller):
    ec2 = Ec2([a_volume(n, tags=OURS) for n in ALL], is_silent_about={BY_TYPE})

    (cloud, gaps, _, _), seconds = asked(ec2, ALL)

    assert cloud.volumes.keys() == ids_of(ALL)
    assert {each.volume_id for each in cloud.tagged} == ids_of(ALL)
    assert gaps.keys() == {"ListServiceQuotas"}
    assert max(ec2.first_s[BY_ID], ec2.first_s[BY_TAG]) <= 3.0
    assert seconds < 16


def test_pages_that_fail_leave_ids_and_tags_to_be_asked_for(caller: Caller):
    ec2 = Ec2([a_volume(n, tags=OURS) for n in ALL], refuses={BY_TYPE})

    (cloud, gaps, _, _), _ = asked(ec2, ALL)

    assert cloud.volumes.keys() == ids_of(ALL)
    assert {each.volume_id for each in cloud.tagged} == ids_of(ALL)
    assert gaps.keys() == {"DescribeVolumes"}


def test_an_ec2_that_hangs_is_given_up_in_time(caller: Caller):
    ec2 = Ec2([], is_silent_about={BY_TYPE, BY_ID, BY_TAG})

    (cloud, gaps, _, _), seconds = asked(ec2, ALL)

    assert (cloud.volumes, cloud.tagged) == ({}, [])
    assert gaps.keys() == {"DescribeVolumes", "ListServiceQuotas"}
    assert seconds < 25


def test_without_the_right_nothing_is_known_and_the_right_is_named(caller: Caller):
    ec2 = Ec2([a_volume(n) for n in ALL], refuses={BY_TYPE, BY_ID, BY_TAG})

    (cloud, gaps, _, _), _ = asked(ec2, ALL)

    assert (cloud.volumes, cloud.tagged, cloud.quotas) == ({}, [], [])
    assert gaps["DescribeVolumes"].is_right
    assert ec2.asked[BY_ID] < len(ALL) // 200  # the first refusal is enough


def test_quotas_about_which_aws_is_silent_delay_no_volumes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Aws, "of_caller", lambda _: Caller(is_silent=True))
    ec2 = Ec2([a_volume(n, tags=OURS) for n in ALL])

    (cloud, gaps, _, _), seconds = asked(ec2, ALL)

    assert cloud.volumes.keys() == ids_of(ALL)
    assert BY_ID not in ec2.asked
    assert gaps.keys() == {"ListServiceQuotas"}
    assert seconds < 16
