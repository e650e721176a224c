"""Start a strict EC2 beside a test, a demo or a bench, and talk to its control endpoint."""

import json
import os
import subprocess
import sys
import threading
from http import HTTPStatus
from http.client import HTTPConnection
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

_START_S: Final = 60.0
_CONTROL_S: Final = 30.0
_STOP_S: Final = 5.0

#: What boto3 needs so that it talks to nobody else; moto accepts any key.
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class StrictEc2:
    """A strict EC2 in a process of its own, for the time of a ``with`` block.

    >>> with StrictEc2(latency="none") as ec2:
    ...     ec2.control(delays={"create_s": 1.5})
    ...     ec2.counts().get("CreateVolume", 0)
    """

    def __init__(
        self,
        *,
        port: int = 0,
        latency: str = "none",
        throttle: str = "none",
        seed: int | None = None,
        module: str = "provisioner.sandbox.strict_ec2",
    ) -> None:
        self.endpoint = ""
        self._command = [
            *(sys.executable, "-m", module, "--exit-on-eof"),
            *("--port", str(port), "--latency", latency, "--throttle", throttle),
            *(("--seed", str(seed)) if seed is not None else ()),
        ]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server and wait for it to be ready.

        Raises: RuntimeError when it ends, or says nothing for a minute.
        """
        # Not PYTHONPATH of the caller alone: the package may be imported from a checkout.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._process = process
        watchdog = threading.Timer(_START_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
            watchdog.join()
        if not line.startswith("ready "):
            self.stop()
            raise RuntimeError(f"the strict EC2 did not start: {line!r}")
        self.endpoint = line.removeprefix("ready ").strip()

    def stop(self) -> None:
        """Stop the server; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def control(self, **document: Any) -> dict[str, Any]:
        """Post to ``/_control``; returns its report. See ``control.py`` for the keys.

        Raises: ValueError when the server refuses the document.
        """
        return self._ask("/_control", json.dumps(document).encode())

    def reset(self) -> None:
        """Forget volumes, instances, faults, counts; settings as at the start."""
        self.control(reset=True)

    def report(self) -> dict[str, Any]:
        """Return counts of calls, throttled calls, errors, and volumes by state."""
        return self._ask("/_control")

    def counts(self) -> dict[str, int]:
        """Return the number of calls by action since the last reset, throttled ones included."""
        calls: dict[str, int] = self.report()["calls"]
        return calls

    def throttled(self) -> dict[str, int]:
        """Return the number of throttled calls by action since the last reset."""
        throttled: dict[str, int] = self.report()["throttled"]
        return throttled

    def log(self, *actions: str, about: str = "") -> list[dict[str, Any]]:
        """Return each call since ``control(log=True)``: at_s, took_s, action, key, params, outcome.

        Args:
            actions: of these alone; of all, if none is named.
            about: only calls that have this text in a parameter.

        Returns:
            what happened when; ``key`` is the access key that the call was signed with, and
            ``took_s`` is missing while it is under way.
        """
        query = urlencode({"log": 1, "action": ",".join(actions), "about": about})
        entries: list[dict[str, Any]] = self._ask(f"/_control?{query}")["log"]
        return entries

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        status, reply = ask(self.endpoint, path, body)
        document: dict[str, Any] = json.loads(reply)
        if status >= HTTPStatus.BAD_REQUEST:
            raise ValueError(document["error"])
        return document


def ask(
    endpoint: str,
    path: str,
    body: bytes | None = None,
    content_type: str = "text/plain",
    method: str = "",
) -> tuple[int, bytes]:
    """GET (or another method), or POST a body to, a server of ours; returns status and reply."""
    connection = HTTPConnection(endpoint.removeprefix("http://"), timeout=_CONTROL_S)
    try:
        usual, headers = ("GET", {}) if body is None else ("POST", {"Content-Type": content_type})
        connection.request(method or usual, path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def disk_changes(
    endpoint: str, after: int, wait_s: float = 0.0
) -> tuple[int, list[dict[str, Any]]]:
    """Wait for what happens to volumes after change number ``after``; see ``disk_changes.py``.

    Returns the number of the last one, and the changes.
    Raises: OSError, http.client.HTTPException when the server is gone.
    """
    _, reply = ask(endpoint, f"/_disks?after={after}&wait_s={wait_s}")
    document = json.loads(reply)
    return int(document["last"]), document["changes"]


def leave_disks(endpoint: str) -> None:
    """Say that nobody follows any more."""
    ask(endpoint, "/_disks", method="DELETE")
