"""The demo's chapters of real nodes: where they are left out, and what makes them fail."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from provisioner.sandbox import commands, demo
from provisioner.sandbox.chapters import cycles, in_tree, moving_file
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installed.archive import ImageArchive
from provisioner.sandbox.programs import CHART, REAL_NODE
from provisioner.sandbox.real_node import loops
from provisioner.sandbox.real_node.cycle_report import Report
from provisioner.sandbox.real_node.remains import remains
from provisioner.sandbox.real_node.requirements import missing
from provisioner.sandbox.up import Sandbox

IMAGE = ImageArchive(Path("image.tar"), "ebs-provisioner", "0.1.0", "sha256:0", "amd64")
WHY = "a real node needs root: it mounts"


class Chapter:
    TITLE = "Told"

    async def tell(self, stage: Any) -> None:
        stage.teller.seen("it")


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What a sandbox of the demo was started with; it holds nothing but its folder."""
    options: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def start(**given: Any) -> AsyncIterator[Any]:
        options.update(given)
        plane = SimpleNamespace(api=None, folder=tmp_path)
        yield SimpleNamespace(
            region="us-east-1", ec2_endpoint="http://127.0.0.1:9", plane=plane, real_nodes=()
        )

    monkeypatch.setattr(Sandbox, "start", start)
    monkeypatch.setattr(demo, "CHAPTERS", (Chapter(),))
    monkeypatch.setattr(demo, "end", Chapter())
    return options


async def test_without_real_nodes_it_says_what_is_not_shown_and_why(
    started: dict[str, Any], console: Console
) -> None:
    await demo.tell(console, WHY)

    assert started["real_nodes"] == 0
    left_out = said(console).partition("1. Told")[2].partition("2. Told")[0]
    assert f"Not shown here, as {WHY}:" in left_out
    for chapter in demo.ON_REAL_NODES:
        assert f"- {chapter.TITLE}\n" in left_out
    assert "The demo is complete" in said(console)


async def test_two_run_in_one_zone_and_one_in_another(
    started: dict[str, Any], console: Console
) -> None:
    await demo.tell(console)

    assert (started["real_nodes"], started["real_zones"]) == (3, 2)


def test_the_sandbox_has_the_programs_that_the_command_has_asked_for(
    started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of two versions are linked into a folder for each question, not all with Helm."""
    asked: list[tuple[str, ...]] = []

    def have_binaries(*more: str) -> Path:
        asked.append(more)
        return Path("/with-helm")

    monkeypatch.setattr(commands, "all_missing", lambda: "")
    monkeypatch.setattr(commands, "chosen", lambda: IMAGE)
    monkeypatch.setattr(commands, "why_other", lambda _: "")
    monkeypatch.setattr(commands, "have_binaries", have_binaries)
    result = CliRunner().invoke(commands.sandbox, ["demo"])

    assert result.exit_code == 0, result.output
    assert asked == [(*REAL_NODE, *CHART)]
    assert started["binaries"] == Path("/with-helm")


def test_an_image_of_another_commit_is_not_installed(
    started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    async def tell(_console: Console, _why: str, image: Any, **_: Any) -> None:
        told.append(image)

    monkeypatch.setattr(demo, "tell", tell)
    monkeypatch.setattr(commands, "all_missing", lambda: "")
    monkeypatch.setattr(commands, "chosen", lambda: IMAGE)
    monkeypatch.setattr(commands, "why_other", lambda _: "it is of another commit")
    monkeypatch.setattr(commands, "have_binaries", lambda *_: Path("/there"))
    result = CliRunner().invoke(commands.sandbox, ["demo"])

    assert result.exit_code == 0, result.output
    assert told == ["it is of another commit"]


def test_the_worked_examples_pod_is_changed_for_real_nodes_only_where_it_has_to_be() -> None:
    *_, example = yaml.safe_load_all(in_tree._EXAMPLE)
    pod = yaml.safe_load(moving_file._POD)

    (container,), (of_example,) = pod["spec"].pop("containers"), example["spec"].pop("containers")
    assert container.keys() - of_example.keys() == {"command", "env"}
    assert [key for key in of_example if container[key] != of_example[key]] == ["image"]
    added = {"nodeSelector", "hostNetwork", "terminationGracePeriodSeconds"}
    assert pod["spec"] == example["spec"] | {key: pod["spec"][key] for key in added}
    assert pod["metadata"] == example["metadata"]


@pytest.mark.skipif(missing() != "", reason=missing())
def test_a_loop_device_that_is_left_on_the_machine_is_named(tmp_path: Path) -> None:
    content = tmp_path / "sandbox" / "volume"
    content.parent.mkdir()
    content.write_bytes(bytes(2**20))
    loop = loops.make(content)
    try:
        assert f"loop device loop{loop.number}" in remains(content.parent, ())
    finally:
        assert loop.release(10.0)

    assert remains(content.parent, ()) == [f"folder {content.parent}"]
    assert remains(tmp_path / "other", ()) == []


async def tell(console: Console) -> None:
    """Tell the chapter of cycles on a stage of nothing else; EC2 ends as slow as it was."""
    settings: list[Any] = []

    async def control(**given: Any) -> None:
        settings.append(given)

    teller = SimpleNamespace(aside=console.print, seen=console.print)
    stage: Any = SimpleNamespace(sandbox=None, teller=teller, control=control)
    try:
        await cycles.tell(stage)
    finally:
        assert settings == [{"latency": "none"}, {"latency": "real"}]


def engine(monkeypatch: pytest.MonkeyPatch, end: Report | BaseException) -> None:
    """Have the cycles end in this way."""

    class Cycles:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def run(self, *_: int) -> Report:
            if isinstance(end, BaseException):
                raise end
            return end

    monkeypatch.setattr(cycles, "Cycles", Cycles)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (AssertionError("not in 120 s: it"), "not in 120 s: it"),
        (ExceptionGroup("", [ExceptionGroup("", [AssertionError("LOST: a")])]), "LOST: a"),
        (Report(1, 1, 1, left=["mount /x on node"]), "mount /x on node"),
        (Report(1, 1, 1, torn=["vol-1 was detached"]), "vol-1 was detached"),
        (Report(1, 1, 1, formatted_anew=["vol-2"]), "vol-2"),
    ],
)
async def test_cycles_that_lose_or_leave_something_end_the_story(
    monkeypatch: pytest.MonkeyPatch, console: Console, end: Report | BaseException, told: str
) -> None:
    engine(monkeypatch, end)

    with pytest.raises(SandboxError) as failure:
        await tell(console)

    assert told in str(failure.value)


async def test_cycles_that_end_well_are_summed_up(
    monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    report = Report(7, 3, 2, cycles=5)
    engine(monkeypatch, report)

    await tell(console)

    assert "5 cycles of 3 volumes" in said(console)
