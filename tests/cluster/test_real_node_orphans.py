"""A container that outlives its pod, which was deleted by force while its kubelet was down.

When the kubelet is back, it does not know the pod. Kubernetes 1.36 then unpublishes and unstages
the volume before it has ended the container, which still writes.
"""

from __future__ import annotations

import time

import pytest

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
