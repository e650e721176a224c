"""Deleting by a plan, against the strict EC2: what is lost, killed, changed, or done twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from errno import ENOSPC
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.volumes import Volumes
from provisioner.inspect.orphans import apply
from provisioner.inspect.orphans.look import Seen
from provisioner.inspect.orphans.orphan_plan_rules import Planned, Surroundings, plan
from provisioner.metrics import Metrics
from provisioner.model.errors import StorageError
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from provisioner.sandbox.strict_ec2.instances import make_instances
from tests.builders import ZONE
from tests.cluster.hands import tag_list
from tests.inspect.orphans.test_orphan_plan_rules import ACCOUNT, AROUND, TAGS
from tests.sandbox.lab import client

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@pytest_asyncio.fixture
async def volumes(strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Volumes]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(apply, "_LOOKS_AFTER_S", (0.0, 0.0))
    calls = Ec2Calls.connect(
        region="us-east-1", metrics=Metrics(), endpoint=strict_ec2.endpoint, read_timeout_s=1.0
    )
    yield Volumes(calls)
    await calls.close()


def make(ec2: StrictEc2, count: int = 1) -> list[str]:
    """Volumes of a claim of the dead cluster."""
    hand = client(ec2.endpoint)
    usual: dict[str, Any] = {"AvailabilityZone": ZONE, "Size": 8, "VolumeType": "gp3"}
    return [
        hand.create_volume(**usual, TagSpecifications=tag_list(TAGS))["VolumeId"]
        for _ in range(count)
    ]


async def planned(volumes: Volumes) -> tuple[tuple[Planned, ...], Surroundings]:
    around = replace(AROUND, now=datetime.now(UTC) + timedelta(days=1))
    found = await volumes.find(tags={"CSIVolumeName": None})
    return plan(found, around, region="us-east-1", account=ACCOUNT).volumes, around


async def run(
    volumes: Volumes, path: Path, some: tuple[Planned, ...], around: Surroundings
) -> list[str]:
    with path.open("ab", buffering=0) as file:
        return await apply.batch(volumes, some, around, apply.Record(file))


def written(path: Path) -> list[tuple[str, str]]:
    lines = [msgspec.json.decode(each, type=apply.Line) for each in path.read_bytes().splitlines()]
    return [(each.volume_id, each.outcome) for each in lines]


async def test_each_volume_is_noted_before_it_is_deleted_and_after(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    ids = sorted(make(strict_ec2, 2))
    some, around = await planned(volumes)
    path = tmp_path / "outcome"

    assert await run(volumes, path, some, around) == ["deleted", "deleted"]
    assert written(path) == [(each, what) for each in ids for what in ("asked", "deleted")]
    assert await volumes.find(tags={"CSIVolumeName": None}) == []


async def test_a_second_run_finds_them_gone(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    make(strict_ec2)
    some, around = await planned(volumes)
    path = tmp_path / "outcome"
    await run(volumes, path, some, around)

    assert await run(volumes, path, some, around) == ["gone"]
    assert strict_ec2.counts()["DeleteVolume"] == 1


async def test_what_was_tagged_since_the_plan_is_kept(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    kept, deleted = sorted(make(strict_ec2, 2))
    some, around = await planned(volumes)
    client(strict_ec2.endpoint).create_tags(
        Resources=[kept], Tags=[{"Key": "keep", "Value": "for the audit"}]
    )

    assert await run(volumes, tmp_path / "outcome", some, around) == ["kept", "deleted"]
    assert [each.volume_id for each in await volumes.find(tags={"keep": None})] == [kept]
    assert deleted not in {
        each.volume_id for each in await volumes.find(tags={"CSIVolumeName": None})
    }


async def test_what_was_attached_since_the_plan_is_kept(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    (attached,) = make(strict_ec2)
    some, around = await planned(volumes)
    (instance,) = make_instances(strict_ec2.endpoint, 1, [ZONE])
    where = instance.instance_id
    client(strict_ec2.endpoint).attach_volume(
        VolumeId=attached, InstanceId=where, Device="/dev/xvdba"
    )

    assert await run(volumes, tmp_path / "outcome", some, around) == ["kept"]
    assert f"attached to {where}" in (tmp_path / "outcome").read_text()
    assert "DeleteVolume" not in strict_ec2.counts()


async def test_what_ec2_refuses_costs_the_others_nothing(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    make(strict_ec2, 2)
    some, around = await planned(volumes)
    refused = {
        "action": "DeleteVolume",
        "do": "error",
        "code": "VolumeInUse",
        "message": "vol is currently attached",
        "http_status": 400,
    }
    strict_ec2.control(faults=[refused])

    assert sorted(await run(volumes, tmp_path / "outcome", some, around)) == ["deleted", "failed"]


async def test_a_lost_reply_is_found_out_and_never_sent_twice(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    make(strict_ec2)
    some, around = await planned(volumes)
    strict_ec2.control(faults=[{"action": "DeleteVolume", "do": "reset", "when": "after"}])

    assert await run(volumes, tmp_path / "outcome", some, around) == ["deleted"]
    assert strict_ec2.counts()["DeleteVolume"] == 1


async def test_a_request_that_was_lost_is_unknown_and_deleted_by_the_next_run(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    make(strict_ec2)
    some, around = await planned(volumes)
    strict_ec2.control(faults=[{"action": "DeleteVolume", "do": "reset"}])

    assert await run(volumes, tmp_path / "outcome", some, around) == ["unknown"]
    assert await run(volumes, tmp_path / "outcome", some, around) == ["deleted"]


async def test_a_look_that_fails_after_a_lost_reply_costs_the_others_nothing(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    (volume_id,) = make(strict_ec2)
    denied = {"do": "error", "code": "UnauthorizedOperation", "http_status": 403, "n": 2}
    strict_ec2.control(faults=[{"action": "DescribeVolumes", **denied}])
    with (tmp_path / "outcome").open("ab", buffering=0) as file:
        line = await apply._after_lost_reply(volumes, volume_id, apply.Record(file))

    assert (line.outcome, "may be there" in line.why) == ("unknown", True)


async def test_a_throttled_deletion_is_sent_again_until_ec2_accepts_it(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    ids = sorted(make(strict_ec2, 3))
    some, around = await planned(volumes)
    throttled = {"do": "error", "code": "RequestLimitExceeded", "http_status": 503, "n": 2}
    match = {"VolumeId": ids[1]}
    strict_ec2.control(faults=[{"action": "DeleteVolume", "match": match, **throttled}])

    assert await run(volumes, tmp_path / "outcome", some, around) == ["deleted"] * 3
    assert [each for each, what in written(tmp_path / "outcome") if what == "asked"] == ids


async def test_two_who_apply_a_plan_at_once_delete_each_volume_once(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    ids = make(strict_ec2, 5)
    some, around = await planned(volumes)
    path = tmp_path / "outcome"

    both = await asyncio.gather(*(run(volumes, path, some, around) for _ in range(2)))

    assert {frozenset(pair) for pair in zip(*both, strict=True)} <= {
        frozenset({"deleted"}),
        frozenset({"deleted", "gone"}),
    }
    assert {each for each, _ in written(path)} == set(ids)
    assert await volumes.find(tags={"CSIVolumeName": None}) == []


async def test_a_look_that_became_old_is_taken_again_before_the_next_deletion(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """EC2 throttles, or replies are lost: somebody may have taken the rest meanwhile."""
    ids = sorted(make(strict_ec2, 3))
    some, around = await planned(volumes)
    taken = [{}, {}, {ids[2]: "pv-new"}]

    async def fresh(*_: object) -> Seen:
        return Seen((), replace(around, named=taken.pop(0)))

    monkeypatch.setattr(apply, "_LOOK_LASTS_S", 0.0)
    monkeypatch.setattr(apply, "fresh", fresh)
    monkeypatch.setattr(apply, "ec2_of", lambda _: volumes._calls)
    whole = plan((), around, region="us-east-1", account=ACCOUNT)
    whole = msgspec.structs.replace(whole, volumes=some)

    count = await apply.carry_out_plan(None, whole, tmp_path / "outcome")  # type: ignore[arg-type]

    assert count == {"deleted": 2, "kept": 1}
    assert [each.volume_id for each in await volumes.find(tags={"CSIVolumeName": None})] == [ids[2]]


class AlmostFull(FileIO):
    """A file on a disk that takes some bytes more, and then none."""

    def write(self, data: ReadableBuffer) -> int:
        if self.tell():
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return super().write(bytes(data)[:5])


async def test_what_is_noted_in_part_is_not_deleted(
    strict_ec2: StrictEc2, volumes: Volumes, tmp_path: Path
):
    make(strict_ec2)
    some, around = await planned(volumes)

    with (
        AlmostFull(tmp_path / "outcome", "ab") as file,
        pytest.raises(StorageError, match="No space left"),
    ):
        await apply.batch(volumes, some, around, apply.Record(file))

    assert "DeleteVolume" not in strict_ec2.counts()


async def test_what_cannot_be_noted_is_not_deleted(strict_ec2: StrictEc2, volumes: Volumes):
    (volume_id,) = make(strict_ec2)
    some, around = await planned(volumes)

    with pytest.raises(StorageError, match=f"{volume_id} is asked to /dev/full: No space left"):
        await run(volumes, Path("/dev/full"), some, around)

    assert "DeleteVolume" not in strict_ec2.counts()
