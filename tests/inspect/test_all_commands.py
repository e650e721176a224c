"""Every command in a process of its own: no objects, very many, Ctrl-C, and a reader that left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from aiohttp import web

from provisioner.inspect.commands import ebs
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from tests import forked
from tests.builders import DRIVER
from tests.kube.conftest import kubeconfig_for

COMMANDS: dict[str, list[str]] = {
    "budget": [],
    "cost": [],
    "df": [],
    "doctor": [],
    "explain": ["pvc", "shop/claim-1"],
    "history": ["pvc", "shop/claim-1"],
    "move": [],
    "orphans": ["--cluster-id", "dead"],
    "quota": [],
    "volumes": [],
}
READS_KUBERNETES = sorted({*COMMANDS} - {"quota"})
MISS_SOMETHING = {"doctor", "explain", "history"}
"""In a cluster without anything: the driver, and the object that is named."""
MANY, PAGE = 100_000, 500
WAITS_S = 180.0  # a hang; with the whole suite beside it, 100,000 objects took more than a minute
INTERRUPTED, PIPE_CLOSED = 130, 141


@dataclass
class ApiServer:
    """An API server with so many claims and their volumes, and nothing else.

    Attributes:
        many: claims; each has a PersistentVolume.
        hangs: whether it answers nothing.
        forbids: whether nobody may read anything.
        asked: set with the first request.
    """

    many: int = 0
    hangs: bool = False
    forbids: bool = False
    url: str = ""
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.set()
        if self.hangs:
            await asyncio.Event().wait()
        path = request.path
        if path == "/version":
            return web.json_response({"gitVersion": "v1.37.2"})
        if self.forbids:
            what = f"mallory cannot read {path}"
            body = {"kind": "Status", "reason": "Forbidden", "message": what, "code": 403}
            return web.json_response(body, status=403)
        if path in {"/api", "/apis"} or "limit" not in request.query:
            return self._object(path)
        make = {"persistentvolumes": _volume, "persistentvolumeclaims": _claim}
        made = make.get(path.rpartition("/")[2])
        first = int(request.query.get("continue", 0))
        last = min(first + PAGE, self.many) if made is not None else 0
        items = ",".join(made(number) for number in range(first, last)) if made else ""
        token = str(last) if 0 < last < self.many else ""
        meta = json.dumps({"resourceVersion": "1", "continue": token})
        text = f'{{"metadata":{meta},"items":[{items}]}}'
        return web.Response(text=text, content_type="application/json")

    def _object(self, path: str) -> web.Response:
        kind, _, name = path.rpartition("/")
        if self.many and kind.endswith("persistentvolumeclaims"):
            return web.Response(text=_claim(1), content_type="application/json")
        if self.many and kind.endswith("persistentvolumes"):
            return web.Response(text=_volume(1), content_type="application/json")
        body = {"kind": "Status", "reason": "NotFound", "details": {"name": name}, "code": 404}
        return web.json_response(body, status=404)


def _volume(number: int) -> str:
    return (
        f'{{"metadata":{{"name":"pv-{number}","uid":"v{number}"}},"spec":{{"capacity":'
        f'{{"storage":"1Gi"}},"csi":{{"driver":"{DRIVER}","volumeHandle":"vol-{number:017x}"}},'
        f'"storageClassName":"gp3","claimRef":{{"namespace":"shop","name":"claim-{number}",'
        f'"uid":"c{number}"}}}},"status":{{"phase":"Bound"}}}}'
    )


def _claim(number: int) -> str:
    return (
        f'{{"metadata":{{"namespace":"shop","name":"claim-{number}","uid":"c{number}"}},'
        f'"spec":{{"storageClassName":"gp3","volumeName":"pv-{number}","resources":{{"requests":'
        f'{{"storage":"1Gi"}}}}}},"status":{{"phase":"Bound","capacity":{{"storage":"1Gi"}}}}}}'
    )


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    found = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}"
    yield found
    await runner.cleanup()


@dataclass
class Done:
    """A command that has ended: its status, what it printed, and what it complained of."""

    code: int | None
    out: str
    err: str


@dataclass
class Program:
    """Starts commands that look at the server, and at EC2 or have no credentials for it."""

    folder: Path
    server: ApiServer

    def start(
        self, command: str, *options: str, ec2: str = "", reader_left: bool = False
    ) -> ForkServerProcess:
        path = self.folder / "kubeconfig"
        path.write_text(kubeconfig_for(self.server.url, {"token": "me"}))
        environment = {
            "KUBECONFIG": str(path),
            "HOME": str(self.folder),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": "us-east-1",
        }
        if ec2:
            environment |= {"AWS_ENDPOINT_URL": ec2, **CREDENTIALS}
        words = ("ebs", command, *COMMANDS[command], *options)
        return forked.started(words, environment, self.folder, reader_left=reader_left)

    async def end(self, process: ForkServerProcess) -> Done:
        async with asyncio.timeout(WAITS_S):
            await asyncio.to_thread(process.join)
        said = [(self.folder / name).read_text() for name in (forked.OUT, forked.ERR)]
        return Done(process.exitcode, *said)


@pytest.fixture
def program(server: ApiServer, tmp_path: Path) -> Program:
    return Program(tmp_path, server)


def test_no_command_is_forgotten():
    assert {*COMMANDS} == {*ebs.list_commands(None)}  # type: ignore[arg-type]


@pytest.mark.parametrize("command", COMMANDS)
async def test_an_empty_cluster_is_no_riddle(command: str, program: Program, strict_ec2: StrictEc2):
    done = await program.end(program.start(command, ec2=strict_ec2.endpoint))

    assert done.code == (1 if command in MISS_SOMETHING else 0), done
    assert done.out or command == "history", done
    assert len([done.out, done.err]) == 2, done
    assert "Traceback" not in done.err


async def test_a_command_that_is_printed_names_the_context_that_was_given(program: Program):
    done = await program.end(program.start("explain", "--context", "test"))

    assert "\n   kubectl --context test -n shop get pvc\n" in done.out, done


@pytest.mark.parametrize("command", READS_KUBERNETES)
async def test_a_right_that_is_missing_is_named(
    command: str, program: Program, strict_ec2: StrictEc2
):
    program.server.forbids = True
    done = await program.end(program.start(command, ec2=strict_ec2.endpoint))

    assert done.code == (0 if command == "doctor" else 1), done  # what is unknown is no failure
    assert "mallory cannot read" in done.out + done.err
    assert "Traceback" not in done.err


async def test_very_many_objects_are_read_to_their_end(program: Program):
    program.server.many = MANY
    done = await program.end(program.start("volumes", "-o", "json"))

    assert done.code == 1, done.err  # without credentials, EC2 says nothing
    assert "Traceback" not in done.err
    assert len(json.loads(done.out)) == MANY


@pytest.mark.parametrize("command", READS_KUBERNETES)
async def test_ctrl_c_ends_a_command_that_waits(command: str, program: Program):
    program.server.hangs = True
    process = program.start(command)
    async with asyncio.timeout(WAITS_S):
        await program.server.asked.wait()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    done = await program.end(process)

    assert (done.code, done.out) == (INTERRUPTED, ""), done
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_reader_that_has_left_is_no_error(
    command: str, program: Program, strict_ec2: StrictEc2
):
    program.server.many = 1
    started = program.start(command, "-o", "json", ec2=strict_ec2.endpoint, reader_left=True)
    done = await program.end(started)

    assert (done.code, done.out) == (PIPE_CLOSED, ""), done
    assert "Traceback" not in done.err


def test_a_reader_of_help_may_leave_too():
    reader, writer = os.pipe()
    os.close(reader)
    words = ["from provisioner.inspect.commands import main; main()", "--help"]
    done = subprocess.run(
        [sys.executable, "-c", *words], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)

    assert done.returncode in {1, PIPE_CLOSED}  # 1: click's own
    assert done.stderr == b""
