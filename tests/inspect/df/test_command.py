"""``kubectl ebs df --watch``: each look tells what it could not read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.inspect.command_line import Target
from provisioner.inspect.df import command


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
        await command._df(Target(None, None, "", "ebs.csi.aws.com", None), None, 60.0, "table")

    told = capsys.readouterr().err.splitlines()
    assert told == ["node a does not answer", "node b does not answer"]
