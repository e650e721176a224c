"""``kubectl ebs orphans --apply``, interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from provisioner.inspect.command_line import Target
from provisioner.inspect.orphans import apply, command
from tests.inspect.orphans.test_orphan_plan_rules import planned


async def test_who_interrupts_a_deletion_is_told_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[None]:
        yield None

    async def fresh(*_: object) -> None:
        pass

    async def carry_out_plan(*_: object) -> None:
        raise asyncio.CancelledError  # what Ctrl-C becomes

    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(apply, "fresh", fresh)
    monkeypatch.setattr(apply, "carry_out_plan", carry_out_plan)
    target = Target(None, None, "", "ebs.csi.aws.com", None)

    with pytest.raises(asyncio.CancelledError):
        await command._apply(target, planned(), tmp_path / "plan", sure=True)

    assert capsys.readouterr().err == (
        f"interrupted: {tmp_path}/plan.outcome has what was deleted until then; run it again for "
        "the rest\n"
    )
