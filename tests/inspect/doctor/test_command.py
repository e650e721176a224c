"""``kubectl ebs doctor``, as it prints."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from provisioner.inspect.command_line import Target
from provisioner.inspect.doctor import command
from provisioner.inspect.doctor.gather import Answer, Question
from provisioner.inspect.doctor.probes import Identity
from tests.inspect.doctor.evidence import CLUSTER, DRIVER, with_cluster


async def test_a_remedy_names_the_cluster_that_was_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[None]:
        yield None

    async def gather(*_: object) -> Answer:
        found = CLUSTER.csi_driver
        assert found is not None
        spec = structs.replace(found.spec, fs_group_policy="None")
        return Answer(with_cluster(csi_driver=structs.replace(found, spec=spec)))

    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(command, "gather", gather)
    target = Target(None, "prod", "", DRIVER, None)
    await command._doctor(Question(target, Identity(DRIVER)), "json")

    assert f"kubectl --context prod patch csidriver {DRIVER} --type" in capsys.readouterr().out
