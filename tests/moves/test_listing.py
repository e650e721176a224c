"""The moves there are, as ``kubectl ebs move`` lists them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from provisioner.inspect.command_line import KubeTarget
from provisioner.inspect.completion.command import answer
from provisioner.moves import command
from tests.moves.conftest import Run
from tests.moves.fake_cluster import (
    FakeCluster,
    Fault,
)


async def test_without_arguments_the_moves_are_listed_those_under_way_first(
    cluster: FakeCluster, run: Run
):
    cluster.put("a", {"phase": "Done", "message": "old"})
    cluster.put("b", {"phase": "Snapshotting", "progressPercent": 7})
    cluster.put("c", {"phase": "Planned"}, dryRun=True)
    done = await run()

    heading, *rows = done.stdout.splitlines()
    assert heading.split() == [*["NAMESPACE", "NAME", "CLAIM", "TO", "PHASE", "AGE", "MESSAGE"]]
    assert [row.split()[1] for row in rows] == ["b", "c", "a"]
    assert "Snapshotting 7 %" in rows[0]
    assert "Planned (dry run)" in rows[1]
    assert (await run("--list")).stdout == done.stdout


async def test_the_list_is_there_for_scripts(cluster: FakeCluster, run: Run):
    assert (await run("--list")).stdout == "No VolumeMoves found.\n"
    cluster.put("a", {"phase": "Held"})

    (listed,) = json.loads((await run("-o", "json")).stdout)
    assert listed == {
        "namespace": "shop",
        "name": "a",
        "claim": "data",
        "statefulSet": "",
        "to": {"zone": "us-east-1b"},
        "dryRun": False,
        "phase": "Held",
        "progressPercent": 0,
        "progressBytes": 0,
        "totalBytes": 0,
        "message": "",
    }


async def test_whoever_may_only_see_one_namespace_sees_its_moves(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
):
    path = Path(cluster.target.kubeconfig or "")
    config = json.loads(path.read_text())
    config["contexts"][0]["context"]["namespace"] = "shop"
    path.write_text(json.dumps(config))
    cluster.put("mine", {"phase": "Held"})
    message = 'User "eve" cannot list resource "volumemoves"'
    cluster.faults = [Fault("GET", "volumemoves", 403, message=message)]

    assert await command._list(KubeTarget(str(path), None, ""), as_json=False) == 0
    shown = capsys.readouterr()
    assert "mine" in shown.out
    assert 'only namespace shop is shown: you need the verb "list" on volumemoves' in shown.err


async def test_names_of_moves_are_completed_as_the_user_that_is_given(cluster: FakeCluster):
    cluster.put("mine")
    words = ["--kubeconfig", cluster.target.kubeconfig or "", "-n", "shop", "--as", "eve"]

    found = await asyncio.to_thread(answer, ["move", *words, "--resume", "m"])

    assert [line.partition("\t")[0] for line in found[:-1]] == ["mine"]
    assert cluster.asked_as == {("eve",)}
