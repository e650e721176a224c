"""What a kubelet forgets that was down: containers of deleted pods, and volumes halfway unmounted.

If a pod is deleted by force while its kubelet is down, the kubelet does not know it when it is back.
Kubernetes 1.36 then unpublishes and unstages the volume before it has ended the container, which
still writes. A kubelet that is killed between the two never unstages the volume at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest

from provisioner.sandbox.real_node import traces
from provisioner.sandbox.real_node.node import KUBELET, PLUGIN, RealNode
from tests.cluster import real_pods
from tests.cluster.cluster import Cluster
from tests.cluster.place import Place, a_place
from tests.cluster.real_nodes import times_told, until_within

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The container ends only by SIGKILL.
GRACE_S = 15
# Until the kubelet's next call, its report on the node, and the detach; about 5 s if all is idle.
SOON_S = 40.0
ATTEMPTS = 2
HASTE = 5
NOTES = "var/lib/orphan"
# What is noted on the node was on the volume before.
WRITES = (
    "trap '' TERM; i=0; while :; do i=$((i+1));"
    " if echo $i >> /data/log && sync; then echo $i > /notes/last; else echo $i > /notes/lost; fi;"
    " sleep 0.05; done"
)
WAITED = "waiting until nothing uses an unmounted volume"


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_its_volume_is_detached_when_it_has_ended_and_holds_all_it_wrote(
    real_cluster: Cluster, file_system: str
):
    disks = real_pods.fleet_of(real_cluster.sandbox).disks
    here, there = real_pods.fleet_of(real_cluster.sandbox).nodes
    async with a_place(real_cluster) as place:
        waits = times_told(here, PLUGIN, WAITED)
        await orphaned(place, here, file_system)

        await real_pods.detached(place)

        notes = here.root / NOTES / place.name
        ended_s = (notes / "last").stat().st_mtime
        assert time.time() - ended_s < SOON_S
        assert [str(each) for each in disks.torn] == []
        assert not (notes / "lost").exists()
        assert times_told(here, PLUGIN, WAITED) > waits  # else it was unstaged in time
        last = await real_pods.ran(
            place, "reader", "tail -n 1 /data/log > /dev/termination-log", node=there.name
        )
        assert int(last) >= int((notes / "last").read_text())


async def orphaned(place: Place, node: RealNode, file_system: str) -> None:
    """Delete a pod by force while its kubelet is down; its container still writes."""
    await real_pods.a_claim(place, file_system=file_system)
    notes = {"path": f"/{NOTES}/{place.name}", "type": "DirectoryOrCreate"}
    volumes = [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "volume-1", "hostPath": notes},
    ]
    await real_pods.start(
        place,
        "writer",
        WRITES,
        {"/data": "data", "/notes": "of the node"},
        node=node.name,
        volumes=volumes,
        terminationGracePeriodSeconds=GRACE_S,
    )
    await real_pods.is_running(place, "writer")
    written = ("test", "-s", "/notes/last")
    await until_within(place.cluster.sandbox, "writer", *written, namespace=place.name)
    await place.cluster.background.call(node.kill(KUBELET))
    await place.api.delete(f"{place.pods}/writer", gracePeriodSeconds="0")
    await place.is_gone(f"{place.pods}/writer", real_pods.POD_S)
    await place.cluster.background.call(node.start(KUBELET))


async def test_the_kubelet_repeats_until_whatever_has_the_volume_mounted_has_ended(
    real_cluster: Cluster,
):
    """As a container that takes minutes to end: longer than one call of the kubelet waits."""
    disks = real_pods.fleet_of(real_cluster.sandbox).disks
    here = real_pods.fleet_of(real_cluster.sandbox).nodes[0]
    async with a_place(real_cluster) as place:
        await real_pods.a_claim(place)
        await real_pods.start(place, "writer", "echo 1 > /data/log; exec sleep 1000")
        await real_pods.is_running(place, "writer")
        volume_id = await real_pods.volume_of(place)
        refused = partial(times_told, here, PLUGIN, f"volume {volume_id} was unmounted from")
        async with held(place, here):
            await real_pods.gone(place, "writer")

            async def is_refused() -> bool:
                return await asyncio.to_thread(refused) >= ATTEMPTS

            await real_cluster.until("two calls have failed", is_refused, real_pods.POD_S)
            assert volume_id in disks.in_use
        ended_s = time.monotonic()

        await real_pods.detached(place)

        assert time.monotonic() - ended_s < SOON_S
        assert [str(each) for each in disks.torn] == []


async def test_a_volume_whose_kubelet_was_killed_before_it_unstaged_it_comes_back_whole(
    real_cluster: Cluster,
):
    fleet = real_pods.fleet_of(real_cluster.sandbox)
    here = fleet.nodes[0]
    async with a_place(real_cluster) as place:
        await real_pods.a_claim(place)
        await killed_between_the_unmounts(place, here)
        volume_id = await real_pods.volume_of(place)

        record = {digest_of(volume_id)}

        async def only_a_record_is_left() -> bool:
            is_detached = volume_id not in fleet.disks.in_use
            return is_detached and not traces.left_on(here.root, record, record)

        await place.cluster.until("the plugin unmounts it", only_a_record_is_left, SOON_S)
        [left] = traces.left_on(here.root, record)
        assert left.startswith("folder ")
        assert volume_id in traces.forgotten_by_kubelet(here.log(PLUGIN))
        # Detached while it was staged: nobody can prevent that (docs/nodes.md).
        fleet.disks.torn[:] = [each for each in fleet.disks.torn if each.volume_id != volume_id]

        read = await real_pods.ran(
            place, "reader", "cat /data/log > /dev/termination-log", node=here.name
        )
        await real_pods.detached(place)

        assert read.strip() == "kept"
        assert traces.left_on(here.root, record) == []


async def test_a_volume_that_was_detached_while_it_was_staged_is_staged_again_there(
    real_cluster: Cluster,
):
    """The plugin is back only when the kubelet wants the volume again, and must not leave it so."""
    fleet = real_pods.fleet_of(real_cluster.sandbox)
    here = fleet.nodes[0]
    async with a_place(real_cluster) as place:
        await real_pods.a_claim(place)
        await killed_between_the_unmounts(place, here, PLUGIN)
        volume_id = await real_pods.volume_of(place)
        try:
            await real_pods.detached(place)
            assert [each.volume_id for each in fleet.disks.torn] == [volume_id]
            fleet.disks.torn.clear()
            read = "cat /data/log > /dev/termination-log"
            await real_pods.start(place, "reader", read, node=here.name)

            async def is_wanted() -> bool:
                node = await place.api.get(f"/api/v1/nodes/{here.name}")
                return any(volume_id in each for each in node["status"].get("volumesInUse", ()))

            await place.cluster.until("the kubelet wants it", is_wanted, real_pods.POD_S)
        finally:
            await place.cluster.background.call(here.start(PLUGIN))

        assert (await real_pods.end_of(place, "reader")).strip() == "kept"
        await real_pods.gone(place, "reader")
        await real_pods.detached(place)
        assert [str(each) for each in fleet.disks.torn] == []
        assert traces.left_on(here.root, {digest_of(volume_id)}) == []


async def killed_between_the_unmounts(place: Place, node: RealNode, *gone: str) -> None:
    """Kill the kubelet when a pod's volume was unpublished, and is still staged; start it again.

    Args:
        place: with the claim.
        node: where the pods are.
        gone: parts that are killed with it, and are gone.
    """
    for attempt in range(HASTE):
        name = f"writer-{attempt}"
        await real_pods.start(place, name, "echo kept > /data/log; exec sleep 1000", node=node.name)
        await real_pods.is_running(place, name)
        await place.api.delete(f"{place.pods}/{name}", gracePeriodSeconds="1")
        published = node.root / "var/lib/kubelet/pods"
        while any(published.glob("*/volumes/kubernetes.io~csi/*")):  # noqa: ASYNC110 -- no event
            await asyncio.sleep(0.0005)
        await place.cluster.background.call(node.kill(KUBELET))
        was_between = mounts_of_stages(node)
        for part in gone if was_between else ():
            await place.cluster.background.call(node.kill(part))
        await place.cluster.background.call(node.start(KUBELET))
        if was_between:
            return
        await place.is_gone(f"{place.pods}/{name}", real_pods.POD_S)
    raise AssertionError(f"the kubelet was quicker in {HASTE} attempts")


def mounts_of_stages(node: RealNode) -> list[str]:
    """Where a node has volumes staged."""
    return [path for line in node.mounts() if (path := line.split()[4]).endswith("/globalmount")]


def digest_of(volume_id: str) -> str:
    """The kubelet's name of a volume's staging directory."""
    return hashlib.sha256(volume_id.encode()).hexdigest()


@contextlib.asynccontextmanager
async def held(place: Place, node: RealNode) -> AsyncIterator[None]:
    """Have a process on a node mount the claim's volume in a mount namespace of its own."""
    notes = f"/{NOTES}/{place.name}"
    [stage] = [path for path in await mounted_at(place, node) if path.endswith("/globalmount")]
    script = f"mkdir -p {notes}/seen && mount --bind {stage} {notes}/seen && touch {notes}/held"
    script += f" && until [ -e {notes}/end ]; do sleep 0.1; done"
    alone = f"setsid unshare --mount --propagation private sh -c '{script}' > {notes}/out 2>&1 &"
    code, _, errors = await place.cluster.background.call(
        node.host.run("sh", "-c", f"mkdir -p {notes} && {alone}")
    )
    assert code == 0, errors
    seen = node.root / notes.lstrip("/")
    try:

        async def holds() -> bool:
            return (seen / "held").exists()

        await place.cluster.until("it is mounted", holds, real_pods.POD_S)
        yield
    finally:
        (seen / "end").touch()


async def mounted_at(place: Place, node: RealNode) -> list[str]:
    """Where a node has the volume of the claim "data" mounted."""
    disks = real_pods.fleet_of(place.cluster.sandbox).disks
    volume_id = await real_pods.volume_of(place)
    device = node.root / "dev" / disks.device_of(volume_id, node.instance.instance_id)
    number = device.stat().st_rdev
    shown = f"{os.major(number)}:{os.minor(number)}"
    lines = [line.split() for line in node.mounts()]
    return [fields[4] for fields in lines if fields[2] == shown]
