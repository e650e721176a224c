"""VolumeMoves that copy files: to a smaller volume, and to another file system, on real nodes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from provisioner.sandbox.installed.archive import read
from provisioner.sandbox.real_node import requirements
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.up import Sandbox
from tests.cluster import diaries, real_pods
from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, NODES, PVS, Cluster, Json
from tests.cluster.move_stories import MOVES, moves_installed
from tests.cluster.place import Place
from tests.cluster.real_pods import nodes_of
from tests.cluster.together import Together
from tests.image import checkout

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together("real_stories", within_s=540.0)

PYTHON = "/usr/bin/python3"
MOVE_S = 150.0
WRITE = """
import os
os.chdir("/data")
for name in ["plain", "with space", "new\\nline", "-n", "*", "\\u00fc\\u00f1\\u00ed", ".hidden"]:
    open(name, "w").write("in " + repr(name))
open(b"\\xff\\xfe", "w").write("no UTF-8")
os.makedirs("deep/er")
open("deep/er/random", "wb").write(os.urandom(20 << 20))
os.link("plain", "deep/same")
os.symlink("nowhere/at all", "link")
os.symlink("x" * 200, "long link")
os.mkfifo("pipe", 0o640)
os.mknod("device", 0o20600, os.makedev(1, 3))
with open("sparse", "wb") as file:
    file.truncate(3 << 30)
    file.seek(1 << 30)
    file.write(b"x")
os.chmod("with space", 0o640)
os.chown("*", 1234, 5678)
os.chmod("*", 0o4755)
os.chown("link", 4321, 8765, follow_symlinks=False)
os.chmod("deep", 0o2777)
os.setxattr("plain", "user.note", b"kept")
os.setxattr("deep", "user.note", b"of a folder")
os.setxattr("-n", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
acl = "02000000 01000600ffffffff 0200060039300000 04000400ffffffff 10000600ffffffff"
acl = bytes.fromhex(acl + " 20000400ffffffff")
os.setxattr(".hidden", "system.posix_acl_access", acl)
for path, folders, names in os.walk(".", topdown=False):
    for name in [*names, *folders]:
        os.utime(os.path.join(path, name), ns=(1, 1234567890123456789), follow_symlinks=False)
"""
TELL = """
import hashlib, json, os, stat
os.chdir("/data")
digest, count = hashlib.sha256(), 0
for path, folders, names in os.walk(b"."):
    folders.sort()
    for name in sorted([*names, *folders]):
        each = os.path.join(path, name)
        if each == b"./lost+found":
            continue
        s = os.lstat(each)
        is_file, is_folder = stat.S_ISREG(s.st_mode), stat.S_ISDIR(s.st_mode)
        told = [each, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, s.st_rdev]
        told += [] if is_folder else [s.st_nlink, s.st_size]
        told += [os.readlink(each)] if stat.S_ISLNK(s.st_mode) else []
        found = [] if stat.S_ISLNK(s.st_mode) else sorted(os.listxattr(each))
        told += [(x, os.getxattr(each, x)) for x in found if x != "security.selinux"]
        if is_file and s.st_size < 1 << 30:
            told.append(hashlib.sha256(open(each, "rb").read()).hexdigest())
        if each == b"./sparse":
            file = open(each, "rb")
            file.seek(1 << 30)
            told.append((file.read(1), s.st_blocks < 1000))
        digest.update(repr(told).encode())
        count += 1
same = os.path.exists("plain") and os.stat("plain").st_ino == os.stat("deep/same").st_ino
kind = [l.split()[2] for l in open("/proc/mounts") if l.split()[1] == "/data"][0]
size = os.statvfs(".").f_blocks * os.statvfs(".").f_frsize
told = {"digest": digest.hexdigest(), "count": count, "same": same, "kind": kind, "size": size}
open("/dev/termination-log", "w").write(json.dumps(told))
"""


@pytest.fixture(scope="module")
def real() -> Iterator[Background]:
    """A sandbox whose nodes all run pods really, as the scheduler chooses that of a copy."""
    if why := requirements.missing():
        pytest.skip(why)
    start = Sandbox.start(
        nodes=0, zones=1, real_nodes=2, latency="none", throttle="none", controller=False
    )
    with Background(start) as running:
        yield running


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of this checkout."""
    if why := requirements.missing():
        pytest.skip(why)
    path = tmp_path_factory.mktemp("image") / "image.tar"
    path.write_bytes(checkout.build().archive.data)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real_cluster(archive: Path, real: Background) -> AsyncIterator[Cluster]:
    """Two real nodes that have the image, and a controller that has files copied with it."""
    name = read(archive).name
    for node in real_pods.fleet_of(real.sandbox).nodes:
        await real.call(node.import_images(archive))
    async with real_pods.watched(real, "--volume-moves", f"--copy-image={name}") as cluster:
        cluster.copy_image = name  # type: ignore[attr-defined]
        async with moves_installed(cluster.api):
            yield cluster


async def start(place: Place, name: str, script: str, node: int = 0) -> None:
    """A pod of our image that has the claim and runs Python."""
    image = place.cluster.copy_image  # type: ignore[attr-defined]
    body = pod(name, "", {"/data": "data"}, image=image, node=nodes_of(place)[node])
    [container] = body["spec"]["containers"]
    container |= {"command": [PYTHON, "-c", script], "securityContext": {"runAsUser": 0}}
    await place.api.create(place.pods, body)


async def run(place: Place, name: str, script: str, node: int = 0) -> str:
    await start(place, name, script, node)
    told = await real_pods.end_of(place, name)
    await real_pods.gone(place, name)
    return told


async def picture(place: Place, name: str, node: int = 0) -> Json:
    """What the files of the claim are, as a pod sees them."""
    return dict(json.loads(await run(place, name, TELL, node)))


def size(text: str) -> Json:
    return {"resources": {"requests": {"storage": text}}}


async def move(place: Place, to: Json, **spec: Any) -> None:
    body = {
        "apiVersion": "ebs-provisioner.io/v1alpha1",
        "kind": "VolumeMove",
        "metadata": {"name": "move"},
        "spec": {"claimName": "data", "to": to, "keepSource": "0h", **spec},
    }
    await place.api.create(f"{MOVES}/namespaces/{place.name}/volumemoves", body)


async def is_in(place: Place, *phases: str) -> Json:
    """Wait until the move is in one of these phases."""
    path = f"{MOVES}/namespaces/{place.name}/volumemoves/move"
    last: Json = {}

    async def seen() -> Json | None:
        last.update(await place.api.get(path))
        status = last.get("status", {})
        return last if status.get("phase") in phases else None

    try:
        return await place.cluster.until(f"the move is {phases}", seen, MOVE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{last.get('status')}\n{await _told(place)}") from error


async def _told(place: Place) -> str:
    """What may keep a volume on a node."""
    attachments = (await place.api.get(ATTACHMENTS))["items"]
    nodes = (await place.api.get(NODES))["items"]
    used = {each["metadata"]["name"]: each["status"].get("volumesInUse") for each in nodes}
    volumes = (await place.api.get(PVS))["items"]
    pods = (await place.api.get(place.pods))["items"]
    lines = [f"in use: {json.dumps(used)}"]
    for each in [*attachments, *volumes, *pods]:
        each["metadata"].pop("managedFields", None)
        lines.append(json.dumps({key: each.get(key) for key in ("metadata", "spec", "status")}))
    return "\n".join(lines)


async def of_copy(place: Place) -> list[str]:
    """What is there of a copy, but the files."""
    pods = (await place.api.get(place.pods))["items"]
    claims = (await place.api.get(place.claims))["items"]
    volumes = (await place.api.get(PVS))["items"]
    key = "ebs-provisioner.io/copy-of"
    ours = [each for each in [*pods, *claims] if key in each["metadata"].get("labels", {})]
    ours += [
        each
        for each in volumes
        if each["metadata"].get("annotations", {}).get(key, "").endswith(f" {place.name}/move")
    ]
    return [each["metadata"]["name"] for each in ours]


async def moved(place: Place, to: Json) -> tuple[Json, Json, Json]:
    """Files of odd kinds before and after a move, and the claim."""
    await real_pods.a_claim(place, **size("4Gi"))
    await run(place, "writer", WRITE)
    before = await picture(place, "before", node=1)
    await real_pods.detached(place)
    old = await place.api.get(f"{place.claims}/data")

    await move(place, to)
    done = await is_in(place, "Done", "Aborted", "Refused")

    assert done["status"]["phase"] == "Done", done["status"]
    assert await of_copy(place) == []
    claim = await place.api.get(f"{place.claims}/data")
    assert claim["metadata"]["uid"] != old["metadata"]["uid"]
    assert claim["spec"]["volumeName"] == f"pvc-{done['metadata']['uid']}"
    return before, await picture(place, "after"), claim


@together.test
async def test_a_volume_shrinks_and_its_files_are_the_same(place: Place):
    before, after, claim = await moved(place, {"size": "2Gi"})

    assert (before["same"], before["kind"], before["count"]) == (True, "ext4", 17)
    assert after["size"] < 2 << 30 < before["size"]
    assert after | {"size": 0} == before | {"size": 0}
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"


@together.test
async def test_files_come_to_another_file_system(place: Place):
    before, after, claim = await moved(place, {"fsType": "xfs"})

    assert (before["kind"], after["kind"]) == ("ext4", "xfs")
    assert after["digest"] == before["digest"]
    assert after["same"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "4Gi"


@together.test
async def test_a_node_tells_the_file_system_of_the_new_volume_before_the_claim_gets_it(
    place: Place,
):
    await real_pods.a_claim(place, **size("3Gi"))
    await run(place, "writer", WRITE)
    before = await picture(place, "before")
    await real_pods.detached(place)
    disks = real_pods.fleet_of(place.cluster.sandbox).disks
    old = disks.content_of(await real_pods.volume_of(place))
    uuid = await asyncio.to_thread(diaries.uuid_of, old)

    await move(place, {"size": "4Gi"}, check=True)
    checking = await is_in(place, "Checking")
    await attached(place, f"pvc-{checking['metadata']['uid']}-check")
    done = await is_in(place, "Done", "Aborted", "Refused")

    assert done["status"]["phase"] == "Done", done["status"]
    checked = done["status"]["checked"]
    assert checked.pop("node") in nodes_of(place)
    assert checked == {"fileSystem": "ext4", "uuid": uuid}
    assert await of_copy(place) == []
    after = await picture(place, "after")
    assert (after["digest"], after["size"] > before["size"]) == (before["digest"], True)


FILL = """
import os
with open("/data/much", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, 1300 << 20)
"""


STAY = """
import signal
signal.signal(signal.SIGTERM, lambda *_: exit())
signal.pause()
"""


async def refused_while_a_pod_runs(place: Place) -> None:
    """The command asks the node, which measures every five seconds, and touches nothing."""
    await start(place, "reader", STAY)
    words = (f"pvc/{place.name}/data", "--size", "1Gi", "--dry-run")
    kubeconfig = str(place.cluster.sandbox.plane.kubeconfig)

    async def refused() -> bool:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "provisioner.cli", "ebs", "move", *words),
            *("--kubeconfig", kubeconfig),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        return "its files take 1.3Gi, and the new volume would have 1Gi" in said.decode()

    await place.cluster.until("the command knows how full it is", refused, MOVE_S)
    await real_pods.gone(place, "reader")
    await real_pods.detached(place)


@together.test
async def test_files_that_do_not_fit_are_refused_and_the_old_volume_stays_as_it_is(place: Place):
    await real_pods.a_claim(place, **size("3Gi"))
    await run(place, "writer", FILL)
    await refused_while_a_pod_runs(place)
    before = await picture(place, "before")
    old = await place.api.get(f"{place.claims}/data")
    volume_id = await real_pods.volume_of(place)

    await move(place, {"size": "1Gi"})
    aborted = await is_in(place, "Done", "Aborted", "Refused")

    assert aborted["status"]["phase"] == "Aborted"
    assert "the files take 1.27 GiB" in aborted["status"]["message"]
    assert "ask for a larger size" in aborted["status"]["message"]
    assert await of_copy(place) == []
    claim = await place.api.get(f"{place.claims}/data")
    assert claim["metadata"]["uid"] == old["metadata"]["uid"]
    assert await real_pods.volume_of(place) == volume_id
    assert await picture(place, "after") == before


SNEAK = """
open("/data/sneaked", "w").write("in")
open("/dev/termination-log", "w").write("wrote")
"""


async def _wrote(place: Place, name: str, within_s: float) -> None:
    """See a pod write and go."""
    assert await real_pods.end_of(place, name, within_s) == "wrote"
    await real_pods.gone(place, name)


async def _write_in_turn(place: Place, first: str) -> None:
    """See the intruder on a node write, and then a pod on the other node.

    While both intruders wait, kube-controller-manager 1.37 asks for one node at a time and pauses
    twice as long after each failure. It has asked for the node without the volume five times in a
    row, for more than six minutes. So the other intruder goes, and another pod comes in its place.
    """
    one = nodes_of(place).index(first)
    await real_pods.gone(place, f"sneak-{1 - one}")
    # Its kubelet may look after the volume late.
    await _wrote(place, f"sneak-{one}", real_pods.LATE_POD_S)
    await start(place, f"sneak-{1 - one}", SNEAK, 1 - one)
    await _wrote(place, f"sneak-{1 - one}", real_pods.POD_S)


@together.test
async def test_a_pod_that_sneaks_in_writes_to_the_old_volume_alone_once_the_copy_is_undone(
    place: Place,
):
    await sneaked_in(place, is_late=False)


@together.test
async def test_a_pod_that_comes_to_the_node_of_the_copy_while_that_has_the_volume_does_so_too(
    place: Place,
):
    """Kubernetes takes volumes of one handle for one, whose attachment it keeps for both pods."""
    await sneaked_in(place, is_late=True)


async def sneaked_in(place: Place, *, is_late: bool) -> None:
    """A pod comes to each node while files are copied, ``is_late``: once a node has the volume."""
    await real_pods.a_claim(place, **size("3Gi"))
    await run(place, "writer", WRITE)
    volume_id = await real_pods.volume_of(place)
    await real_pods.detached(place)

    await move(place, {"size": "2Gi"})
    copying = await is_in(place, "Copying")
    first = ""
    if is_late:
        first = await attached(place, f"pvc-{copying['metadata']['uid']}-from")
    await asyncio.gather(*(start(place, f"sneak-{node}", SNEAK, node) for node in (0, 1)))
    aborted = await is_in(place, "Done", "Aborted", "Refused")

    assert aborted["status"]["phase"] == "Aborted"
    assert "the copy is thrown away" in aborted["status"]["message"]
    assert await real_pods.volume_of(place) == volume_id
    claim = await place.api.get(f"{place.claims}/data")
    first = first or await attached(place, claim["spec"]["volumeName"])
    await _write_in_turn(place, first)
    assert await of_copy(place) == []


async def attached(place: Place, volume: str) -> str:
    """Wait until a node has what a PersistentVolume names; the node."""

    async def seen() -> str | None:
        found = (
            str(each["spec"]["nodeName"])
            for each in (await place.api.get(ATTACHMENTS))["items"]
            if each["spec"]["source"].get("persistentVolumeName") == volume
            if each.get("status", {}).get("attached")
        )
        return next(found, None)

    return await place.cluster.until(f"PersistentVolume {volume} is attached", seen, MOVE_S)
