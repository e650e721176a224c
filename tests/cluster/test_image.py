"""The controller and the webhook of the image, run by containerd, serve a real API server."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from provisioner.sandbox import control_plane
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.replicas import Replica, WebhookReplica, installed
from tests.image import checkout
from tests.image import engine as engines
from tests.image.engine import Engine

STARTS_WITHIN_S = 20


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engines.require()
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    archive.write_bytes(checkout.build().archive.data)
    with Engine.of(archive) as running:
        yield running


class _InContainer(Replica):
    """The same in a container of the image, as its user, with the machine's network."""

    engine: Engine
    program: str

    def begin(self) -> None:
        self._life_began = len(self.log)
        self.address = f"127.0.0.1:{control_plane.free_port()}"
        _, *words = self._program()
        kubeconfig = words[words.index("--kubeconfig") + 1]
        # The sandbox's own is root's alone, and names files of the machine.
        content = yaml.safe_load(Path(kubeconfig).read_text())
        [cluster] = content["clusters"]
        authority = cluster["cluster"]["certificate-authority"]
        cluster["cluster"]["certificate-authority"] = "/ca.crt"
        copy = self.engine.folder / f"{self.name}.kubeconfig"
        copy.write_text(yaml.safe_dump(content))
        copy.chmod(0o644)
        known = self.engine.folder / f"{self.name}.crt"
        known.write_bytes(Path(authority).read_bytes())
        known.chmod(0o644)
        self.engine.folder.chmod(0o755)
        words[words.index("--kubeconfig") + 1] = "/kubeconfig"
        environment = {**self._sandbox.aws_environment, **self._environment}
        options = [
            *("--net-host", "--mount", f"type=bind,src={copy},dst=/kubeconfig,options=rbind:ro"),
            *("--mount", f"type=bind,src={known},dst=/ca.crt,options=rbind:ro"),
            *(f"--env={key}={value}" for key, value in environment.items()),
        ]
        command = (self.program, *words, "--metrics-address", self.address, *self._options)
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                self.engine.argv(self.name, *command, options=options),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    async def kill(self) -> None:
        self.engine.end(self.name)
        await super().kill()


class _Controller(_InContainer):
    program = "ebs-provisioner"


class _Webhook(_InContainer, WebhookReplica):
    program = "ebs-webhook"


@pytest.fixture
def name() -> str:
    return f"image-{uuid.uuid4().hex[:8]}"


def _in(engine: Engine, kind: Callable[[], _InContainer]) -> _InContainer:
    made = kind()
    made.engine = engine
    return made


async def test_its_controller_becomes_ready(background: Background, engine: Engine, name: str):
    sandbox: Sandbox = await installed(background)
    began = time.monotonic()
    async with _in(engine, lambda: _Controller(sandbox, name=name)):
        assert time.monotonic() - began < STARTS_WITHIN_S


async def test_its_webhook_becomes_ready_and_signals_end_it(
    background: Background, engine: Engine, name: str
):
    sandbox: Sandbox = await installed(background)
    began = time.monotonic()
    async with _in(engine, lambda: _Webhook(sandbox, name=name)) as webhook:
        assert time.monotonic() - began < STARTS_WITHIN_S
        assert await webhook.terminate() == 0
