"""Pods write to volumes on real kubelets, and other pods read it again, there and elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from tests.cluster import copies, growing, real_pods
from tests.cluster.cluster import Json
from tests.cluster.place import Place
from tests.cluster.real_nodes import until_within, within
from tests.cluster.real_pods import READ, WRITE, nodes_of, ran
from tests.cluster.together import Together
from tests.documents import ROOT
from tests.node.machine import why_no_ext_growth

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together("real_stories")

WHY_NOT_GROW = why_no_ext_growth()
GROWS = pytest.mark.skipif(bool(WHY_NOT_GROW), reason=WHY_NOT_GROW or "it can")
BLOCK = {"volumeMode": "Block"}
AS_DEVICE = {"/dev/xvdz": "data"}
LOG = "/dev/termination-log"
# Asked again if it fails: busybox's df looks for /data in a table of mounts that changes meanwhile.
KIB = (
    "kib() { until df -k /data > /tmp/df; do sleep 0.1; done; tail -1 /tmp/df | awk '{print $2}'; }"
)


@together.test
async def test_a_new_pod_reads_what_the_last_one_wrote_here_and_on_the_other_node(place: Place):
    here, there = nodes_of(place)
    await real_pods.a_claim(place)

    written = await ran(place, "writer", WRITE, node=here)
    assert len(written.split()[0]) == 64

    assert await ran(place, "reader", READ, node=here) == written
    assert await ran(place, "other-reader", READ, node=there) == written


@together.test
async def test_a_block_volume_keeps_its_bytes(place: Place):
    here, there = nodes_of(place)
    await real_pods.a_claim(place, **BLOCK)
    read = "dd if=/dev/xvdz bs=1M skip=500 count=20 2>/dev/null | sha256sum > /dev/termination-log"
    write = "dd if=/dev/urandom of=/dev/xvdz bs=1M seek=500 count=20 conv=fsync 2>/dev/null"

    written = await ran(place, "writer", f"{write} && {read}", {}, devices=AS_DEVICE, node=here)

    assert await ran(place, "reader", read, {}, devices=AS_DEVICE, node=there) == written
    zeros = "dd if=/dev/xvdz bs=1M count=16 2>/dev/null | tr -d '\\0' | wc -c"
    told = f"{zeros} > /dev/termination-log"
    assert await ran(place, "looker", told, {}, devices=AS_DEVICE) == "0"


@together.test
async def test_xfs_keeps_its_bytes(place: Place):
    here, there = nodes_of(place)
    await real_pods.a_claim(place, file_system="xfs")
    kind = "grep ' /data ' /proc/mounts | cut -d' ' -f3 >> /dev/termination-log"

    written = await ran(place, "writer", f"{WRITE} && {kind}", node=here)

    assert written.endswith("xfs")
    assert await ran(place, "reader", f"{READ} && {kind}", node=there) == written


@together.test
async def test_mount_options_that_no_kernel_sees_are_no_failure(place: Place):
    """For them mount(8) writes to its root file system, which takes no writes in our container."""
    options = ["noatime", "_netdev", "x-systemd.automount"]
    await place.storage_class("ext4", waits=True, mountOptions=options)
    await real_pods.a_claim(place)

    await real_pods.start(place, "user", f"{WRITE}; grep ' /data ' /proc/mounts >> {LOG}")

    assert "noatime" in await real_pods.end_of(place, "user")
    assert "MountVolume.MountDevice failed" not in await real_pods.describe(place, "user")
    await real_pods.gone(place, "user")


@together.test
async def test_a_pod_writes_by_its_fs_group(place: Place):
    await real_pods.a_claim(place)
    alone = {"runAsUser": 1000, "runAsGroup": 1000}
    tell = "stat -c '%u %g' /data/mine > /dev/termination-log"

    mine = await ran(
        place,
        "writer",
        f"echo hello > /data/mine && {tell}",
        securityContext={**alone, "fsGroup": 2000},
    )

    assert mine == "1000 2000"  # the folder's group, by its setgid bit
    refused = "touch /data/other 2> /dev/termination-log || cat /data/mine >> /dev/termination-log"
    told = await ran(place, "stranger", refused, securityContext={"runAsUser": 3000})
    assert "Permission denied" in told


@together.test
async def test_a_read_only_mount_takes_no_writes(place: Place):
    await real_pods.a_claim(place)
    written = await ran(place, "writer", WRITE)
    volume = {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    script = f"touch /data/more 2> /tmp/refused && exit 1; {READ}; cat /tmp/refused >> {LOG}"

    told = await ran(place, "reader", script, volumes=[volume])

    assert told.startswith(written)
    assert "Read-only file system" in told


@together.test
@pytest.mark.parametrize("file_system", [pytest.param("ext4", marks=GROWS), "xfs"])
async def test_a_running_pod_sees_its_file_system_grow(place: Place, file_system: str):
    await real_pods.a_claim(place, file_system=file_system)
    script = f"{KIB}; {WRITE}; kib > /data/was;"
    script += f" until [ $(kib) -gt 2500000 ]; do sleep 0.2; done; {READ}; cat /data/was >> {LOG}"
    script += f"; kib >> {LOG}"
    await real_pods.start(place, "user", script)
    await real_pods.is_running(place, "user")
    measured = ("test", "-s", "/data/was")
    await until_within(place.cluster.sandbox, "user", *measured, namespace=place.name)

    await growing.ask(place, "3Gi")

    _, was, now = (await real_pods.end_of(place, "user")).splitlines()
    assert 0.8 * 2**20 < int(was) < 2**20
    assert 2.7 * 2**20 < int(now) < 3 * 2**20
    claim = await growing.has_size(place, "3Gi")
    assert growing.conditions(claim) == {}
    found = await place.api.get(f"{place.pods}/user")
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


@together.test
@pytest.mark.parametrize(
    ("file_system", "size"),
    [("ext4", "1Gi"), ("ext4", "3Gi"), ("xfs", "1Gi"), ("xfs", "3Gi")],
)
async def test_a_restored_snapshot_has_the_same_bytes(place: Place, file_system: str, size: str):
    here, there = nodes_of(place)
    await real_pods.a_claim(place, file_system=file_system)
    # A snapshot has what is on the volume; what only the node knows is not.
    written = await ran(place, "writer", f"{WRITE} && sync", node=here)
    async with copies.a_snapshot(place):
        later = "echo later > /data/later; echo changed > /data/file"
        await ran(place, "changer", later, node=here)
        await real_pods.a_claim(
            place,
            "restored",
            file_system,
            **copies.of_snapshot("monday"),
            **copies.size(size),
        )
        see = f"{KIB}; {READ}; ls /data | wc -l >> {LOG}; kib >> {LOG}"

        told = await ran(place, "reader", see, {"/data": "restored"}, node=there)

    assert len(told.splitlines()) == 3, told
    first, files, kib = told.splitlines()
    assert first == written
    # The file, and lost+found where there is one: nothing of what came later.
    assert files == ("1" if file_system == "xfs" else "2")
    assert abs(int(kib) / 2**20 - int(size.removesuffix("Gi"))) < 0.2


async def mounts_of(place: Place, node: RealNode) -> list[str]:
    """What a node's kernel says of the mounts of the claim "data", with the number of each."""
    disks = real_pods.fleet_of(place.cluster.sandbox).disks
    volume_id = await real_pods.volume_of(place)
    device = node.root / "dev" / disks.device_of(volume_id, node.instance.instance_id)
    number = device.stat().st_rdev
    shown = f"{os.major(number)}:{os.minor(number)}"
    return [line for line in node.mounts() if line.split()[2] == shown]


@together.test
async def test_a_node_plugin_that_is_killed_changes_nothing_for_a_running_pod(place: Place):
    box = place.cluster.sandbox
    node = real_pods.fleet_of(box).nodes[1]
    await real_pods.a_claim(place)
    script = "while echo x >> /data/log; do sync; sleep 0.1; done; exit 1"
    await real_pods.start(place, "user", script, node=node.name)
    before = await real_pods.is_running(place, "user")
    await until_within(box, "user", "test", "-s", "/data/log", namespace=place.name)
    mounts = await mounts_of(place, node)
    assert len(mounts) == 2, mounts  # the stage, and the pod's

    for _ in range(3):
        await place.cluster.background.call(node.restart(PLUGIN))
        await place.cluster.background.call(node.ready())

    assert await mounts_of(place, node) == mounts
    count = ("grep", "-c", "x", "/data/log")
    written = await within(box, "user", *count, namespace=place.name)
    more = f"[ $({' '.join(count)}) -gt {written} ]"
    await until_within(box, "user", "sh", "-c", more, namespace=place.name)
    after = await place.api.get(f"{place.pods}/user")
    states = [each["status"]["containerStatuses"][0] for each in (before, after)]
    assert states[0]["containerID"] == states[1]["containerID"]
    assert "running" in states[1]["state"]
    await real_pods.gone(place, "user")
    lines = f"sort -u /data/log > {LOG}; {' '.join(count)} >> {LOG}"
    kind, there = (await ran(place, "reader", lines, node=nodes_of(place)[0])).splitlines()
    assert kind == "x"
    assert int(there) > int(written)


async def a_readers_kubeconfig(place: Place) -> str:
    """Of somebody who has what manifests/cli gives, and no more."""
    plane = place.cluster.sandbox.plane
    await kubectl(plane, "apply", "-k", str(ROOT / "manifests" / "cli"))
    await kubectl(plane, "create", "serviceaccount", "reader", "-n", place.name)
    await bind(place, "ebs-provisioner-cli")
    token = await kubectl(plane, "create", "token", "reader", "-n", place.name)
    return str(plane.kubeconfig_for(token.strip()))


async def bind(place: Place, role: str) -> None:
    reader = f"--serviceaccount={place.name}:reader"
    name = f"{place.name}-{role}"
    plane = place.cluster.sandbox.plane
    await kubectl(plane, "create", "clusterrolebinding", name, f"--clusterrole={role}", reader)


@contextlib.asynccontextmanager
async def df(
    place: Place, kubeconfig: str, *more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """``kubectl ebs df`` of the place's namespace; interrupted at the end if it runs on."""
    box = place.cluster.sandbox
    process = await asyncio.create_subprocess_exec(
        # A shell's background jobs ignore SIGINT, and so would what they start.
        *("env", "--default-signal=INT"),
        *(sys.executable, "-m", "provisioner.cli", "ebs", "df", "-n", place.name, *more),
        *("--kubeconfig", kubeconfig),
        env={**os.environ, **box.aws_environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.communicate()


async def looks(process: asyncio.subprocess.Process) -> AsyncIterator[list[Json]]:
    """What each look of ``df --watch -o json`` prints."""
    assert process.stdout is not None
    text = ""
    while line := (await process.stdout.readline()).decode():
        text += line
        with contextlib.suppress(ValueError):
            yield json.loads(text)
            text = ""


# 200 MiB and 1,000 files at once, then about a MiB a second.
FILL = """
dd if=/dev/zero of=/data/file bs=1M count=200 2>/dev/null
for i in $(seq 1000); do : > /data/$i; done
while dd if=/dev/zero bs=1M count=1 2>/dev/null >> /data/more; do sleep 1; done
"""


@together.test
async def test_df_says_how_full_a_mounted_volume_is_and_when_it_will_be_full(place: Place):
    box = place.cluster.sandbox
    await real_pods.a_claim(place)
    await real_pods.start(place, "user", FILL)
    kubeconfig = await a_readers_kubeconfig(place)
    await real_pods.is_running(place, "user")

    async with df(place, kubeconfig) as process:
        out, err = (each.decode() for each in await process.communicate())
    assert (process.returncode, out) == (1, "No mounted volumes found.\n")
    assert "could not read get nodes/proxy" in err

    await kubectl(box.plane, "apply", "-k", str(ROOT / "manifests" / "cli" / "df"))
    await bind(place, "ebs-provisioner-cli-df")
    before: Json = {}
    async with df(place, kubeconfig, "--watch", "2s", "-o", "json") as watch:
        async for found in looks(watch):
            if not found:
                continue  # the kubelet has not measured it yet
            [now] = found
            filled = now["used_bytes"] > 200 * 2**20 and now["inodes_used"] > 1_000
            if filled and now["full_in_s"] is not None:
                break
            before = before if before.get("at") == now["at"] else now
    assert watch.returncode == 130

    assert (now["namespace"], now["claim"]) == (place.name, "data")
    passed_s = (moment(now) - moment(before)).total_seconds()
    growth = (now["used_bytes"] - before["used_bytes"]) / passed_s
    more = (now["inodes_used"] - before["inodes_used"]) / passed_s
    left = [now["available_bytes"] / growth]
    left += [(now["inodes"] - now["inodes_used"]) / more] if more else []
    assert now["full_in_s"] == pytest.approx(min(left))
    script = "stat -f -c '%s %b %f %a %c %d' /data"
    told = await within(box, "user", "sh", "-c", script, namespace=place.name)
    block, blocks, free, _, files, files_free = map(int, told.split())
    assert now["capacity_bytes"] == block * blocks
    assert now["inodes"] == files
    # The pod goes on writing.
    assert now["used_bytes"] <= block * (blocks - free) < now["used_bytes"] + 200 * 2**20
    assert now["inodes_used"] <= files - files_free <= now["inodes_used"] + 10

    async with df(place, kubeconfig) as process:
        table, _ = await process.communicate()
    heading, row = table.decode().splitlines()
    assert heading.split()[:4] == ["CLAIM", "SIZE", "USED", "AVAILABLE"]
    assert row.startswith(f"{place.name}/data")
    assert process.returncode == 0
    for role in ("ebs-provisioner-cli", "ebs-provisioner-cli-df"):
        await kubectl(box.plane, "delete", "clusterrolebinding", f"{place.name}-{role}")


def moment(look: Json) -> datetime:
    return datetime.fromisoformat(look["at"])
