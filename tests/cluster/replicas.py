"""Processes of ours that a test may kill, stop, and read: none of them is part of the sandbox."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self

import aiohttp

from provisioner.sandbox import control_plane, installation, processes
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background

START_S = 120.0
"""One takes 1.5 s of CPU; seven may start at the same time on a machine that others use too."""

_END_S = 15.0
_LEAST_PAUSE_S = 0.1
NO_REGION = {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}


async def eventually(
    what: str, look: Callable[[], Any], within_s: float = 30.0, *, every_s: float = 0.0
) -> Any:
    """Look until the answer (of a function or a coroutine function) is true; return it.

    Args:
        what: is waited for.
        look: for it.
        within_s: else it fails.
        every_s: how often to look; 0 for ever more rarely.

    Raises:
        AssertionError: it did not come about in time; names what, and the last answer.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        answer = look()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer
        waited_s = loop.time() - began_s
        assert waited_s < within_s, f"not seen in {within_s:g} s: {what} (last: {answer!r})"
        await asyncio.sleep(every_s or control_plane.pause_s(waited_s, _LEAST_PAUSE_S))


async def installed(background: Background) -> Sandbox:
    """The session's sandbox with all manifests applied, and tokens of their ServiceAccounts."""
    sandbox = background.sandbox
    sandbox.crew.check()
    if sandbox.controller_kubeconfig is None:
        await background.call(sandbox.install_controller())
    if sandbox.webhook_kubeconfig is None:
        await background.call(sandbox.install_webhook())
    return sandbox


class Replica:
    """One controller as the manifests' ServiceAccount; ``async with`` runs and ends it.

    Not in the sandbox's crew, for which a part that ends by itself is the end of everything.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *options: str,
        name: str = "replica",
        environment: Mapping[str, str] | None = None,
        module: str = "provisioner.cli",
    ) -> None:
        self._sandbox = sandbox
        self._module = module
        self._options = options
        self._environment = environment or {}  # beyond what says where AWS is
        self.name = name
        self.log_file = sandbox.crew.logs / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self._life_began = 0

    async def __aenter__(self) -> Self:
        self.begin()
        try:
            await self.ready()
        except BaseException as error:
            await self.__aexit__(error)
            raise
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.kill()
        if kind is not None:
            print(f"--- {self.name}\n{self.log[-6000:]}")  # noqa: T201 -- pytest shows it

    def begin(self) -> None:
        """Start the process and return at once; a log of an earlier life is kept."""
        self._life_began = len(self.log)
        self.address = f"127.0.0.1:{control_plane.free_port()}"
        argv = [
            *(sys.executable, "-m", *self._program()),
            *("--metrics-address", self.address),
            *self._options,
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                processes.dying_with_us(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment, **self._sandbox.aws_environment, **self._environment},
            )

    def _program(self) -> tuple[str, ...]:
        """The module to run, and the arguments that it cannot do without."""
        assert self._sandbox.controller_kubeconfig is not None
        return (
            *(self._module, "controller"),
            *("--kubeconfig", str(self._sandbox.controller_kubeconfig)),
        )

    async def ready(self) -> None:
        """Wait until /readyz agrees, which a standby's does too."""
        await eventually(f"{self.name} is ready", self.is_ready, START_S)

    async def is_ready(self) -> bool:
        """What /readyz says now."""
        assert self.code is None, f"{self.name} ended with {self.code}:\n{self.log[-2000:]}"
        try:
            status, _ = await self._ask("/readyz")
        except (aiohttp.ClientError, TimeoutError):
            return False
        return status == 200

    async def why_not_ready(self) -> str:
        """What /readyz complains of, "" while nobody answers or it agrees."""
        assert self.code is None, f"{self.name} ended with {self.code}:\n{self.log[-2000:]}"
        try:
            status, text = await self._ask("/readyz")
        except (aiohttp.ClientError, TimeoutError):
            return ""
        return "" if status == 200 else text

    async def _ask(self, path: str) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=2)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{self.address}{path}") as reply,
        ):
            return reply.status, await reply.text()

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll() if self._process is not None else None

    @property
    def log(self) -> str:
        """What it has printed, in all of its lives."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def log_of_this_life(self) -> str:
        """What it has printed since it was started last."""
        return self.log[self._life_began :]

    async def leads(self) -> bool:
        """Whether it has taken over in this life, by its own log."""
        assert self.code is None, f"{self.name} ended with {self.code}:\n{self.log[-2000:]}"
        return " leading " in self.log_of_this_life

    async def metric(self, series: str) -> float:
        """The value of one series with its labels, 0 while it does not exist."""
        _, text = await self._ask("/metrics")
        for line in text.splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def send(self, signum: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(signum)

    async def ended(self, within_s: float = _END_S) -> int:
        """Wait for its end; return its exit code."""
        await eventually(f"{self.name} ends", lambda: self.code is not None, within_s)
        assert self.code is not None
        return self.code

    async def terminate(self) -> int:
        """SIGTERM; return its exit code."""
        self.send(signal.SIGTERM)
        return await self.ended(40)

    async def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


class WebhookReplica(Replica):
    """The same of the webhook; unless told not to, API servers are told of its one address.

    Nobody tells it the Region: the sandbox's Nodes do. With ``holds_pods`` as with
    ``manifests/webhook-volume-moves``, whose rights somebody else applies.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *options: str,
        registers: bool = True,
        holds_pods: bool = False,
        name: str = "webhook",
        address: str = "",
    ) -> None:
        more = ("--volume-moves",) if holds_pods else ()
        super().__init__(sandbox, *options, *more, name=name, environment=NO_REGION)
        self._holds_pods = holds_pods
        address = address or f"127.0.0.1:{control_plane.free_port()}"
        self._registers = address if registers else ""

    async def __aenter__(self) -> Self:
        await self.register()
        return await super().__aenter__()

    async def register(self) -> None:
        """Have API servers ask this replica, unless it is one that is not to be told of."""
        if self._registers:
            url = f"https://{self._registers}"
            plane, holds_pods = self._sandbox.plane, self._holds_pods
            await installation.register_webhook(plane, url, holds_pods=holds_pods)

    def _program(self) -> tuple[str, ...]:
        assert self._sandbox.webhook_kubeconfig is not None
        return (
            *("webhook.cli", "serve"),
            *("--kubeconfig", str(self._sandbox.webhook_kubeconfig)),
            *("--namespace", installation.WEBHOOK_NAMESPACE),
            *(("--listen", self._registers) if self._registers else ()),
            *("--tls-name", "127.0.0.1"),
        )
