"""The demo's chapters of real nodes, told as ``sandbox demo`` tells them, after the one they need.

``test_demo_rights`` tells all the others.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from rich.console import Console

from provisioner.sandbox import demo
from provisioner.sandbox.chapters import cycles, in_tree
from provisioner.sandbox.up import Sandbox
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE

pytestmark = NEEDS_A_REAL_NODE


async def test_the_story_of_real_nodes_is_told_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(record=True, width=1000)  # pytest shows what was told if a step is not seen
    start = Sandbox.start
    quick = {"nodes": 3, "zones": 3, "latency": "none", "throttle": "none"}

    def started(**options: Any) -> contextlib.AbstractAsyncContextManager[Sandbox]:
        return start(**(options | quick))

    monkeypatch.setattr(Sandbox, "start", started)
    monkeypatch.setattr(demo, "CHAPTERS", (in_tree,))
    monkeypatch.setattr(cycles, "_CYCLES", 2)  # the others are told by test_real_node_cycles
    monkeypatch.setattr(cycles, "_VOLUMES", 2)

    await demo.tell(console)

    said = console.export_text()
    _, _, moved, grown, refused, killed, elsewhere, ended = re.split(r"\n\d\. ", said)
    assert "storageclass.storage.k8s.io/gp2 unchanged\n" in moved
    assert "persistentvolumeclaim/ebs-standard-30g created\n" in moved
    assert " /var/www/html ext4 rw," in moved
    # EC2 takes no second attachment; on a busy machine it is looked at too seldom to see none.
    moves = re.search(r"attached to (i-\w+) → (?:none → )?(i-\w+)\n", moved)
    assert moves is not None, moved
    assert moves[1] != moves[2]
    first, second = re.findall(r"\w{64}  /var/www/html/index.html", moved)
    assert first == second
    assert re.findall(r"([\d.]+)G .* /data\n", grown) == ["29.9", "39.9"]
    value = re.search(r"ebs-provisioner.io/format=yes-erase-(vol-\w+)-\w{8}\n", refused)
    assert value is not None, refused
    assert f"the first 64 MiB of {value[1]} are unchanged" in refused
    assert "✓ 2 cycles of 2 volumes on 2 nodes" in killed
    assert "SIGKILL: " in killed
    assert "Claim default/data-orders-0 gets another volume with the same data:" in elsewhere
    assert "StatefulSet orders is scaled from 1 to 0, and back after the swap" in elsewhere
    assert "volumemove.ebs-provisioner.io/orders-elsewhere created" in elsewhere
    assert re.findall(
        r"^\[(\d)/6\] ", elsewhere, re.MULTILINE
    )  # of which some pass between two looks
    assert re.search(r"^claim default/data-orders-0 has volume vol-", elsewhere, re.MULTILINE)
    first, second = re.findall(r"\w{64}  /data/scans", elsewhere)
    assert first == second
    zones = re.findall(r"│ orders-0 .*│ (us-east-1\w) +│ *$", elsewhere, re.MULTILINE)
    assert zones == ["us-east-1a", "us-east-1b"]
    (stop,) = re.findall(r"^no order for ([\d.]+) seconds$", elsewhere, re.MULTILINE)
    assert float(stop) > 1
    assert re.search(r"^pvc-\S+ .* Retain .* Released ", elsewhere, re.MULTILINE)
    assert "no device, link or mount of a volume is left on a node" in ended
    assert "the nodes left no loop device, mount or cgroup behind" in ended
    assert "The demo is complete" in ended
