"""Which detachments of mounted volumes the kill of a kubelet explains, and how killers end."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import kills
from provisioner.sandbox.real_node.cycle_report import PARTS, Report
from provisioner.sandbox.real_node.disks import Torn
from provisioner.sandbox.real_node.kills import Kill, cut_off, explain
from provisioner.sandbox.real_node.node import KUBELET
from provisioner.sandbox.real_node.wholly import wholly

if TYPE_CHECKING:
    from provisioner.sandbox.real_node.node import RealNode
    from provisioner.sandbox.up import Sandbox

STAGED = "mounted at /var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/0a/globalmount"
TORN = Torn("vol-1", "i-1", "nvme1n1", (STAGED,), at_s=20.0)
KILL = Kill("i-1", 12.0, 13.0)
"""The first unmount was asked for at 10, and the volume was detached at 20."""

OTHERS = ["kubernetes.io/csi/ebs.csi.aws.com^vol-12"]


def test_a_kubelet_that_is_killed_between_the_first_unmount_and_the_detachment_explains_it() -> (
    None
):
    assert explain(TORN, 10.0, [KILL], OTHERS)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([], id="nobody was killed"),
        pytest.param([replace(KILL, instance_id="i-2")], id="the kubelet of another node"),
        pytest.param([Kill("i-1", 8.0, 9.0)], id="before the first unmount"),
        pytest.param([Kill("i-1", 20.5, 21.0)], id="after the detachment"),
    ],
)
def test_without_such_a_kill_whoever_detached_it_is_to_blame(kills: list[Kill]) -> None:
    assert not explain(TORN, 10.0, kills, OTHERS)


def test_a_kubelet_that_says_that_it_uses_the_volume_has_not_forgotten_it() -> None:
    in_use = ["kubernetes.io/csi/ebs.csi.aws.com^vol-1"]

    assert not explain(TORN, 10.0, [KILL], in_use)


@pytest.mark.parametrize(
    "holders",
    [
        (),
        ("open in dd (17)",),
        (STAGED, "mounted at /var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount"),
        (STAGED, "open in mkfs.ext4 (17)"),
    ],
)
def test_what_a_pod_or_a_program_has_is_no_forgotten_stage(holders: tuple[str, ...]) -> None:
    assert not explain(replace(TORN, holders=holders), 10.0, [KILL], OTHERS)


@pytest.mark.parametrize(
    ("at_s", "instance_id", "is_explained"),
    [
        (11.0, "i-1", True),
        (13.5, "i-1", True),
        (9.0, "i-1", False),
        (19.0, "i-1", False),
        (11.0, "i-2", False),
    ],
    ids=["just before", "it went on", "long before", "long after", "another node's"],
)
def test_a_kubelet_that_is_killed_while_a_volume_is_unstaged_leaves_its_record(
    at_s: float, instance_id: str, *, is_explained: bool
) -> None:
    assert cut_off([("vol-1", at_s)], instance_id, [KILL]) == ({"vol-1"} if is_explained else set())


def test_volumes_that_killed_kubelets_forgot_are_told_and_no_fault() -> None:
    report = Report(1, 10, 2, forgotten=["vol-1", "vol-2"])

    assert report.is_well
    assert "between the two unmounts: 2," in str(report)


class Box:
    """A sandbox of one node whose parts take some turns of the loop to end and to begin again."""

    def __init__(self, step: int = 0) -> None:
        self.name, self.instance = "node", SimpleNamespace(instance_id="i-1")
        self.running = 1
        self.steps = 0
        self.step, self.is_there = step, asyncio.Event()

    async def _passes(self) -> None:
        for _ in range(10):
            if self.steps == self.step:
                self.is_there.set()
            await asyncio.sleep(0)
            self.steps += 1

    async def stop_controller(self) -> None:
        self.running -= 1
        await self._passes()

    async def start_controller(self, *_: str) -> None:
        await self._passes()
        self.running += 1

    async def restart(self, _: str) -> None:
        await self.stop_controller()
        await self.start_controller()


def killer_in(box: Box) -> kills.Kills:
    node = cast("RealNode", box)
    return kills.Kills(cast("Sandbox", box), [node], random.Random(1), lambda _: None)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("step", [0, 5, 15])
async def test_a_killer_that_is_called_off_leaves_nothing_half_restarted(
    monkeypatch: pytest.MonkeyPatch, part: str, step: int
) -> None:
    monkeypatch.setattr(kills, "PARTS", (part,))
    monkeypatch.setattr(kills, "_PAUSE_S", (0.0, 0.0))
    box = Box(step)
    killer = killer_in(box)
    killing = asyncio.create_task(killer.again_and_again())
    await box.is_there.wait()

    killing.cancel()
    await asyncio.wait({killing})

    assert killing.cancelled()
    assert box.running == 1
    assert killer.counted == {part: 1}


async def test_a_restart_that_fails_is_told_also_by_a_killer_that_is_called_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kills, "PARTS", (KUBELET,))
    monkeypatch.setattr(kills, "_PAUSE_S", (0.0, 0.0))
    box = Box()
    begun = asyncio.Event()

    async def restart(_: str) -> None:
        begun.set()
        await asyncio.sleep(0)
        raise SandboxError("kubelet cannot be started")

    monkeypatch.setattr(box, "restart", restart)
    killer = killer_in(box)
    killing = asyncio.create_task(killer.again_and_again())
    await begun.wait()

    killing.cancel()

    with pytest.raises(SandboxError, match="cannot be started"):
        await killing


async def test_work_is_done_to_its_end_though_who_waits_for_it_is_cancelled_twice() -> None:
    go_on, done = asyncio.Event(), list[str]()

    async def work() -> None:
        await go_on.wait()
        done.append("all of it")

    waiting = asyncio.create_task(wholly(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["all of it"]
