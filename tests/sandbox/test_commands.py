from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from provisioner.sandbox import commands
from provisioner.sandbox.binaries import silent
from provisioner.sandbox.build import build
from provisioner.sandbox.installed.archive import ImageArchive
from provisioner.sandbox.maker import Step
from provisioner.sandbox.programs import (
    CHART,
    CONTROL_PLANE,
    DEFAULT_KUBERNETES,
    E2E,
    REAL_NODE,
    SANITY,
    program,
)

WHY = "a real node needs Linux"


@pytest.fixture(autouse=True)
def no_real_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine is."""
    monkeypatch.setattr(commands, "missing", lambda: WHY)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that already holds the programs, and a PATH that holds none."""
    cache = tmp_path / "ebs-provisioner"
    folder = cache / DEFAULT_KUBERNETES

    def write(step: Step, target: Path, _: object) -> None:
        for each in step:
            (target / each.name).write_text("")

    wanted = [program(name, DEFAULT_KUBERNETES) for name in CONTROL_PLANE]
    build(wanted, folder, cache, silent, write)
    for name in ("KUBEBUILDER_ASSETS", "SANDBOX_KUBERNETES", "SANDBOX_KUBELET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return folder


def test_binaries_prints_the_folder_as_its_last_line(cache: Path) -> None:
    result = CliRunner().invoke(commands.sandbox, ["binaries"])

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == str(cache)


@pytest.mark.parametrize(
    ("why", "arguments", "wanted"),
    [
        (WHY, [], CONTROL_PLANE),
        ("", [], CONTROL_PLANE + REAL_NODE),
        (WHY, ["--tests"], CONTROL_PLANE + SANITY + CHART),
        ("", ["--tests"], CONTROL_PLANE + REAL_NODE + SANITY + CHART),
        ("", ["--conformance"], CONTROL_PLANE + REAL_NODE + E2E),
    ],
)
def test_binaries_are_those_that_can_run_here(
    monkeypatch: pytest.MonkeyPatch, why: str, arguments: list[str], wanted: tuple[str, ...]
) -> None:
    asked: list[tuple[str, ...]] = []

    def ensured(*, programs: tuple[str, ...], progress: object) -> Path:
        asked.append(programs)
        return Path("/there")

    monkeypatch.setattr(commands, "missing", lambda: why)
    monkeypatch.setattr("provisioner.sandbox.binaries.ensure_binaries", ensured)
    result = CliRunner().invoke(commands.sandbox, ["binaries", *arguments])

    assert asked == [wanted]
    assert result.stdout == "/there\n"
    said = (
        f"Real nodes are not possible here, so what needs one is skipped: {why}.\n" if why else ""
    )
    assert result.stderr == said


def test_a_real_node_that_cannot_be_is_one_line_before_anything_is_built() -> None:
    result = CliRunner().invoke(commands.sandbox, ["up", "--real-node"])

    assert result.exit_code == 1
    assert result.stderr == f"Error: {WHY}\n"


def test_a_version_that_is_none_is_one_line_and_a_failure(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_KUBERNETES", "newest")
    result = CliRunner().invoke(commands.sandbox, ["binaries"])

    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:] == [
        "Error: 'newest' is not a release of Kubernetes: expected one like 1.36 or 1.36.3"
    ]


@pytest.mark.parametrize("command", ["binaries", "up", "demo"])
def test_each_command_that_runs_kubernetes_can_choose_which(
    cache: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("SANDBOX_KUBERNETES", "1.36")
    monkeypatch.setenv("SANDBOX_KUBELET", "")
    chosen = ["--kubernetes", "1.35", "--kubelet=1.36"]
    result = CliRunner().invoke(commands.sandbox, [command, *chosen])

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(
        "Error: a kubelet v1.36.3 does not go with an API server v1.35.4:"
    )


def test_real_nodes_in_more_zones_than_there_are_cannot_be() -> None:
    result = CliRunner().invoke(
        commands.sandbox, ["up", "--real-nodes=3", "--real-zones=3", "--zones=2"]
    )

    assert result.exit_code == 2
    assert result.stderr.endswith("Error: --real-zones 3 is more than --zones 2\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--installed"], "--installed needs --real-node: other nodes only pretend to run pods"),
        (
            ["--real-node", "--image=x.tar"],
            "--image is the one to install: it needs --installed",
        ),
        (
            ["--real-node", "--installed", "--no-controller"],
            "--no-controller contradicts --installed: the chart has the controller",
        ),
    ],
)
def test_options_that_contradict_an_installation_are_one_sentence(
    arguments: list[str], sentence: str
) -> None:
    result = CliRunner().invoke(commands.sandbox, ["up", *arguments])

    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: {sentence}\n")


def test_without_root_an_installation_is_one_line_and_a_failure() -> None:
    result = CliRunner().invoke(commands.sandbox, ["up", "--real-node", "--installed"])

    assert result.exit_code == 1
    assert result.stderr == f"Error: {WHY}\n"


def test_an_installation_without_an_image_ends_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands, "missing", lambda: "")
    arguments = ["--real-node", "--installed", f"--image={tmp_path}/none.tar"]
    result = CliRunner().invoke(commands.sandbox, ["up", *arguments])

    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: {tmp_path}/none.tar cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("other", "said"), [("", ""), ("it is of another commit", "Warning: it is of another commit\n")]
)
def test_an_installation_warns_of_an_image_of_another_commit(
    monkeypatch: pytest.MonkeyPatch, other: str, said: str
) -> None:
    image = ImageArchive(Path("image.tar"), "ebs-provisioner", "0.1.0", "sha256:0", "amd64")
    asked: list[dict[str, Any]] = []

    async def started(**options: Any) -> None:
        asked.append(options)

    monkeypatch.setattr(commands, "missing", lambda: "")
    monkeypatch.setattr(commands, "chosen", lambda _: image)
    monkeypatch.setattr(commands, "why_other", lambda _: other)
    monkeypatch.setattr(commands, "have_binaries", lambda *_: Path("/there"))
    monkeypatch.setattr(commands, "_up", started)
    result = CliRunner().invoke(commands.sandbox, ["up", "--real-node", "--installed"])

    assert result.stderr == said
    assert asked[0]["image"] == image


def test_a_cluster_without_any_node_cannot_be() -> None:
    result = CliRunner().invoke(commands.sandbox, ["up", "--nodes=0"])

    assert result.exit_code == 2
    assert result.stderr.endswith("Error: --nodes 0 needs --real-nodes: no pod could run\n")


@pytest.mark.parametrize(
    ("arguments", "count", "zones"),
    [
        (["--real-node"], 2, 1),
        (["--real-nodes=3", "--real-zones=2"], 3, 2),
        (["--real-node", "--real-nodes=3"], 3, 1),
        ([], 0, 1),
    ],
)
def test_real_nodes_are_as_many_and_where_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], count: int, zones: int
) -> None:
    asked: list[dict[str, Any]] = []

    async def started(**options: Any) -> None:
        asked.append(options)

    monkeypatch.setattr(commands, "missing", lambda: "")
    monkeypatch.setattr(commands, "have_binaries", lambda *_: Path("/there"))
    monkeypatch.setattr(commands, "_up", started)
    result = CliRunner().invoke(commands.sandbox, ["up", *arguments])

    assert result.exit_code == 0, result.output
    assert (asked[0]["real_nodes"], asked[0]["real_zones"]) == (count, zones)


@pytest.mark.parametrize(
    "arguments", [["up", "--nodes", "-1"], ["up", "--zones", "7"], ["up", "--latency", "slow"]]
)
def test_an_option_that_cannot_be_is_refused_before_anything_starts(arguments: list[str]) -> None:
    assert CliRunner().invoke(commands.sandbox, arguments).exit_code == 2


def test_clean_removes_the_compilers_cache_and_says_how_much_it_was(cache: Path) -> None:
    kept = cache.parent / "go" / "build" / "x"
    kept.parent.mkdir()
    with kept.open("wb") as file:
        file.truncate(1_200_000_000)  # of holes: it takes no room

    result = CliRunner().invoke(commands.sandbox, ["binaries", "--clean"])

    assert result.exit_code == 0
    assert result.stdout == f"removed 1.2 GB of the Go compiler's cache in {cache.parent}\n"
    assert not kept.exists()
    assert (cache / "kubectl").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_work_in_good_order(number: signal.Signals) -> None:
    ended: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.sleep(10)
        finally:
            # A second signal must not interrupt the end.
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
            ended.append("well")

    assert commands.run_until_signal(work()) is True
    assert ended == ["well"]


def test_work_that_ends_by_itself_was_not_interrupted() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    assert commands.run_until_signal(work()) is False
