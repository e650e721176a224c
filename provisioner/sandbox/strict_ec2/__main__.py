"""``python -m provisioner.sandbox.strict_ec2 --port P``: one strict EC2 on the loopback."""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from aiohttp import web

from provisioner.sandbox.strict_ec2 import control, patches, shortcuts, throttle
from provisioner.sandbox.strict_ec2.front import Front
from provisioner.sandbox.strict_ec2.moto_door import MotoDoor
from provisioner.sandbox.strict_ec2.world import Settings, World

_PR_SET_PDEATHSIG: Final = 1
_BACKLOG: Final = 4096
_KEEP_ALIVE_S: Final = 300
_NAME: Final = "ebs-provisioner sandbox ec2"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Around = Callable[[World, Front], Handler]


class _Parser(argparse.ArgumentParser):
    """Tells a mistake in one line, as the rest of the command line does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _arguments() -> argparse.Namespace:
    parser = _Parser(prog=_NAME, description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", choices=("real", "none"), default="none")
    parser.add_argument("--throttle", default="none", help="documented, documentedxN, xN, none")
    parser.add_argument("--seed", type=int, default=None, help="for latency and order")
    parser.add_argument("--die-with-parent", action="store_true")
    parser.add_argument("--exit-on-eof", action="store_true", help="end when stdin is closed")
    arguments = parser.parse_args()
    try:
        throttle.parse(arguments.throttle)
    except ValueError:
        parser.error(
            f"--throttle: {arguments.throttle!r} is not documented, documentedxN, xN, none"
        )
    return arguments


def _die_with_parent() -> None:
    """End when the thread that started us ends (Linux); no orphan survives a killed sandbox."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)


def _make_settings(arguments: argparse.Namespace) -> Settings:
    settings = Settings(throttle=throttle.parse(arguments.throttle))
    control.set_latency(settings, arguments.latency)
    return settings


async def _serve(arguments: argparse.Namespace, around: Around) -> None:
    world = World(lambda: _make_settings(arguments), arguments.seed)
    patches.apply(world)
    shortcuts.apply()
    handler = around(world, Front(world, MotoDoor()))
    server = web.Server(handler, keepalive_timeout=_KEEP_ALIVE_S, access_log=None)
    runner = web.ServerRunner(server)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", arguments.port, backlog=_BACKLOG).start()
    except OSError as problem:
        why = os.strerror(problem.errno or 0)  # asyncio repeats the address and the number
        sys.exit(f"{_NAME}: port {arguments.port} of 127.0.0.1 cannot be used: {why}")
    # What was loaded stays; a collection over moto's tables takes 0.1 s of everybody's time.
    gc.freeze()
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    if arguments.exit_on_eof:
        loop.add_reader(0, lambda: over.set() if not os.read(0, 1024) else None)
    host, port = runner.addresses[0][:2]
    print(f"ready http://{host}:{port}", flush=True)
    await over.wait()


def main(around: Around = lambda _, front: front) -> None:
    """Run until SIGTERM, Ctrl-C, or the end of the parent.

    Args:
        around: what answers in the front's place, for a bench that has a door of its own.
    """
    arguments = _arguments()
    if arguments.die_with_parent:
        _die_with_parent()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(arguments, around))
    # Nothing is left to save, and hanging calls need no good-bye.
    os._exit(0)


if __name__ == "__main__":
    main()
