"""``kubectl ebs volumes``, as somebody runs it beside a cluster and its EC2."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest_asyncio

from provisioner.inspect.volumes.table import HEADINGS
from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster.hands import CALM, PVS, Ec2Hand, claims_of, remove
from tests.cluster.replicas import NO_REGION

A, B = "us-east-1a", "us-east-1b"


@pytest_asyncio.fixture
async def hand(sandbox: Sandbox) -> AsyncIterator[Ec2Hand]:
    found = Ec2Hand(sandbox.ec2_endpoint)
    before = {each["VolumeId"] for each in found.volumes()}
    found.watch()
    yield found
    found.control(**CALM)
    found.remove({each["VolumeId"] for each in found.volumes()} - before)


async def run(
    sandbox: Sandbox, *arguments: str, command: str = "volumes", **environment: str
) -> tuple[int | None, list[str], str]:
    """Exit code, the lines that are printed, what is complained of."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "ebs", command, *arguments),
        *("--kubeconfig", str(sandbox.plane.kubeconfig)),
        env={**os.environ, **sandbox.aws_environment, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode().splitlines(), err.decode()


def cut(lines: Sequence[str]) -> dict[str, dict[str, str]]:
    """The rows by the name of their PersistentVolume, cut at where the headings begin."""
    heading, *rows = lines
    starts = [heading.index(each) for each in HEADINGS]
    ends = [*starts[1:], None]
    cells = [
        {n: row[s:e].strip() for n, s, e in zip(HEADINGS, starts, ends, strict=True)}
        for row in rows
    ]
    return {each["PV"]: each for each in cells}


async def name_a_volume(
    api: Api, namespace: str, name: str, source: Mapping[str, object], claim: str = ""
) -> str:
    """A persistent volume that is kept for a claim; its name."""
    spec: dict[str, object] = {
        "capacity": {"storage": "4Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": namespace,
    }
    if claim:
        spec["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": claim,
        }
    metadata = {"name": f"{namespace}-{name}"}
    await api.create(PVS, {"metadata": metadata, "spec": {**spec, **source}})
    return f"{namespace}-{name}"


def csi(volume_id: str, driver: str = "ebs.csi.aws.com") -> dict[str, object]:
    return {"csi": {"driver": driver, "volumeHandle": volume_id}}


async def claim(api: Api, namespace: str, name: str, size: str) -> None:
    spec = {
        "storageClassName": namespace,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    await api.create(claims_of(namespace), {"metadata": {"name": name}, "spec": spec})


def made(hand: Ec2Hand, zone: str, **changes: object) -> str:
    usual: dict[str, object] = {"AvailabilityZone": zone, "Size": 20, "VolumeType": "gp3"}
    return str(hand.ec2.create_volume(**usual | changes)["VolumeId"])


async def test_volumes_of_a_namespace_with_what_ec2_has(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand
):
    fast = made(hand, A, Iops=4_000, Throughput=200)
    old = made(hand, B, VolumeType="st1", Size=125)
    lost = "vol-0123456789abcdef0"
    in_tree = {"awsElasticBlockStore": {"volumeID": f"aws://{B}/{old}"}}
    names = [
        await name_a_volume(api, namespace, "fast", csi(fast), "data"),
        await name_a_volume(api, namespace, "old", in_tree, "gone"),
        await name_a_volume(api, namespace, "lost", csi(lost), "lost"),
        await name_a_volume(api, namespace, "odd", csi("no volume\tat all"), "odd"),
        await name_a_volume(api, namespace, "others", csi("fs-1", "efs.csi.aws.com"), "others"),
        await name_a_volume(api, namespace, "free", csi(fast)),
    ]
    await claim(api, namespace, "data", "29Gi")
    hand.control(delays={"modify_s": 0.0, "optimize_s": 7_200.0, "snapshot_s": 7_200.0})
    hand.ec2.modify_volume(VolumeId=fast, Iops=5_000)
    hand.ec2.create_snapshot(VolumeId=fast)
    try:
        code, lines, err = await run(sandbox, "--namespace", namespace)
    finally:
        for name in names:
            await remove(api, f"{PVS}/{name}")

    assert (code, err) == (0, "")
    rows = cut(lines)
    assert list(rows) == [f"{namespace}-{name}" for name in ("fast", "old", "lost", "odd")]
    assert rows[names[0]] == {
        "CLAIM": f"{namespace}/data",
        "PV": names[0],
        "VOLUME": fast,
        "ZONE": A,
        "TYPE": "gp3",
        "SIZE": "20Gi->29Gi",
        "IOPS": "5000",
        "MIB/S": "200",
        "STATE": "available",
        "MODIFICATION": "optimizing 0%",
        "LEFT": rows[names[0]]["LEFT"],
        "SNAPSHOTS": "1 pending, 0%",
    }
    assert rows[names[0]]["LEFT"].startswith("3 until 20")
    told = rows[names[1]]
    assert (told["CLAIM"], told["VOLUME"]) == (f"{namespace}/gone (gone)", old)
    assert (told["ZONE"], told["TYPE"], told["SIZE"], told["LEFT"]) == (B, "st1", "125Gi", "4")
    assert rows[names[2]]["STATE"] == rows[names[3]]["STATE"] == "not in EC2"
    assert rows[names[3]]["VOLUME"] == "no volume\\tat all"


async def test_nothing_is_a_heading_and_no_call(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand
):
    code, lines, err = await run(sandbox, "-n", namespace)

    assert (code, err) == (0, "")
    assert [line.split() for line in lines] == [list(HEADINGS)]
    assert [each["action"] for each in hand.log()] == []


async def test_what_ec2_refuses_is_one_line_and_the_rest_is_shown(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand
):
    name = await name_a_volume(api, namespace, "fast", csi(made(hand, A)))
    refused = {
        "action": "DescribeVolumes",
        "do": "error",
        "code": "UnauthorizedOperation",
        "message": "You are not authorized to perform this operation.",
        "http_status": 403,
    }
    hand.control(faults=[refused])
    try:
        code, lines, err = await run(sandbox)
    finally:
        await remove(api, f"{PVS}/{name}")

    assert code == 1
    row = cut(lines)[name]
    assert (row["PV"], row["STATE"], row["SIZE"], row["LEFT"]) == (name, "unknown", "-", "-")
    assert err.startswith("could not read DescribeVolumes: ")
    assert err.count("\n") == 1


async def test_the_budget_and_the_volumes_as_json(
    sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand
):
    volume_id = made(hand, A)
    name = await name_a_volume(api, namespace, "fast", csi(volume_id), "data")
    hand.ec2.modify_volume(VolumeId=volume_id, Iops=5_000)
    try:
        listed = await run(sandbox, "-n", namespace, "-o", "json")
        budget = await run(sandbox, "-n", namespace, command="budget")
        both = await run(sandbox, "-n", namespace, "-A")
    finally:
        await remove(api, f"{PVS}/{name}")

    (found,) = json.loads("\n".join(listed[1]))
    assert (found["volume_id"], found["modifications_left"]) == (volume_id, 3)
    assert budget[0] == 0
    assert f"{volume_id}   3 of 4" in budget[1][1]
    assert "   1d   " in budget[1][1]
    assert both[0] == 2


async def test_the_nodes_tell_the_region(sandbox: Sandbox, api: Api, namespace: str, hand: Ec2Hand):
    volume_id = made(hand, A)
    name = await name_a_volume(api, namespace, "fast", csi(volume_id), "data")
    try:
        code, lines, err = await run(sandbox, "-n", namespace, **NO_REGION)
    finally:
        await remove(api, f"{PVS}/{name}")

    assert (code, err) == (0, "")
    assert (cut(lines)[name]["VOLUME"], cut(lines)[name]["ZONE"]) == (volume_id, A)
