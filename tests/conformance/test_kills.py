"""A run that is killed at any moment leaves nothing that a sweep does not find, nor a stranger miss."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import boto3
import pytest

from provisioner.conformance import account
from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.journal import Journal, stories
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from tests.conformance.account_world import EVERY, Account, Listener

ROOT = Path(__file__).parents[2]


class DeadError(BaseException):
    """The process is gone: no line of it runs any more."""


class Fate:
    """Counts the moments of a run, and kills it at one of them; from then on it does nothing."""

    def __init__(self, at: int) -> None:
        self.moments = 0
        self._at = at

    def moment(self) -> None:
        self.moments += 1
        if self.moments >= self._at:
            raise DeadError


@pytest.fixture
def fate(monkeypatch: pytest.MonkeyPatch, aws_session: boto3.session.Session) -> Fate:
    """Before and after each call to EC2, and before, within and after each line of the journal."""
    monkeypatch.setattr("boto3.session.Session", lambda: aws_session)
    made = Fate(at=10**9)
    send, write = Ec2._in_thread, Journal._write

    async def mortal_send(self: Ec2, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        made.moment()
        reply = await send(self, operation, params)
        made.moment()
        return reply

    def mortal_write(self: Journal, line: Any) -> None:
        made.moment()
        try:
            made.moment()
        except DeadError:
            torn: BinaryIO = self._file
            torn.write(b'{"type":"making","num')
            torn.flush()
            raise
        write(self, line)
        made.moment()

    monkeypatch.setattr(Ec2, "_in_thread", mortal_send)
    monkeypatch.setattr(Journal, "_write", mortal_write)
    return made


async def killed(owned: Account, fate: Fate, at: int) -> int:
    """Run until the moment; the number of moments that there were."""
    fate.moments, fate._at = 0, at
    try:
        await account.run(owned.order(), Listener().terminal)
    except (DeadError, BaseExceptionGroup) as death:
        found = death.split(DeadError)[1] if isinstance(death, BaseExceptionGroup) else None
        assert found is None, found
    count, fate._at = fate.moments, 10**9
    return count


def forget_runs(owned: Account) -> None:
    """Or each sweep would look for the things of all runs so far, again."""
    for path in owned.folder.glob("*.jsonl"):
        path.unlink()


async def test_a_run_killed_at_any_moment_is_swept(
    owned: Account, fate: Fate, strict_ec2: StrictEc2
):
    moments = await killed(owned, fate, 10**9)
    assert moments > 150
    assert owned.made() == set()
    left_by_kills = set()
    # Every fifth: the order of concurrent probes varies anyway, and each call has several moments.
    for at in range(1, moments + 1, 5):
        await killed(owned, fate, at)
        left_by_kills |= owned.made()
        listener = Listener()
        assert await account.sweep_all(owned.order(), listener.terminal, "") == 0, at
        assert owned.made() == set(), at
        forget_runs(owned)
    assert len(left_by_kills) > 30  # or the kills show nothing


async def test_a_run_killed_at_any_moment_is_resumed(owned: Account, fate: Fate):
    moments = await killed(owned, fate, 10**9)
    for at in range(7, moments, 29):
        await killed(owned, fate, at)
        begun = list(stories(owned.folder))[-1].begun
        before = {each.begun.run for each in stories(owned.folder)}
        listener = Listener()
        if not any(
            each.name not in story.findings for story in stories(owned.folder) for each in EVERY
        ):
            assert await account.sweep_all(owned.order(), listener.terminal, "") == 0
        else:
            report = await account.resume(owned.order(), listener.terminal, begun.run)
            assert report is not None
            assert report.exit_status == 0, (at, report.stopped, report.findings)
        assert {each.begun.run for each in stories(owned.folder)} == before
        assert owned.made() == set(), at
        forget_runs(owned)


async def test_a_sweep_that_is_killed_is_swept_by_the_next(
    owned: Account, fate: Fate, strict_ec2: StrictEc2
):
    moments = await killed(owned, fate, 10**9)
    for at in range(1, 12):
        await killed(owned, fate, moments // 2)
        fate.moments, fate._at = 0, at
        with suppress(DeadError, BaseExceptionGroup):
            await account.sweep_all(owned.order(), Listener().terminal, "")
        fate._at = 10**9
        assert await account.sweep_all(owned.order(), Listener().terminal, "") == 0
        assert owned.made() == set(), at
        forget_runs(owned)


def _process(owned: Account, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "provisioner.cli", "conformance", "aws"]
    place = ["--endpoint-url", owned.endpoint, "--region", "us-east-1", "--yes"]
    environment = {**os.environ, **CREDENTIALS, "AWS_CONFIG_FILE": "/dev/null"}
    return subprocess.Popen(
        [*command, *place, "--state", str(owned.folder), *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def _made_something(owned: Account, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if len(owned.made()) > 3:
            return
        assert process.poll() is None
        await asyncio.sleep(0.05)
    raise AssertionError("the process has made nothing")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_a_process_that_gets_a_signal(
    owned: Account, strict_ec2: StrictEc2, number: signal.Signals
):
    """By Ctrl-C and SIGTERM it sweeps itself; by SIGKILL another one does."""
    strict_ec2.control(latency=[0.02, 0.05], delays={"create_s": 1.0, "snapshot_s": 1.0})
    process = _process(owned, "--instance", owned.instance)
    try:
        await _made_something(owned, process)
        process.send_signal(number)
        output, _ = await asyncio.to_thread(process.communicate, None, 120)
    finally:
        process.kill()
        process.wait()
    if number is signal.SIGKILL:
        assert owned.made() != set()
        assert await account.sweep_all(owned.order(), Listener().terminal, "") == 0
    else:
        assert process.returncode == 2
        assert "everything that was made is being deleted" in output
        assert "The run ended early: it was interrupted." in output
    assert owned.made() == set()
