"""SIGKILL to all that moves volumes between real nodes, again and again, and what it explains."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.sandbox.real_node.cycle_report import CONTROLLER, PARTS
from provisioner.sandbox.real_node.disks import Torn
from provisioner.sandbox.real_node.node import KUBELET, PLUGIN, RealNode
from provisioner.sandbox.real_node.wholly import wholly
from provisioner.sandbox.up import Sandbox

_PAUSE_S = (0.2, 2.0)
_REMOVES_WITHIN_S: Final = 2.0
"""How long a kubelet may take from the answer to its record's end, on a busy machine."""
_UNSTAGES_WITHIN_S: Final = 5.0
"""How long the node plugin may go on with what a kubelet had asked for before it was killed."""
_LOOK_EVERY_S: Final = 0.005
"""A mkfs of a small volume takes some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kubelet's end and new beginning, in seconds of ``time.monotonic()``."""

    instance_id: str
    began_s: float
    ended_s: float


def explain(torn: Torn, since_s: float, kills: Iterable[Kill], in_use: Collection[str]) -> bool:
    """Tell whether a killed kubelet is why a volume was mounted when it was detached.

    One that is killed between a pod's unmount and that of the stage forgets the volume
    (``node.runtime.mount_table_rules.staged_without_pod``), and says of it that it is not in use.
    So no pod may have had it, the kubelet must say so, and it must have been killed after the
    node plugin was asked for the first unmount.

    Args:
        torn: what was detached too early.
        since_s: when the first unmount was asked for, of ``time.monotonic()``.
        kills: of all kubelets.
        in_use: what the kubelet says is in use, as in ``status.volumesInUse`` of its Node.
    """
    if not torn.is_only_staged or any(each.endswith(f"^{torn.volume_id}") for each in in_use):
        return False
    return any(
        kill.instance_id == torn.instance_id
        and kill.ended_s >= since_s
        and kill.began_s <= torn.at_s
        for kill in kills
    )


def cut_off(
    unstaged: Iterable[tuple[str, float]], instance_id: str, kills: Iterable[Kill]
) -> set[str]:
    """Return the volumes that were unmounted for a kubelet which was killed before it took note.

    It removes its record of a volume when the node plugin has answered. One that is killed before
    never looks at the record again: it looks for volumes of pods only.

    Args:
        unstaged: ids, and when they were unmounted, of ``time.monotonic()``.
        instance_id: of the node.
        kills: of all kubelets.
    """
    mine = [each for each in kills if each.instance_id == instance_id]
    return {
        volume_id
        for volume_id, at_s in unstaged
        if any(
            each.began_s - _REMOVES_WITHIN_S <= at_s <= each.ended_s + _UNSTAGES_WITHIN_S
            for each in mine
        )
    }


class Kills:
    """Who kills.

    Args:
        sandbox: whose controller is killed.
        nodes: of it, whose parts are killed.
        chance: of times, parts and nodes.
        say: is told each kill.

    Attributes:
        counted: by part.
        of_kubelets: all of them.
        formats: how many formats were ended halfway.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        nodes: Sequence[RealNode],
        chance: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self.counted: Counter[str] = Counter()
        self.of_kubelets: list[Kill] = []
        self.formats = 0
        self._sandbox, self._nodes = sandbox, nodes
        self._random, self._say = chance, say

    async def again_and_again(self) -> None:
        """Kill something every second, until cancelled; then what was killed is there again."""
        while True:
            # Each as often as the others, in an order of chance.
            for part in self._random.sample(PARTS, len(PARTS)):
                await asyncio.sleep(self._random.uniform(*_PAUSE_S))
                node = self._random.choice(self._nodes)
                if part == CONTROLLER:
                    self._say(f"SIGKILL: {part}")
                    await wholly(self._restart_controller())
                else:
                    await wholly(self._restart(part, node))

    async def while_formatting(
        self, begun: Callable[[Path, str], bool], unformatted: Callable[[], AbstractSet[str]]
    ) -> None:
        """Kill the node plugin while it formats, once for each volume, until cancelled.

        Args:
            begun: whether a volume, of which it gets content and id, says that it is being
                formatted.
            unformatted: ids of the volumes that may still have no file system.
        """
        done: set[str] = set()
        while True:
            for volume_id in unformatted() - done:
                for node in self._nodes_with(volume_id):
                    if begun(self._sandbox.disks.content_of(volume_id), volume_id):
                        done.add(volume_id)
                        await wholly(self._restart(PLUGIN, node, f" formats {volume_id}"))
                        # With its mkfs: or nobody could say yet that it had ended.
                        self.formats += begun(self._sandbox.disks.content_of(volume_id), volume_id)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _nodes_with(self, volume_id: str) -> list[RealNode]:
        device_of = self._sandbox.disks.device_of
        return [each for each in self._nodes if device_of(volume_id, each.instance.instance_id)]

    async def _restart(self, part: str, node: RealNode, why: str = "") -> None:
        self._say(f"SIGKILL: {part} of {node.name}{why and f', which{why}'}")
        began_s = time.monotonic()
        await node.restart(part)
        if part == KUBELET:
            kill = Kill(node.instance.instance_id, began_s, time.monotonic())
            self.of_kubelets.append(kill)
        self.counted[part] += 1

    async def _restart_controller(self) -> None:
        await self._sandbox.stop_controller()
        await self._sandbox.start_controller("--no-leader-elect")
        self.counted[CONTROLLER] += 1
