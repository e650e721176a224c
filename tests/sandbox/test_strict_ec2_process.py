"""How the process of the strict EC2 starts and ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import HTTPClientError

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.strict_ec2 import __main__ as program
from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.up import Sandbox
from provisioner.sandbox.workdir import LOGS
from tests.sandbox.lab import Lab, client, wait_until

MODULE = [sys.executable, "-m", "provisioner.sandbox.strict_ec2"]
# A second of CPU, which takes minutes where two cores have a load of 25.
LONGEST_START_S = 240


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def short_lived() -> Iterator[StrictEc2]:
    server = StrictEc2(latency="real", throttle="x20", seed=1)
    server.start()
    yield server
    server.stop()


def test_a_server_starts_with_what_its_command_line_says_and_ends_with_its_starter(
    short_lived: StrictEc2,
) -> None:
    short_lived.control(latency="none")
    short_lived.reset()
    lab = Lab(client(short_lived.endpoint), short_lived.control)
    started_s = time.monotonic()

    assert lab.create()["State"] == "creating"
    assert time.monotonic() - started_s >= 0.1
    process = short_lived._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()

    assert process.wait(10) == 0


def test_a_server_ends_at_once_though_a_call_hangs(
    short_lived: StrictEc2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioner.sandbox.strict_ec2.client._STOP_S", 60.0)
    short_lived.control(
        latency="none", throttle="none", faults=[{"action": "*", "do": "hang", "n": 1}]
    )
    lab = Lab(client(short_lived.endpoint), short_lived.control)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(lab.create)
        wait_until(lambda: bool(short_lived.report()["faulted"]))
        started_s = time.monotonic()
        short_lived.stop()

        with pytest.raises(HTTPClientError):
            hanging.result()
    assert time.monotonic() - started_s < 30  # stop() kills after 60


def test_a_port_in_use_is_one_line_and_a_failure(taken_port: int) -> None:
    done = subprocess.run(
        [*MODULE, "--port", str(taken_port)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"ebs-provisioner sandbox ec2: port {taken_port} of 127.0.0.1 cannot be used: "
        "Address already in use\n"
    )


async def test_a_sandbox_is_refused_a_port_in_use_before_anything_starts(
    taken_port: int, tmp_path: Path
) -> None:
    with pytest.raises(SandboxError, match=f"^port {taken_port} of .* Address already in use$"):
        async with Sandbox.start(port=taken_port, binaries=tmp_path, folder=tmp_path / "work"):
            pass
    # The log of a part is there as soon as it was started.
    assert list((tmp_path / "work" / LOGS).glob("*.log")) == []


@pytest.mark.parametrize("option", ["--throttle=rubbish", "--latency=slow", "--port=x"])
def test_a_mistake_in_an_option_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["strict_ec2", option])

    with pytest.raises(SystemExit) as ended:
        program.main()

    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert told.err.startswith("ebs-provisioner sandbox ec2: ")
    assert option.partition("=")[0] in told.err
    assert told.err.count("\n") == 1


def test_a_server_dies_with_its_parent() -> None:
    start = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", start, *MODULE, "--die-with-parent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        watchdog = threading.Timer(LONGEST_START_S, os.kill, (parent.pid, signal.SIGKILL))
        watchdog.start()
        assert parent.stdout.readline().startswith("ready http://127.0.0.1:")
        parent.kill()
        # The server holds the other end of this pipe: its end is the server's end.
        assert parent.stdout.read() == ""
        watchdog.cancel()
