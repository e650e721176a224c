"""Volumes that a kubelet had staged and knows nothing of any more."""

import asyncio
import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from provisioner.model.errors import KubeError
from provisioner.node.mounting.leaked_mounts import LeakedMounts
from provisioner.node.requests import Stage, Unpublish
from provisioner.node.runtime import mount_table_rules as rules
from provisioner.node.runtime.mount_table_rules import Mount
from tests.node.machine import OTHER, VOLUME, Machine

pytest_plugins = ("tests.node.kube_fixtures", "tests.node.machine_fixtures")
pytestmark = pytest.mark.usefixtures("no_leaked_tasks")

STAGES = "plugins/kubernetes.io/csi/ebs.csi.aws.com"
DIGEST = hashlib.sha256(VOLUME.encode()).hexdigest()
NAME = f"kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}"
OLD_HANDLE = f"aws://us-east-1a/{VOLUME}"


class Kubelet:
    """What a kubelet does around the plugin's calls."""

    def __init__(self, machine: Machine, server, kube) -> None:
        self.machine = machine
        self.server = server
        self.kube = kube
        self.stage_path = machine.kubelet / STAGES / DIGEST / "globalmount"
        self.other_path = self.stage_path.parents[1] / ("0" * 64) / "globalmount"
        self.uses()
        self.starts()

    def starts(self, *, timeout_s: float = 10.0) -> None:
        """The plugin does, with what is on the machine."""
        self.machine.restart()
        self.leaked = LeakedMounts(
            self.kube, self.machine.tools, self.machine.kubelet / STAGES, timeout_s=timeout_s
        )

    def uses(self, *names: str) -> None:
        self.server.has_node(status={"volumesInUse": list(names)})

    @property
    def request(self) -> Stage:
        return dataclasses.replace(self.machine.stage(), staging_path=str(self.stage_path))

    async def stages(self) -> None:
        self.machine.attach()
        self.notes(VOLUME)
        await self.machine.stager.stage(self.request)
        assert self.is_mounted

    async def stages_another(self) -> None:
        self.machine.attach(OTHER)
        self.notes(OTHER, self.other_path)
        asked = dataclasses.replace(self.machine.stage(OTHER), staging_path=str(self.other_path))
        await self.machine.stager.stage(asked)
        assert self.has_another

    def notes(self, handle: str, path: Path | None = None) -> None:
        folder = (path or self.stage_path).parent
        folder.mkdir(parents=True, exist_ok=True)
        note = {"volumeHandle": handle, "driverName": "ebs.csi.aws.com", "specVolID": "pv-1"}
        (folder / "vol_data.json").write_text(json.dumps(note))

    async def publishes(self) -> None:
        published = dataclasses.replace(self.machine.publish(), staging_path=str(self.stage_path))
        await self.machine.publisher.publish(published)

    @property
    def is_mounted(self) -> bool:
        return any(mount.path == str(self.stage_path) for mount in self.machine.mounts_below())

    @property
    def has_another(self) -> bool:
        return any(mount.path == str(self.other_path) for mount in self.machine.mounts_below())

    async def looks(self, times: int = 3) -> None:
        for _ in range(times):
            await self.leaked.scan()


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


async def test_what_was_written_is_on_its_disk_before_it_is_unmounted(kubelet):
    machine, order = kubelet.machine, kubelet.machine.folder / "order"
    for name in ("sync", "umount"):
        machine.fake(name, f'echo {name} $* >> {order}; exec {machine.real(name)} "$@"')

    await kubelet.looks()

    path = kubelet.stage_path
    assert order.read_text() == f"sync -f {path}\numount {path}\n"


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
    task = asyncio.create_task(kubelet.leaked.scan())
    await kubelet.server.times(1)
    kubelet.uses(NAME)

    await task

    assert kubelet.is_mounted


@pytest.mark.parametrize("handle", [VOLUME, OLD_HANDLE])
async def test_a_volume_whose_turn_is_another_ones_is_left_alone(kubelet, handle):
    """The calls of the kubelet are known by the bare id, whatever the persistent volume says."""
    kubelet.notes(handle)
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


@pytest.mark.parametrize("noted", [VOLUME, OLD_HANDLE])
@pytest.mark.parametrize("told", [VOLUME, OLD_HANDLE])
async def test_what_is_in_use_stays_under_either_name(kubelet, noted, told):
    kubelet.notes(noted)
    kubelet.uses(NAME.replace(VOLUME, told))

    await kubelet.looks()

    assert kubelet.is_mounted


async def test_one_that_is_held_keeps_no_other_mounted_and_is_told_once(kubelet):
    await kubelet.stages_another()
    with (kubelet.stage_path / "file").open("w"), capture_logs() as logs:
        await kubelet.looks()

        assert kubelet.is_mounted
        assert not kubelet.has_another
    (told,) = [line for line in logs if "cannot unmount a leaked mount" in line["event"]]
    assert told["volume"] == VOLUME
    assert "is in use" in told["error"].message
    await kubelet.looks(1)
    assert not kubelet.is_mounted


async def test_one_that_hangs_keeps_no_other_mounted(kubelet):
    await kubelet.stages_another()
    go, calls = kubelet.machine.folder / "go", kubelet.machine.folder / "calls"
    real = kubelet.machine.real("umount")
    waits = f"echo once >> {calls}; while [ ! -e {go} ]; do sleep 0.05; done"
    kubelet.machine.fake("umount", f'case "$1" in *{DIGEST}*) {waits};; esac; exec {real} "$@"')
    kubelet.starts(timeout_s=0.2)

    await kubelet.looks()

    assert kubelet.is_mounted
    assert calls.read_text() == "once\n"
    while kubelet.has_another:
        await kubelet.looks(1)
    go.touch()
    while len(kubelet.machine.operations):  # noqa: ASYNC110 -- the operation is nobody's to wait for
        await asyncio.sleep(0.01)
    assert not kubelet.is_mounted


NOT_UTF_8 = b'{"volumeHandle":"vol-\xff\xfe"}'


@pytest.mark.parametrize("note", [b"", b"{}", b"no json", NOT_UTF_8, None])
async def test_what_cannot_be_named_is_left_alone(kubelet, note):
    path = kubelet.stage_path.parent / "vol_data.json"
    path.unlink()
    if note is not None:
        path.write_bytes(note)

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

    assert rules.staged_without_pod([stage, mount(2, path, "7:2")], f"/k/{STAGES}") == (stage,)
    assert rules.staged_without_pod([stage, mount(2, path)], f"/k/{STAGES}") == ()
