"""What cycles of volumes under SIGKILL came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from provisioner.sandbox.real_node.node import CONTAINERD, KUBELET, PLUGIN

CONTROLLER: Final = "controller"
PARTS: Final = (CONTROLLER, PLUGIN, KUBELET, CONTAINERD)


@dataclass
class Report:
    """What the cycles came to."""

    seed: int
    volumes: int
    nodes: int
    cycles: int = 0
    moves: int = 0
    written_bytes: int = 0
    checked_bytes: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    formats_ended: int = 0
    took_s: float = 0.0
    formatted_anew: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether nothing was lost, left or formatted twice; a lost byte ends the run before.

        How many volumes kubelets have forgotten is no fault of anybody: the slower the disk, the
        longer is the time between the two unmounts, and one kill may hit it for several volumes.
        """
        return not (self.formatted_anew or self.torn or self.left)

    def __str__(self) -> str:
        kills = ", ".join(f"{part} {self.kills[part]}" for part in PARTS)
        mib = 2**20
        return (
            f"{self.cycles} cycles of {self.volumes} volumes on {self.nodes} nodes"
            f" ({self.moves} moves to another node) in {self.took_s:.0f} s;"
            f" killed: {kills}; formats ended halfway: {self.formats_ended};"
            f" {self.written_bytes / mib:.1f} MiB written, {self.checked_bytes / mib:.1f} MiB read"
            " again and as they were;"
            f" formatted twice: {len(self.formatted_anew)}, taken from a pod: {len(self.torn)},"
            " detached while mounted, as a kubelet was killed between the two unmounts:"
            f" {len(self.forgotten)},"
            f" devices, mounts and folders left: {len(self.left)}"
            f" (seed {self.seed})"
        )
