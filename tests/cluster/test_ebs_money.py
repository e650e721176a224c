"""What volumes cost and which are nobody's, as somebody runs it beside a cluster and its EC2."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster.hands import CALM, PVS, Ec2Hand, remove, tag_list
from tests.cluster.test_volumes_table import A, claim, csi, made, name_a_volume

NOW = ("--min-age", "0.001s")
NOBODY = {
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest_asyncio.fixture
async def hand(sandbox: Sandbox) -> AsyncIterator[Ec2Hand]:
    found = Ec2Hand(sandbox.ec2_endpoint)
    before = {each["VolumeId"] for each in found.volumes()}
    found.watch()
    yield found
    found.control(**CALM)
    found.remove({each["VolumeId"] for each in found.volumes()} - before)


async def started(
    sandbox: Sandbox, *arguments: str, **environment: str
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "ebs", *arguments),
        *("--kubeconfig", str(sandbox.plane.kubeconfig)),
        env={**os.environ, **sandbox.aws_environment, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(sandbox: Sandbox, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
    """Exit code, what is printed, what is complained of."""
    process = await started(sandbox, *arguments, **environment)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def of_dead(hand: Ec2Hand, cluster_id: str, name: str, **changes: object) -> str:
    """A volume that a cluster has left."""
    tags = {
        f"kubernetes.io/cluster/{cluster_id}": "owned",
        "ebs.csi.aws.com/cluster-name": cluster_id,
        "CSIVolumeName": f"pvc-{name}",
        "kubernetes.io/created-for/pvc/namespace": "shop",
        "kubernetes.io/created-for/pvc/name": name,
    }
    return made(hand, A, TagSpecifications=tag_list(tags), **changes)


async def test_volumes_of_a_dead_cluster_are_planned_and_deleted(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand, tmp_path: Path
):
    dead, plan = f"dead-{namespace}", tmp_path / "plan.json"
    ids = sorted(of_dead(hand, dead, name) for name in ("a", "b", "c"))
    kept = ids[1]

    young = await run(sandbox, "orphans", "--cluster-id", dead)
    planned = await run(sandbox, "orphans", "--cluster-id", dead, *NOW, "--plan", str(plan))
    again = await run(sandbox, "orphans", "--cluster-id", dead, *NOW, "--plan", str(plan))
    unasked = await run(sandbox, "orphans", "--apply", str(plan))
    hand.ec2.create_tags(Resources=[kept], Tags=[{"Key": "keep", "Value": "yes"}])
    hand.control(faults=[{"action": "DeleteVolume", "do": "reset", "when": "after"}])
    applied = await run(sandbox, "orphans", "--apply", str(plan), "--yes")
    repeated = await run(sandbox, "orphans", "--apply", str(plan), "--yes")

    assert young[:2] == (0, "No orphans found.\n")
    assert "not listed: 3, each because it is younger than 1:00:00" in young[2]
    assert planned[0] == 0, planned
    assert "3 volumes, 60 GiB" in planned[1]
    assert [each["volume_id"] for each in json.loads(plan.read_bytes())["volumes"]] == ids
    assert (again[0], "File exists" in again[2]) == (2, True)
    assert (unasked[0], "give --yes" in unasked[2]) == (1, True)
    assert applied[:2] == (1, f"2 deleted, 1 kept: see {plan}.outcome\n"), applied
    assert repeated[:2] == (1, f"2 gone, 1 kept: see {plan}.outcome\n"), repeated
    assert {e["VolumeId"] for e in hand.volumes() if e["VolumeId"] in ids} == {kept}
    assert len(hand.changes("DeleteVolume")) == 2


async def test_a_deletion_that_was_killed_halfway_is_ended_by_the_next_run(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand, tmp_path: Path
):
    dead, plan = f"dead-{namespace}", tmp_path / "plan.json"
    ids = sorted(of_dead(hand, dead, name) for name in ("a", "b", "c"))
    await run(sandbox, "orphans", "--cluster-id", dead, *NOW, "--plan", str(plan))
    other = tmp_path / "other.json"
    text = plan.read_text()
    account = json.loads(text)["account"]
    other.write_text(text.replace(f'"account": "{account}"', '"account": "111122223333"'))
    hang = {"action": "DeleteVolume", "match": {"VolumeId": ids[1]}, "do": "hang"}

    elsewhere = await run(sandbox, "orphans", "--apply", str(other), "--yes")
    hand.control(faults=[hang])
    killed = await started(sandbox, "orphans", "--apply", str(plan), "--yes")
    outcomes = tmp_path / "plan.json.outcome"
    async with asyncio.timeout(30):
        while not outcomes.exists() or outcomes.read_text().count('"asked"') < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    killed.kill()
    await killed.communicate()
    hand.control(**CALM)
    applied = await run(sandbox, "orphans", "--apply", str(plan), "--yes")

    assert elsewhere[0] == 1
    assert "the plan is for account 111122223333" in elsewhere[2]
    assert applied[:2] == (0, f"2 deleted, 1 gone: see {outcomes}\n"), applied
    told = [json.loads(line) for line in outcomes.read_text().splitlines()]
    assert [(each["volume_id"], each["outcome"]) for each in told] == [
        (ids[0], "asked"),
        (ids[0], "deleted"),
        (ids[1], "asked"),
        (ids[0], "gone"),
        *[(each, what) for each in ids[1:] for what in ("asked", "deleted")],
    ]
    assert not {e["VolumeId"] for e in hand.volumes()} & set(ids)


async def test_nothing_is_deleted_of_a_cluster_that_may_be_alive(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand, tmp_path: Path
):
    dead, plan = f"dead-{namespace}", tmp_path / "plan.json"
    first, second = (of_dead(hand, dead, name) for name in ("a", "b"))
    arguments = ("orphans", "--cluster-id", dead, *NOW)
    await run(sandbox, *arguments, "--plan", str(plan))
    name = await name_a_volume(api, namespace, "kept", csi(first))
    try:
        applied = await run(sandbox, "orphans", "--apply", str(plan), "--yes")
        planned = await run(sandbox, *arguments, "--plan", str(tmp_path / "other"))
        listed = await run(sandbox, *arguments)
    finally:
        await remove(api, f"{PVS}/{name}")

    assert applied[0] == planned[0] == 1
    assert "seems to be alive" in applied[2]
    assert name in planned[2]
    assert not (tmp_path / "other").exists()
    assert (first in listed[1], second in listed[1]) == (False, True)
    assert hand.changes("DeleteVolume") == []


async def test_what_volumes_cost_by_namespace_with_what_is_wasted(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand, tmp_path: Path
):
    prices = tmp_path / "prices.json"
    prices.write_text('{"format": 1, "currency": "EUR", "regions": {}}')
    ours = tag_list({f"kubernetes.io/cluster/{namespace}": "owned"})
    fast = made(hand, A, Size=100, Iops=6_000, Throughput=250, TagSpecifications=ours)
    old = made(hand, A, Size=100, VolumeType="gp2")
    of_snapshots = [each | {"ResourceType": "snapshot"} for each in ours]
    taken = hand.ec2.create_snapshot(VolumeId=fast, TagSpecifications=of_snapshots)["SnapshotId"]
    names = [
        await name_a_volume(api, namespace, "fast", csi(fast), "data"),
        await name_a_volume(api, namespace, "old", csi(old), "old"),
    ]
    await claim(api, namespace, "data", "100Gi")
    try:
        table = await run(sandbox, "cost", "-n", namespace)
        text = await run(sandbox, "cost", "-n", namespace, "-o", "json", "--by", "type")
        rows = await run(sandbox, "cost", "-n", namespace, "-o", "csv")
        nowhere = await run(sandbox, "cost", "-n", namespace, "--prices", "/nowhere")
        unknown = await run(sandbox, "cost", "-n", namespace, "--prices", str(prices))
        unread = await run(sandbox, "cost", "-n", namespace, **NOBODY)
        wrong = await run(sandbox, "cost", "--by", "colour")
    finally:
        for name in names:
            await remove(api, f"{PVS}/{name}")

    (row,) = [each.split() for each in table[1].splitlines() if each.startswith(namespace)]
    assert row == [namespace, "2", "200", "38.00", "0.00-5.00", "38.00-43.00"], table
    assert "snapshots are a range" in table[1]
    assert "1 volume of type gp2 would cost 2.00 USD a month less" in table[1]
    document: dict[str, Any] = json.loads(text[1])
    groups = {each["group"]: float(each["month_high"]) for each in document["groups"]}
    assert groups == {"gp3": 28.0, "gp2": 10.0, "snapshot": 5.0}
    found = {each["id"]: each for each in csv.DictReader(rows[1].splitlines())}
    assert found[fast]["claim"] == "data"
    assert float(found[old]["gp3_saving"]) == 2.0
    assert [float(found[taken][each]) for each in ("month_low", "month_high")] == [0.0, 5.0]
    assert found[taken]["note"] == "incremental: at most the volume's size"
    assert (nowhere[0], "No such file" in nowhere[2]) == (2, True)
    assert "2 volumes of bound claims attached to no node: 200 GiB, ? EUR a month" in unknown[1]
    for code, out, _ in (unknown, unread):
        (row,) = [each.split() for each in out.splitlines() if each.startswith(namespace)]
        assert (code, row[0], row[3:]) == (1, namespace, ["?"] * 3)
    assert "DescribeVolumes" in unread[2]
    assert "no prices for region us-east-1: use --prices api" in unknown[2]
    assert (wrong[0], "label=KEY" in wrong[2]) == (2, True)


async def test_without_kubelets_no_volume_is_shown_as_full(sandbox: Sandbox, namespace: str):
    assert await run(sandbox, "df", "-n", namespace) == (0, "No mounted volumes found.\n", "")


async def test_the_history_of_a_claim_and_its_volume(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand
):
    volume_id = made(hand, A)
    name = await name_a_volume(api, namespace, "fast", csi(volume_id), "data")
    hand.ec2.modify_volume(VolumeId=volume_id, Size=30)
    snapshot_id = hand.ec2.create_snapshot(VolumeId=volume_id)["SnapshotId"]
    await claim(api, namespace, "data", "20Gi")
    try:
        code, out, err = await run(sandbox, "history", "pvc", "data", "-n", namespace)
        unknown = await run(sandbox, "history", "pvc", f"{namespace}/nobody")
        node = await run(sandbox, "history", "node", "a")
    finally:
        await remove(api, f"{PVS}/{name}")

    assert (code, err) == (0, "")
    for what in (
        "claim ",
        f"{volume_id} created in {A}",
        "20 GiB, gp3, 3000 IOPS, 125 MiB/s to 30 GiB",
        f"snapshot {snapshot_id} taken",
        f"created for {volume_id}",
    ):
        assert what in out, (what, out)
    assert (unknown[0], f"no pvc {namespace}/nobody" in unknown[2]) == (1, True)
    assert (node[0], "this command is for claims, not for a node" in node[2]) == (2, True)


async def test_the_use_of_quotas_is_told_where_their_limits_cannot_be_read(
    sandbox: Sandbox, hand: Ec2Hand
):
    made(hand, A, Size=1_024)
    nobody = {"AWS_ENDPOINT_URL_SERVICE_QUOTAS": "http://127.0.0.1:9"}

    code, out, err = await run(sandbox, "quota", "-o", "json", **nobody)

    gp3 = next(each for each in json.loads(out) if (each["of"], each["what"]) == ("gp3", "storage"))
    assert gp3["used"] >= 1
    assert gp3["limit"] is None
    assert code == 1
    assert "could not read ListAWSDefaultServiceQuotas, ListServiceQuotas" in err
