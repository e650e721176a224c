"""``kubectl ebs df --watch``: what each look tells, and draws."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from provisioner.inspect.command_line import Target
from provisioner.inspect.df import command
from provisioner.inspect.df.usage_rules import Usage

TARGET = Target(None, None, "", "ebs.csi.aws.com", None)


async def test_each_look_of_a_watch_tells_its_gaps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    gaps = ["node a does not answer"]
    later = iter(["node b does not answer"])

    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[Any]:
        yield SimpleNamespace(cluster=SimpleNamespace(gaps=gaps), gap_lines=lambda: gaps)

    async def look(*_: object) -> dict[str, Any]:
        return {}

    async def look_later(*_: object) -> dict[str, Any]:
        gaps[:] = [each] if (each := next(later, "")) else []
        if not gaps:
            raise EOFError
        return {}

    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(command, "_look", look)
    monkeypatch.setattr(command, "_later", look_later)

    with pytest.raises(EOFError):
        await command._df(TARGET, None, 60.0, "table", plot=False)

    told = capsys.readouterr().err.splitlines()
    assert told == ["node a does not answer", "node b does not answer"]


async def test_a_watch_draws_all_looks_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    percents = iter((40, 41, 47))

    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[Any]:
        yield SimpleNamespace(cluster=SimpleNamespace(gaps=[]), gap_lines=list)

    async def look(*_: object) -> dict[str, Usage]:
        used = next(percents, None)
        if used is None:
            raise EOFError
        usage = Usage("shop", "data", 100, used, 100 - used)
        return {usage.key: usage}

    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(command, "_look", look)
    monkeypatch.setattr(command, "_later", look)

    with pytest.raises(EOFError):
        await command._df(TARGET, None, 60.0, "table", plot=True)

    told = capsys.readouterr().out.splitlines()
    assert [each.split("   ")[-1] for each in told if "shop/data" in each] == [
        "▁ 40%",
        "▁█ 40-41%",
        "▁▂█ 40-47%",
    ]
    assert told[0].endswith("OVER TIME")


@pytest.mark.parametrize("options", [["--plot"], ["--plot", "--watch", "1m", "-o", "json"]])
def test_one_look_and_json_have_no_picture(options: list[str]):
    told = CliRunner().invoke(command.df, options)

    assert told.exit_code == 2
    assert "--plot" in told.output


def test_the_json_of_what_a_kubelet_says_commands_no_terminal():
    usage = Usage("shop", "data\x9b2J", 10, 5, 5)

    lines = command._lines({}, {usage.key: usage}, "json", ())

    assert '"data\\u009b2J"' in "".join(lines)
