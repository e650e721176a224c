"""``kubectl ebs doctor``, as it prints."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from msgspec import structs

from provisioner.inspect.command_line import Target
from provisioner.inspect.doctor import command
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.inspect.doctor.gather import Answer, Question
from provisioner.inspect.doctor.probes import Identity
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import CLUSTER, DRIVER, a_volume, with_cloud, with_cluster


async def printed(
    seen: Evidence,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What the command prints of this evidence, with --context prod."""

    @asynccontextmanager
    async def reading(_: Target) -> AsyncIterator[None]:
        yield None

    async def gather(*_: object) -> Answer:
        return Answer(seen)

    monkeypatch.setattr(command, "reading", reading)
    monkeypatch.setattr(command, "gather", gather)
    target = Target(None, "prod", "", DRIVER, None)
    await command._doctor(Question(target, Identity(DRIVER)), output)
    return capsys.readouterr().out


async def test_a_remedy_names_the_cluster_that_was_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    found = CLUSTER.csi_driver
    assert found is not None
    spec = structs.replace(found.spec, fs_group_policy="None")
    seen = with_cluster(csi_driver=structs.replace(found, spec=spec))

    out = await printed(seen, "json", monkeypatch, capsys)

    assert f"kubectl --context prod patch csidriver {DRIVER} --type" in out


async def test_a_command_is_one_line_that_a_shell_takes_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    ids = [f"vol-{number:017x}" for number in range(8)]
    owners = [a_volume(f"pv-{each}", each) for each in ids]
    bare = with_cloud(volumes={each: e.volume(volume_id=each, tags={}) for each in ids}).cloud
    seen = replace(with_cluster(volumes=owners), cloud=bare)

    out = await printed(seen, "table", monkeypatch, capsys)

    (line,) = (each for each in out.splitlines() if "create-tags" in each)
    tag = "Key=ebs.csi.aws.com/cluster,Value=true"
    words = ["--resources", *ids, "--tags", tag, "--region", "us-east-1"]
    assert shlex.split(line) == ["aws", "ec2", "create-tags", *words]
