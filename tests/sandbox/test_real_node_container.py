"""What the node plugin sees of a real node: the DaemonSet's view of one."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from provisioner.sandbox.control_plane import until
from provisioner.sandbox.real_node import container
from provisioner.sandbox.real_node.host import Host
from provisioner.sandbox.real_node.requirements import missing

pytestmark = pytest.mark.skipif(missing() != "", reason=missing())

ROOT = Path(__file__).parents[2]
KUBELET = container.KUBELET
ENVIRONMENT = {"PATH": os.defpath, "PYTHONPATH": str(ROOT)}


class Pod:
    """A shell in the view, on a node of its own."""

    def __init__(self, folder: Path) -> None:
        self.lost: list[str] = []
        visible = (Path(sys.prefix), Path(sys.base_prefix), ROOT, folder)
        self.host = Host(folder / "node", visible, self.lost.append)
        self._said = folder / "said"
        self.host.log_of("it", self._said)

    async def runs(self, script: str) -> str:
        """What a script prints; it stays until it is killed."""
        self._said.unlink(missing_ok=True)
        argv = (sys.executable, "-S", "-m", container.__name__)
        script = f"{{ {script}; }} 2>&1; echo end; exec sleep 1000"
        await self.host.start("it", (*argv, "sh", "-c", script), ENVIRONMENT)

        async def at_its_end() -> bool:
            return self.lost != [] or self._said.read_text().endswith("end\n")

        await until(at_its_end)
        assert self.lost == []
        return self._said.read_text().removesuffix("end\n")

    async def node(self, script: str) -> str:
        """What the same prints outside of the view."""
        code, out, errors = await self.host.run("sh", "-c", script)
        assert code == 0, errors
        return out


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    pod = Pod(tmp_path)
    await pod.host.on()
    await pod.node(f"mkdir {KUBELET} /run/containerd /var/lib/containerd")
    yield pod
    await pod.host.off()


def test_the_daemonset_has_that_view():
    [daemon_set] = yaml.safe_load_all((ROOT / "manifests/node/daemonset.yaml").read_text())
    spec = daemon_set["spec"]["template"]["spec"]
    [only] = spec["containers"]
    shared = {each["mountPath"]: each.get("mountPropagation") for each in only["volumeMounts"]}

    assert only["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert shared == {KUBELET: "Bidirectional", "/dev": None}
    assert {each["hostPath"]["path"] for each in spec["volumes"]} == set(shared)


async def test_it_writes_to_the_kubelets_folder_and_dev_and_nowhere_else(pod: Pod):
    everywhere = "/ /etc /run /tmp /var/lib /var/log /var/lib/containerd /dev /var/lib/kubelet"
    found = await pod.runs(
        f"for d in {everywhere}; do touch $d/.seen 2> /dev/null && echo $d; done"
    )

    assert found.split() == ["/dev", KUBELET]
    assert await pod.node("ls -a /dev/.seen /var/lib/kubelet/.seen")


async def test_what_it_mounts_in_the_kubelets_folder_is_the_nodes(pod: Pod):
    await pod.runs(f"mkdir {KUBELET}/mine && mount -n -t tmpfs mine {KUBELET}/mine")
    assert any(f" {KUBELET}/mine " in line for line in pod.host.mounts())

    await pod.host.kill("it")  # and it outlives who has mounted it
    assert any(f" {KUBELET}/mine " in line for line in pod.host.mounts())

    assert "mine" in await pod.runs(f"grep {KUBELET}/mine /proc/self/mounts; umount {KUBELET}/mine")
    assert not any(f" {KUBELET}/mine " in line for line in pod.host.mounts())


async def test_what_the_node_mounts_there_is_its_own_too(pod: Pod):
    path = f"{KUBELET}/theirs"
    pid = (await pod.runs("echo $$")).strip()
    inside = f"grep -c ' {path} ' /proc/{pid}/mounts"
    await pod.node(f"mkdir {path} && mount -t tmpfs none {path}")
    assert await pod.node(f"{inside} || true") == "1\n"

    await pod.node(f"umount {path}")
    assert await pod.node(f"{inside} || true") == "0\n"


async def test_what_it_mounts_elsewhere_is_its_own(pod: Pod):
    found = await pod.runs("mkdir /dev/mine && mount -n -t tmpfs mine /dev/mine && ls -d /dev/mine")

    assert found == "/dev/mine\n"
    assert not any(" /dev/mine " in line for line in pod.host.mounts())


async def test_it_keeps_nothing_of_other_containers_alive(pod: Pod):
    for folder in ("/run/containerd/rootfs", f"{KUBELET}/pods"):
        await pod.node(f"mkdir {folder} && mount -t tmpfs none {folder}")
    found = await pod.runs("cut -d' ' -f2 /proc/self/mounts")

    assert "/run/containerd/rootfs" not in found.split()
    assert found.split().count(f"{KUBELET}/pods") == 1


async def test_mount_can_write_no_notes_there(pod: Pod):
    """So the stories of real nodes prove what the product does about it."""
    path = f"{KUBELET}/noted"
    found = await pod.runs(f"mkdir {path}; mount -t tmpfs -o x-note none {path} || echo failed")

    assert "filesystem was mounted, but" in found
    assert found.endswith("failed\n")
