"""How the demo fails; that it succeeds is tested with a real control plane (``tests/cluster``)."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner, Result

from provisioner.sandbox import commands, demo, telling
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.up import Sandbox

# Read as text: a manifest that a chapter completes is no YAML yet.
OBJECT = re.compile(r"^kind: (\w+)\nmetadata:(?:\n  name:| \{name:) ([\w-]+)", re.MULTILINE)
PENDING = {"spec": {}, "status": {"phase": "Pending"}}


class Api:
    """An API server where nothing ever happens, or that gives no answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def get(self, _: str) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Stage:
    """A sandbox as far as the story's first step sees it; ``plane`` and ``crew`` in one."""

    region, ec2_endpoint = "us-east-1", "http://127.0.0.1:9"
    real_nodes = ()
    aws_environment = MappingProxyType({"AWS_REGION": region})

    def __init__(self, folder: Path, api: Api, crew: Crew) -> None:
        self.plane, self.binaries, self.kubeconfig = self, folder, folder / "kubeconfig"
        self.api, self.crew = api, crew
        kubectl = folder / "kubectl"
        kubectl.write_text("#!/bin/sh\ncat\n")
        kubectl.chmod(0o755)


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: Any, *controller: str) -> Result:
    """Run the demo on such a stage, with a program in the controller's place."""

    @contextlib.asynccontextmanager
    async def start(**_: Any) -> AsyncIterator[Stage]:
        async with Crew(folder / "logs") as crew:
            await crew.start("controller", controller)
            yield Stage(folder, Api(answer), crew)

    monkeypatch.setattr(commands, "have_binaries", lambda *_: folder)
    monkeypatch.setattr(Sandbox, "start", start)
    return CliRunner().invoke(commands.sandbox, ["demo"])


@pytest.mark.parametrize(
    "answer",
    [
        PENDING,
        ApiError(404, "there is no such claim"),
        aiohttp.ClientConnectionError("refused"),
        ClientError({"Error": {"Code": "InternalError"}}, "DescribeVolumes"),
    ],
    ids=["pending", "no such claim", "no answer", "EC2 fails"],
)
def test_a_step_that_is_not_seen_is_one_clear_line_and_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Any
) -> None:
    monkeypatch.setattr(telling, "STEP_TIMEOUT_S", 0.2)

    result = told(monkeypatch, tmp_path, answer, "sleep", "60")

    assert result.exit_code == 1
    assert result.stderr == "Error: not seen in 0.2 s: the claim is Bound\n"
    assert "The demo is complete" not in result.stdout


@pytest.mark.parametrize(
    "answer", [PENDING, aiohttp.ClientConnectionError("refused")], ids=["pending", "no answer"]
)
def test_a_controller_that_dies_is_named_at_once_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Any
) -> None:
    began_s = time.monotonic()

    result = told(
        monkeypatch, tmp_path, answer, "sh", "-c", "echo my last words; sleep 0.2; exit 3"
    )

    assert result.exit_code == 1
    assert result.stderr == (
        "Error: controller ended with exit status 3; the end of its log:\n  my last words\n"
    )
    assert time.monotonic() - began_s < telling.STEP_TIMEOUT_S / 2


def test_no_two_chapters_create_an_object_of_the_same_name() -> None:
    chapters = (*demo.CHAPTERS, *demo.ON_REAL_NODES, *demo.WITH_AN_IMAGE)
    texts = [text for each in chapters for text in vars(each).values() if isinstance(text, str)]
    created = Counter(found for text in texts for found in OBJECT.findall(text))

    assert created["PersistentVolumeClaim", "website"] == 1
    assert [found for found, times in created.items() if times > 1] == []
