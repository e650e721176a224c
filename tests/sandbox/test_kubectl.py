from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from provisioner.sandbox import kubectl
from provisioner.sandbox.control_plane import ControlPlane, until
from provisioner.sandbox.errors import SandboxError


def plane(folder: Path, script: str) -> ControlPlane:
    """As far as kubectl needs one; ``script`` is in kubectl's place."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return cast("ControlPlane", SimpleNamespace(binaries=folder, kubeconfig=folder / "kubeconfig"))


def hanging(folder: Path) -> ControlPlane:
    return plane(folder, f"echo $$ > {folder}/pid; exec sleep 60")


async def has_ended(folder: Path) -> bool:
    pid = int((folder / "pid").read_text())
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_it_is_given_the_sandbox_the_arguments_and_the_text(tmp_path: Path):
    status, said, errors = await kubectl.run(
        plane(tmp_path, 'echo "$KUBECONFIG $@"; cat; echo no >&2; exit 3'),
        *("apply", "-f", "-"),
        text="object",
    )

    assert status == 3
    assert said == f"{tmp_path}/kubeconfig apply -f -\nobject"
    assert errors == "no\n"


async def test_one_that_is_followed_is_heard_line_by_line_while_it_runs(tmp_path: Path):
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        (tmp_path / "heard").touch()

    script = f"echo one; until [ -e {tmp_path}/heard ]; do sleep 0.05; done; echo two >&2; exit 3"
    status = await kubectl.followed(plane(tmp_path, script), say=say, timeout_s=20.0)

    assert (status, said) == (3, ["one", "two"])


async def test_one_that_is_followed_and_hangs_is_ended_and_named(tmp_path: Path):
    with pytest.raises(SandboxError, match=r"^kubectl ebs move did not end within 2 s$"):
        await kubectl.followed(hanging(tmp_path), "ebs", "move", say=lambda _: None, timeout_s=2.0)

    assert await has_ended(tmp_path)


async def test_one_that_hangs_is_ended_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kubectl, "TIMEOUT_S", 2.0)

    with pytest.raises(SandboxError, match=r"^kubectl delete pod db-0 did not end within 2 s$"):
        await kubectl.run(hanging(tmp_path), "delete", "pod", "db-0")

    assert await has_ended(tmp_path)


async def test_one_that_hangs_does_not_outlive_a_cancellation(tmp_path: Path):
    running = asyncio.create_task(kubectl.run(hanging(tmp_path), "delete", "pod", "db-0"))

    async def started() -> bool:
        return (
            bool((tmp_path / "pid").read_text().strip()) if (tmp_path / "pid").exists() else False
        )

    async with asyncio.timeout(20):
        await until(started)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await has_ended(tmp_path)
