"""A small machine in a mount namespace of its own: node plugin, controller for tests, csi-sanity.

Run by ``tests/node/csi/test_sanity.py`` as root, below unshare(1)::

    unshare --mount --propagation private python -m tests.node.sanity_world \\
        FOLDER CSI-SANITY mount|block
"""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import grpc.aio

from provisioner.node.csi.endpoint import Endpoint
from provisioner.node.csi.server import service
from provisioner.node.instance.metadata import on_board
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.sandbox.real_node.plugs import Machine
from tests.node.kube_server import KubeServer, serving
from tests.node.sanity_controller import PassingOn, SanityController

MIB = 1024**2
# On an EC2 instance the machine's own: a Node that says otherwise is refused.
INSTANCE = on_board(Path("/sys")) or "i-0123456789abcdef0"
_NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
_LOOP_CONTROL = (10, 237)
_READY_S = 20.0
_STOP_S = 30.0


def main(folder: Path, sanity: str, access: str) -> int:
    options = [f"-csi.testvolumeaccesstype={access}"]
    return asyncio.run(_run(folder, [sanity, *options], own_machine(folder)))


def own_machine(folder: Path) -> Machine:
    """A /dev and a /sys/dev/block of our own; nobody outside sees them."""
    dev, block = folder / "dev", folder / "block"
    dev.mkdir()
    block.mkdir()
    for link in Path("/sys/dev/block").iterdir():
        (block / link.name).symlink_to(link.readlink())
    _do("mount", "-t", "tmpfs", "-o", "mode=755", "sanity-dev", str(dev))
    for name, number in _NODES.items():
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(*number))
    os.mknod(dev / "loop-control", stat.S_IFCHR | 0o600, os.makedev(*_LOOP_CONTROL))
    (dev / "fd").symlink_to("/proc/self/fd")
    _do("mount", "--bind", str(block), "/sys/dev/block")
    _do("mount", "--move", str(dev), "/dev")
    return Machine(INSTANCE, Path("/dev"), Path("/sys/dev/block"))


async def _run(folder: Path, sanity: list[str], machine: Machine) -> int:
    files = folder / "volumes"
    files.mkdir()
    controller = SanityController(machine, files)
    async with serving(folder) as kube:
        has_this_node(kube)
        process = await plugin(folder, kube)
        csi = folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock"
        try:
            await until_there(csi, process)
            code = await _sanity(folder, sanity, csi, controller)
        finally:
            process.terminate()
            ended = await asyncio.wait_for(process.wait(), _STOP_S)
            left = controller.close()
    below = str(folder / "kubelet")
    mounts = [m for m in Path("/proc/self/mounts").read_text().splitlines() if below in m]
    for name, found in (("node plugin's exit code", ended), ("attached", left), ("mounts", mounts)):
        if found:
            sys.stderr.write(f"{name}: {found}\n")
            code = code or 1
    return code


async def _sanity(folder: Path, sanity: list[str], csi: Path, controller: SanityController) -> int:
    whole = folder / "whole.sock"
    async with grpc.aio.insecure_channel(f"unix:{csi}") as channel:
        served = service("csi.v1.Controller", controller.rpcs(), NodeMetrics())
        endpoint = Endpoint(whole, [served, PassingOn(channel)])
        await endpoint.open()
        volumes = folder / "kubelet/plugins/kubernetes.io/csi"
        volumes.mkdir(parents=True)
        process = await asyncio.create_subprocess_exec(
            *sanity,
            f"-csi.endpoint=unix:{whole}",
            f"-csi.stagingdir={volumes / 'staging'}",
            f"-csi.mountdir={volumes / 'mount'}",
            f"-csi.testvolumesize={320 * MIB}",
            f"-csi.testvolumeexpandsize={640 * MIB}",
            "-ginkgo.focus=Node Service|Identity Service",
            f"-ginkgo.json-report={folder / 'report.json'}",
            "-ginkgo.no-color",
            stdout=sys.stderr,
        )
        code = await process.wait()
        await endpoint.close(0.0)
    return code


def has_this_node(kube: KubeServer) -> None:
    """An m5.large in eu-west-1a, as a cloud controller would have told."""
    labels = {
        "topology.kubernetes.io/zone": "eu-west-1a",
        "topology.kubernetes.io/region": "eu-west-1",
        "node.kubernetes.io/instance-type": "m5.large",
    }
    spec = {"providerID": f"aws:///eu-west-1a/{INSTANCE}"}
    kube.has_node(metadata={"labels": labels}, spec=spec, status={})


async def plugin(folder: Path, kube: KubeServer, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "provisioner.cli",
        "node",
        "--node-name=node-1",
        f"--kubelet-dir={folder / 'kubelet'}",
        f"--kube-server={kube.server.url}",
        f"--token-file={kube.token_file}",
        "--log-level=debug",
        *options,
        env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true"},
    )


async def until_there(socket: Path, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(_READY_S):
        while not socket.is_socket():
            if process.returncode is not None:
                raise SystemExit(f"the node plugin has ended: {process.returncode}")
            await asyncio.sleep(0.05)


def _do(*argv: str) -> None:
    subprocess.run(argv, check=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
