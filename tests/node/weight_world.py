"""A node plugin with 25 volumes, each mounted anew once: what it weighs then.

Run by ``tests/node/test_weight.py`` as root, below unshare(1); it writes a number of MiB::

    unshare --mount --propagation private python -m tests.node.weight_world FOLDER
"""

import asyncio
import sys
from pathlib import Path

from provisioner.sandbox.control_plane import free_port
from tests.bench import processes
from tests.bench.node_world import Shop, running, scraped
from tests.node.kube_server import serving
from tests.node.sanity_world import has_this_node

VOLUMES = 25
SCRAPES = 5


async def main(folder: Path) -> None:
    port = free_port()
    async with serving(folder) as kube:
        has_this_node(kube)
        shop = Shop(folder, kube)
        async with running(folder, kube, port) as (pid, call, _):
            volumes = [await shop.new("ext4") for _ in range(VOLUMES)]
            for volume in volumes:
                await volume.mount(call)
                await volume.unmount(call)
                await volume.mount(call)
            for _ in range(SCRAPES):
                await scraped(port, {volume.volume_id for volume in volumes})
            resident_mib, _ = processes.memory_mib(pid)
            for volume in volumes:
                await volume.unmount(call)
                await shop.take_back(volume)
    sys.stdout.write(f"{resident_mib}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
