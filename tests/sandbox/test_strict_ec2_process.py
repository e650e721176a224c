"""How the process of the strict EC2 starts and ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import HTTPClientError

from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.strict_ec2.lab import Lab, client, wait_until


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


def test_a_server_ends_at_once_though_a_call_hangs(short_lived: StrictEc2) -> None:
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
    assert time.monotonic() - started_s < 4  # stop() kills after five


def test_a_server_dies_with_its_parent() -> None:
    start = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); sys.stdin.read()"
    server = [sys.executable, "-m", "provisioner.sandbox.strict_ec2", "--die-with-parent"]
    with subprocess.Popen(
        [sys.executable, "-c", start, *server],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        watchdog = threading.Timer(20, os.kill, (parent.pid, signal.SIGKILL))
        watchdog.start()
        assert parent.stdout.readline().startswith("ready http://127.0.0.1:")
        parent.kill()
        # The server holds the other end of this pipe: its end is the server's end.
        assert parent.stdout.read() == ""
        watchdog.cancel()
