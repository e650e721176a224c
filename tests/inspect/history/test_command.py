"""``kubectl ebs history`` of a claim that is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.inspect.command_line import Target
from provisioner.inspect.history import command
from provisioner.inspect.history.history_rules import Moment
from provisioner.inspect.object_name_rules import object_name
from provisioner.model.errors import StorageError
from tests.inspect.history.test_history_rules import NOW

GAP = "could not read EC2: no AWS credentials"


def found_nothing(monkeypatch: pytest.MonkeyPatch, *moments: Moment) -> Any:
    """The command, run where there is no claim and there are no AWS credentials."""

    async def one(*_: object) -> None:
        return None

    async def some(*_: object) -> list[Moment]:
        return [*moments]

    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[Any]:
        cluster = SimpleNamespace(one=one, misses=lambda _: False)
        yield SimpleNamespace(cluster=cluster, gap_lines=lambda: [GAP])

    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(command, "_moments", some)
    target = Target(None, None, "shop", "ebs.csi.aws.com", None)
    return command._history(target, object_name(("pvc", "typo"), "shop"), "table")


async def test_a_claim_that_never_was_is_an_error_whatever_ec2_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(StorageError, match="there is no pvc shop/typo, and no trace of it"):
        await found_nothing(monkeypatch)

    assert capsys.readouterr() == ("", f"{GAP}\n")


async def test_of_a_claim_that_is_gone_it_is_said_above_its_traces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert await found_nothing(monkeypatch, Moment(NOW, "EC2", "made")) == 1

    shown = capsys.readouterr()
    assert "made" in shown.out
    assert "there is no pvc shop/typo any more" in shown.err
