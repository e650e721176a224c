"""A node for ``node/collector.py``, of which parts can hang."""

import threading
from pathlib import Path

from provisioner.decide.mount_table import Mount
from provisioner.model.errors import NodeError, Reason
from provisioner.model.node_requests import Usage
from provisioner.node.devices import Device

GIB = 2**30
USAGE = Usage(4 * GIB, GIB, 2 * GIB, 1000, 10, 990)


class Machine:
    """Devices, mounts and file systems of a node; what is in ``hanging`` never answers."""

    def __init__(self):
        self.disks = {}
        self.mounts = []
        self.pages = {}
        self.hanging = set()
        self.is_blind = False
        self.wakes = threading.Event()
        self.asked = []

    def has(self, volume_id, *, mounted=True, partition="", is_nvme=True):
        number = len(self.disks) + 1
        disk = Path(f"/dev/nvme{number}n1")
        device = Device(disk, disk, volume_id, 5 * GIB, is_nvme, f"259:{number}")
        self.disks[volume_id] = device
        if mounted:
            where = f"259:{number}7" if partition else device.number
            source = f"{disk}{partition}"
            path = f"/staged/{volume_id}"
            self.mounts.append(Mount(number, 1, where, "/", path, (), "ext4", source, ()))

    def volumes(self):
        return frozenset() if self.is_blind else frozenset(self.disks)

    async def find(self, volume_id, device_path, partition, *, wait_s):
        if volume_id not in self.disks:
            raise NodeError(Reason.DEVICE_NOT_FOUND, f"volume {volume_id} is not here")
        return self.disks[volume_id]

    def measure(self, path):
        self._answer(path)
        return USAGE

    def page(self, disk):
        self._answer(str(disk))
        return self.pages.get(str(disk))

    def _answer(self, what):
        self.asked.append(what)
        if what in self.hanging:
            self.wakes.wait(30)
