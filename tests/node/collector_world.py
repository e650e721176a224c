"""A node for ``node/metrics/collector.py``, whose disks can hang."""

import threading
from pathlib import Path

from provisioner.model.errors import NodeError, Reason
from provisioner.node.devices.lookup import Device

GIB = 2**30


class Machine:
    """Devices of a node; what is in ``hanging`` never answers."""

    def __init__(self):
        self.disks = {}
        self.pages = {}
        self.hanging = set()
        self.is_blind = False
        self.wakes = threading.Event()
        self.asked = []

    def has(self, volume_id, *, is_nvme=True):
        number = len(self.disks) + 1
        disk = Path(f"/dev/nvme{number}n1")
        device = Device(disk, disk, volume_id, 5 * GIB, is_nvme, f"259:{number}")
        self.disks[volume_id] = device

    async def volumes(self):
        return frozenset() if self.is_blind else frozenset(self.disks)

    async def find(self, volume_id, device_path, partition, *, wait_s):
        if volume_id not in self.disks:
            raise NodeError(Reason.DEVICE_NOT_FOUND, f"volume {volume_id} is not here")
        return self.disks[volume_id]

    def page(self, disk):
        self.asked.append(str(disk))
        if str(disk) in self.hanging:
            self.wakes.wait(30)
        return self.pages.get(str(disk))
