"""The table of ``kubectl ebs volumes``: one row a volume, what is wanted beside what is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.volumes.table import (
    HEADINGS,
    Allowance,
    Row,
    as_json,
    budget_lines,
    is_of,
    lines,
    read_rows,
)
from provisioner.kube.resources import PERSISTENT_VOLUMES, Resource
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import ObjectReference
from provisioner.model.modification import Modification, ModificationState, Shape
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume, VolumeState
from tests.builders import UID, VOLUME, ZONE, a_claim, a_persistent_volume
from tests.documents import section

FREE = Allowance(left=4, until=None)
THERE = Volume(VOLUME, VolumeState.IN_USE, ZONE, 4, "gp3", iops=3_000, throughput_mibps=125)


def of(name: str = "data", *, uid: str = UID, pv: str = f"pvc-{UID}") -> PersistentVolume:
    """One that is bound to a claim of this name."""
    found = a_persistent_volume(pv)
    ref = ObjectReference(namespace="shop", name=name, uid=uid)
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, claim_ref=ref))


def seen(**changes: Any) -> Row:
    """A volume of 4 GiB with which all is well."""
    usual: dict[str, Any] = {
        "persistent_volume": of(),
        "volume_id": VOLUME,
        "claim": a_claim(size="4Gi"),
        "volume": THERE,
        "modification": None,
        "allowance": FREE,
    }
    return Row(**usual | changes)


class FewRights:
    """Readers of one bound PersistentVolume; one question is refused."""

    def __init__(self, refused: str) -> None:
        self._refused = refused
        self.cluster = Cluster(self)  # type: ignore[arg-type]
        self.cloud = SimpleNamespace(
            calls=None, volumes=self.volumes, modifications=self.volumes, misses=self.misses
        )

    def misses(self, *actions: str) -> bool:
        return self._refused in actions

    async def volumes(self, _: object) -> dict[str, Any]:
        return {}

    async def list(self, resource: Resource[Any], **_: str) -> Any:
        if self._refused == f"list {resource.plural}":
            raise KubeError(Reason.FORBIDDEN, "it is forbidden", status=403)
        return SimpleNamespace(items=[of()] if resource is PERSISTENT_VOLUMES else [])


def cells(*of_seen: Row, row: int = 0) -> dict[str, str]:
    """One row of the table, cut at where its headings begin."""
    heading, *rows = lines(of_seen)
    starts = [heading.index(each) for each in HEADINGS]
    ends = [*starts[1:], None]
    return {
        name: rows[row][start:end].strip()
        for name, start, end in zip(HEADINGS, starts, ends, strict=True)
    }


def modified(state: ModificationState, percent: int = 0, message: str = "") -> Modification:
    target = Shape(size_gib=8, volume_type="gp3", iops=3_000, throughput_mibps=125)
    return Modification(VOLUME, state, target, progress_percent=percent, message=message)


def test_a_volume_with_which_all_is_well():
    assert cells(seen()) == {
        "CLAIM": "shop/data",
        "PV": f"pvc-{UID}",
        "VOLUME": VOLUME,
        "ZONE": ZONE,
        "TYPE": "gp3",
        "SIZE": "4Gi",
        "IOPS": "3000",
        "MIB/S": "125",
        "STATE": "in-use",
        "MODIFICATION": "-",
        "LEFT": "4",
        "SNAPSHOTS": "-",
    }


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("8Gi", "4Gi->8Gi"),
        ("4097Mi", "4Gi->5Gi"),
        ("3Gi", "4Gi"),
        ("4Gi", "4Gi"),
        ("much", "4Gi"),
        ("", "4Gi"),
    ],
)
def test_a_size_that_is_asked_for_stands_beside_what_there_is(asked: str, shown: str):
    assert cells(seen(claim=a_claim(size=asked)))["SIZE"] == shown


@pytest.mark.parametrize(
    ("modification", "shown"),
    [
        (modified(ModificationState.MODIFYING), "modifying 0%"),
        (modified(ModificationState.OPTIMIZING, 45), "optimizing 45%"),
        (modified(ModificationState.COMPLETED, 100), "completed"),
        (modified(ModificationState.FAILED), "failed"),
        (modified(ModificationState.FAILED, 3, "no room"), "failed: no room"),
    ],
)
def test_a_modification_is_told_with_its_progress(modification: Modification, shown: str):
    assert cells(seen(modification=modification))["MODIFICATION"] == shown


@pytest.mark.parametrize(
    ("until", "shown"),
    [
        (datetime(2026, 11, 22, 14, 3, tzinfo=UTC), "0 until 2026-11-22T14:03Z"),
        (datetime(2026, 11, 22, 14, 3, 1, tzinfo=UTC), "0 until 2026-11-22T14:04Z"),
        (datetime(2026, 11, 22, 23, 59, 59, 7, tzinfo=UTC), "0 until 2026-11-23T00:00Z"),
    ],
)
def test_modifications_left_are_told_with_the_minute_from_which_there_are_more(
    until: datetime, shown: str
):
    assert cells(seen(allowance=Allowance(0, until)))["LEFT"] == shown


@given(st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001 -- made aware below
def test_the_minute_that_is_told_is_never_too_early_and_never_a_minute_late(naive: datetime):
    until = naive.replace(tzinfo=UTC)

    told = cells(seen(allowance=Allowance(1, until)))["LEFT"].removeprefix("1 until ")

    late = datetime.strptime(told, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC) - until
    assert timedelta() <= late < timedelta(minutes=1)


def test_pending_snapshots_are_counted_with_the_slowest_of_them():
    snapshots = [
        EbsSnapshot(f"snap-{percent}", VOLUME, SnapshotState.PENDING, 4, progress_percent=percent)
        for percent in (60, 12, 99)
    ]

    assert cells(seen(pending=snapshots))["SNAPSHOTS"] == "3 pending, 12%"


def test_a_volume_that_ec2_does_not_know_is_told_as_such():
    shown = cells(seen(volume=None))

    assert shown["STATE"] == "not in EC2"
    assert shown["VOLUME"] == VOLUME
    assert {shown[each] for each in ("ZONE", "TYPE", "SIZE", "IOPS", "MIB/S", "LEFT")} == {"-"}


def test_where_ec2_did_not_answer_nothing_is_said_of_a_volume():
    assert cells(seen(volume=None, unread={"volume"}))["STATE"] == "unknown"


def test_a_claim_is_gone_only_if_claims_could_be_read():
    unread = seen(claim=None, unread={"claim"})

    assert cells(seen(claim=None))["CLAIM"] == "shop/data (gone)"
    assert cells(unread)["CLAIM"] == "shop/data"
    assert as_json([seen(claim=None)])[0]["claim"] is None
    assert as_json([unread])[0]["claim"] == "shop/data"


def test_without_the_latest_modifications_nobody_knows_how_many_are_left():
    unread = seen(allowance=Allowance(None, None))

    assert cells(unread)["LEFT"] == "?"
    assert "? of 4" in budget_lines([unread], datetime(2026, 11, 23, 12, tzinfo=UTC))[1]
    assert as_json([unread])[0]["modifications_left"] is None


@pytest.mark.parametrize("refused", ["DescribeVolumesModifications", "list persistentvolumeclaims"])
async def test_what_could_not_be_read_is_not_taken_for_absent(refused: str):
    readers: Any = FewRights(refused)

    [row] = await read_rows(readers, driver="ebs.csi.aws.com", namespace="")

    assert (row.allowance.left is None) == (refused == "DescribeVolumesModifications")
    assert cells(row)["CLAIM"].endswith("(gone)") == (refused == "DescribeVolumesModifications")


def test_the_budget_names_first_who_has_least_left():
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    used = Allowance(0, now + timedelta(hours=2, minutes=5))
    table = [seen(), seen(persistent_volume=of("web"), claim=None, allowance=used)]

    _, first, second = budget_lines(table, now)

    assert first.split("   ") == [
        *("shop/web (gone)", VOLUME, "0 of 4", "2026-11-23T14:05Z", "2h5m", "-"),
    ]
    assert second.split()[2:] == ["4", "of", "4", "-", "-", "-"]


@given(st.lists(st.builds(Allowance, st.integers(0, 4), st.none() | st.just(datetime.now(UTC)))))
def test_json_has_each_volume_of_the_table(allowances: list[Allowance]):
    rows = [seen(allowance=each) for each in allowances]

    found = msgspec.json.decode(msgspec.json.encode(as_json(rows)))

    assert [each["modifications_left"] for each in found] == [each.left for each in allowances]
    assert {each["volume_id"] for each in found} <= {VOLUME}


def test_a_claim_that_is_gone_is_told_as_such():
    assert cells(seen(claim=None))["CLAIM"] == "shop/data (gone)"


def test_rows_are_sorted_by_claim_and_those_without_one_come_last():
    unbound = a_persistent_volume("a", claim_uid=None)
    table = [
        seen(persistent_volume=unbound, claim=None),
        seen(persistent_volume=of("web")),
        seen(persistent_volume=of("data")),
    ]

    shown = [cells(*table, row=row)["CLAIM"] for row in range(3)]

    assert shown == ["shop/data", "shop/web", "-"]


def test_columns_are_as_wide_as_their_widest_cell():
    long = "a-claim-with-a-name-that-is-quite-long"

    heading, *rows = lines([seen(persistent_volume=of(long)), seen()])

    assert len({row.index(f"pvc-{UID}") for row in rows} | {heading.index("PV ")}) == 1
    assert not any(line.endswith(" ") for line in (heading, *rows))


@pytest.mark.parametrize(
    ("claim", "expected"),
    [(a_claim(), True), (a_claim(uid="another"), False)],
)
def test_a_claim_of_the_same_name_made_later_is_another(claim: Claim, *, expected: bool):
    assert is_of(of(), claim) is expected


def test_a_volume_kept_for_a_claim_by_name_alone_is_of_that_claim():
    assert is_of(of(uid=""), a_claim())


def test_docs_show_a_table_as_it_is():
    orders = Volume("vol-0a1b2c3d4e5f60718", VolumeState.IN_USE, "eu-central-1a", 100, "gp3")
    carts = Volume("vol-0c9d8e7f6a5b41302", VolumeState.IN_USE, "eu-central-1b", 20, "gp3")
    table = [
        seen(
            persistent_volume=of("orders", uid="5d1c8e0a", pv="pvc-5d1c8e0a"),
            volume_id=orders.volume_id,
            claim=a_claim(size="200Gi"),
            volume=replace(orders, iops=6_000, throughput_mibps=250),
            modification=modified(ModificationState.OPTIMIZING, 45),
            allowance=Allowance(3, datetime(2026, 11, 23, 9, 12, tzinfo=UTC)),
        ),
        seen(
            persistent_volume=of("carts", uid="77f0b3c1", pv="pvc-77f0b3c1"),
            volume_id=carts.volume_id,
            claim=a_claim(size="20Gi"),
            volume=replace(carts, iops=3_000, throughput_mibps=125),
            pending=[EbsSnapshot("snap-1", VOLUME, SnapshotState.PENDING, 20, progress_percent=30)],
        ),
    ]

    shown = section("volumes", "Look at volumes").partition("volumes -n shop\n")[2]

    assert shown.startswith("\n".join(lines(table)) + "\n```")
