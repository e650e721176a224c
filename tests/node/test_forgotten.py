"""Volumes that a kubelet had staged and knows nothing of any more."""

import asyncio
import dataclasses
import hashlib
import json

import pytest

from provisioner.decide import forgotten as rules
from provisioner.decide.mount_table import Mount
from provisioner.model.errors import KubeError
from provisioner.model.node_requests import Stage, Unpublish
from provisioner.node.forgotten import Forgotten
from tests.node.machine import VOLUME, Machine

pytest_plugins = ("tests.node.kube_fixtures", "tests.node.machine_fixtures")
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

STAGES = "plugins/kubernetes.io/csi/ebs.csi.aws.com"
DIGEST = hashlib.sha256(VOLUME.encode()).hexdigest()
NAME = f"kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}"


class Kubelet:
    """What a kubelet does around the plugin's calls."""

    def __init__(self, machine: Machine, server, kube) -> None:
        self.machine = machine
        self.server = server
        self.kube = kube
        self.stage_path = machine.kubelet / STAGES / DIGEST / "globalmount"
        self.uses()
        self.forgotten = Forgotten(
            kube,
            operations=machine.operations,
            mounts=machine.mounts,
            paths=machine.paths,
            stages=machine.kubelet / STAGES,
        )

    def uses(self, *names: str) -> None:
        self.server.has_node(status={"volumesInUse": list(names)})

    @property
    def request(self) -> Stage:
        return dataclasses.replace(self.machine.stage(), staging_path=str(self.stage_path))

    async def stages(self) -> None:
        self.machine.attach()
        self.stage_path.parent.mkdir(parents=True)
        note = {"volumeHandle": VOLUME, "driverName": "ebs.csi.aws.com", "specVolID": "pv-1"}
        (self.stage_path.parent / "vol_data.json").write_text(json.dumps(note))
        await self.machine.stager.stage(self.request)
        assert self.is_mounted

    async def publishes(self) -> None:
        published = dataclasses.replace(self.machine.publish(), staging_path=str(self.stage_path))
        await self.machine.publisher.publish(published)

    @property
    def is_mounted(self) -> bool:
        return any(mount.path == str(self.stage_path) for mount in self.machine.mounts_below())

    async def looks(self, times: int = 3) -> None:
        for _ in range(times):
            await self.forgotten.look()


@pytest.fixture
async def kubelet(machine, kube_server, kube):
    made = Kubelet(machine, kube_server, kube)
    await made.stages()
    return made


async def test_what_the_kubelet_forgot_is_unmounted_at_the_second_look(kubelet):
    await kubelet.looks(1)
    assert kubelet.is_mounted

    await kubelet.looks(1)

    assert not kubelet.is_mounted
    assert not kubelet.stage_path.exists()


async def test_what_the_kubelet_has_in_use_stays(kubelet):
    kubelet.uses(NAME, "kubernetes.io/csi/other.driver^vol-1")

    await kubelet.looks()

    assert kubelet.is_mounted


async def test_what_a_pod_has_stays_whatever_the_node_says(kubelet):
    await kubelet.publishes()

    await kubelet.looks()

    assert kubelet.is_mounted
    assert kubelet.server.asked == []
    await kubelet.machine.publisher.unpublish(Unpublish(VOLUME, str(kubelet.machine.target())))
    await kubelet.looks()
    assert not kubelet.is_mounted


async def test_what_is_remembered_while_it_is_asked_stays(kubelet):
    """The kubelet wants it again after the first reading of its Node."""
    await kubelet.looks(1)
    task = asyncio.create_task(kubelet.forgotten.look())
    await kubelet.server.times(1)
    kubelet.uses(NAME)

    await task

    assert kubelet.is_mounted


async def test_a_volume_whose_turn_is_another_ones_is_left_alone(kubelet):
    over = asyncio.Event()
    other = asyncio.create_task(
        kubelet.machine.operations.run(VOLUME, "other", over.wait, what="Something else")
    )
    await asyncio.sleep(0)

    await kubelet.looks()
    assert kubelet.is_mounted

    over.set()
    await other
    await kubelet.looks(1)
    assert not kubelet.is_mounted


@pytest.mark.parametrize("note", ["", "{}", "no json", None])
async def test_what_cannot_be_named_is_left_alone(kubelet, note):
    path = kubelet.stage_path.parent / "vol_data.json"
    path.unlink()
    if note is not None:
        path.write_text(note)

    await kubelet.looks()

    assert kubelet.is_mounted


async def test_while_the_node_cannot_be_read_everything_stays(kubelet):
    del kubelet.server.objects["/api/v1/nodes/node-1"]

    with pytest.raises(KubeError):
        await kubelet.looks()

    assert kubelet.is_mounted


async def test_it_can_be_staged_again_afterwards(kubelet):
    (kubelet.stage_path / "file").write_text("kept")
    await kubelet.looks()
    kubelet.uses(NAME)

    await kubelet.machine.stager.stage(kubelet.request)
    await kubelet.looks()

    assert (kubelet.stage_path / "file").read_text() == "kept"


def mount(mount_id: int, path: str, number: str = "7:1") -> Mount:
    return Mount(mount_id, 1, number, "/", path, ("rw",), "ext4", "/dev/nvme1n1", ("rw",))


@pytest.mark.parametrize(
    "path",
    [
        f"/k/{STAGES}/{DIGEST}/other",
        f"/k/{STAGES}/short/globalmount",
        f"/k/{STAGES}/{DIGEST}/deeper/globalmount",
        f"/k/plugins/kubernetes.io/csi/another.driver/{DIGEST}/globalmount",
        "/k/pods/uid/volumes/kubernetes.io~csi/pv/mount",
    ],
)
def test_only_stages_of_this_driver_are_looked_at(path):
    stage = mount(1, f"/k/{STAGES}/{DIGEST}/globalmount")

    assert rules.candidates([stage, mount(2, path, "7:2")], f"/k/{STAGES}") == (stage,)
    assert rules.candidates([stage, mount(2, path)], f"/k/{STAGES}") == ()
