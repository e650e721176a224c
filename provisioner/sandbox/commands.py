"""``ebs-provisioner sandbox …``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from provisioner.sandbox import binaries as programs
from provisioner.sandbox import build
from provisioner.sandbox.build_display import build_display
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installed.archive import ImageArchive, chosen, why_other
from provisioner.sandbox.programs import CHART, CONTROL_PLANE, E2E, REAL_NODE, SANITY
from provisioner.sandbox.real_node.requirements import all_missing, missing

if TYPE_CHECKING:
    from provisioner.sandbox.up import Sandbox

LATENCY = click.Choice(["real", "none"])
THROTTLE = click.Choice(["documented", "none"])
PORT = click.IntRange(0, 65535)

REAL_NODES = 2
"""Two, so that a volume can move."""

IMAGE = "image: busybox:1"
"""There is no other."""

SELECTOR = "nodeSelector ebs-provisioner.io/sandbox-node: real"
"""For where there are nodes that only pretend."""


def chosen_version(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that choose its Kubernetes, in place of the environment."""
    for option, variable, text in (
        (
            "--kubelet",
            programs.KUBELET_VARIABLE,
            "Of the real nodes' kubelet and kube-proxy, if they are to be older.",
        ),
        ("--kubernetes", programs.KUBERNETES_VARIABLE, "Like 1.35 or 1.35.4."),
    ):
        command = click.option(
            option,
            metavar="VERSION",
            expose_value=False,
            callback=_keep_in(variable),
            help=f"{text} Also in the environment: {variable}.",
        )(command)
    return command


def _keep_in(variable: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def keep(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value:  # all that looks for programs looks there, as do the processes that we start
            os.environ[variable] = value

    return keep


@click.group()
def sandbox() -> None:
    """Run a real control plane and a strict EC2 on this machine, loopback only."""


def have_binaries(*more: str) -> Path:
    """Find or build the control plane's programs and ``more``, with a progress display.

    See ``binaries.ensure_binaries``.
    """
    with build_display(Console(stderr=True)) as progress:
        return programs.ensure_binaries(progress=progress, programs=(*CONTROL_PLANE, *more))


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what the sandbox raises into a message and exit status 1."""
    try:
        yield
    except SandboxError as error:
        raise click.ClickException(str(error)) from error


@sandbox.command("binaries")
@chosen_version
@click.option("--tests", is_flag=True, help="Also those that only `make test` runs.")
@click.option("--conformance", is_flag=True, help="Also those that `make conformance` runs.")
@click.option(
    "--clean",
    is_flag=True,
    help="Instead, remove what the Go compiler keeps for the next build; the programs stay.",
)
def binaries(*, tests: bool, conformance: bool, clean: bool) -> None:
    """Find the sandbox's programs, or build them once; print their folder.

    The kubelet is among them where a real node can run: on Linux, as root.
    """
    if clean:
        _clean()
        return
    why = missing()
    if why:
        print(
            f"Real nodes are not possible here, so what needs one is skipped: {why}.",
            file=sys.stderr,
        )
    with one_line_errors():
        more: tuple[str, ...] = () if why else REAL_NODE
        more += SANITY + CHART if tests else ()
        more += E2E if conformance else ()
        print(have_binaries(*more))


def _clean() -> None:
    cache = programs.cache_folder(os.environ)
    wait = "waiting for another process that builds there"
    with one_line_errors():
        had = build.clean(cache, lambda: print(wait, file=sys.stderr))
    print(f"removed {had / 1e9:.1f} GB of the Go compiler's cache in {cache}")


@sandbox.command()
@chosen_version
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where its files are; logs/ stays there afterwards. Else a temporary folder.",
)
@click.option(
    "--nodes",
    type=click.IntRange(0, 1000),
    default=6,
    show_default=True,
    help="Nodes that only pretend to run pods.",
)
@click.option("--zones", type=click.IntRange(1, 6), default=3, show_default=True)
@click.option("--latency", type=LATENCY, default="real", show_default=True, help="EC2's.")
@click.option("--throttle", type=THROTTLE, default="documented", show_default=True, help="EC2's.")
@click.option("--port", type=PORT, default=0, help="EC2's; by default a free one.")
@click.option("--controller/--no-controller", default=True, show_default=True)
@click.option("--webhook/--no-webhook", default=True, show_default=True)
@click.option(
    "--real-node/--no-real-node",
    default=False,
    show_default=True,
    help=f"Short for --real-nodes {REAL_NODES}.",
)
@click.option(
    "--real-nodes",
    type=click.IntRange(0, 20),
    default=0,
    show_default=True,
    help="Nodes that really run pods, and mount. Linux, root.",
)
@click.option(
    "--real-zones",
    type=click.IntRange(1, 6),
    default=1,
    show_default=True,
    help="Zones that the real nodes are spread over, from the first on.",
)
@click.option(
    "--installed",
    is_flag=True,
    help="Run the product as its users install it: the image and the chart, on the real nodes.",
)
@click.option(
    "--image",
    type=click.Path(path_type=Path),
    help="Its archive. By default the newest of `make image`.",
)
def up(
    folder: Path | None,
    *,
    real_node: bool,
    real_nodes: int,
    real_zones: int,
    installed: bool,
    image: Path | None,
    **options: Any,
) -> None:
    """Run control plane, EC2, nodes, controller and webhook until Ctrl-C; leave nothing behind."""
    count = real_nodes or (REAL_NODES if real_node else 0)
    _demand_installable(count, image, installed=installed, controller=options["controller"])
    if real_zones > options["zones"]:
        raise click.BadOptionUsage(
            "real_zones", f"--real-zones {real_zones} is more than --zones {options['zones']}"
        )
    if not count and not options["nodes"]:
        raise click.BadOptionUsage("nodes", "--nodes 0 needs --real-nodes: no pod could run")
    with one_line_errors():
        if count and (why := missing()):
            raise SandboxError(why)
        archive = chosen(image) if installed else None
        if archive and (other := why_other(archive)):
            print(f"Warning: {other}", file=sys.stderr)
        more = (REAL_NODE if count else ()) + (CHART if installed else ())
        found = have_binaries(*more)
        run_until_signal(
            _up(
                folder=folder,
                binaries=found,
                real_nodes=count,
                real_zones=real_zones,
                image=archive,
                **options,
            )
        )


def _demand_installable(
    real_nodes: int, image: Path | None, *, installed: bool, controller: bool
) -> None:
    """Raise UsageError for options that contradict ``--installed``."""
    if image and not installed:
        raise click.BadOptionUsage("image", "--image is the one to install: it needs --installed")
    if installed and not real_nodes:
        raise click.BadOptionUsage(
            "installed", "--installed needs --real-node: other nodes only pretend to run pods"
        )
    if installed and not controller:
        raise click.BadOptionUsage(
            "controller", "--no-controller contradicts --installed: the chart has the controller"
        )


async def _up(**options: Any) -> None:
    from provisioner.sandbox.up import Sandbox  # noqa: PLC0415 - boto3 and moto cost a second

    async with Sandbox.start(**options) as box:
        print(f"export KUBECONFIG={box.plane.kubeconfig}")
        for name, value in box.aws_environment.items():
            print(f"export {name}={value}")
        zones = ", ".join(box.zones)
        for line in (*_about_real_nodes(box), *_about_release(box)):
            print(line)
        print(f"# {len(box.instances)} nodes in {zones}; Ctrl-C stops everything", flush=True)
        raise await box.crew.failed()


def _about_real_nodes(box: Sandbox) -> Iterator[str]:
    network = box.plane.network
    if network is None:
        return
    for node in box.real_nodes:
        yield f"# real: {node.name}, {node.instance.zone}; its files: {node.root}"
    needed = [IMAGE] if len(box.instances) == len(box.real_nodes) else [IMAGE, SELECTOR]
    yield f"# pods for these nodes need {', '.join(needed)}"
    yield f"# from these pods, EC2 is at {network.reachable(box.ec2_endpoint)}"
    yield f"# their network: {' '.join(network.command('COMMAND'))}"


def _about_release(box: Sandbox) -> Iterator[str]:
    if box.release is None:
        return
    helm = box.plane.binaries / "helm"
    yield f"# installed: release ebs-provisioner, image {box.release.image}"
    yield f"# for example: {helm} test ebs-provisioner -n ebs-provisioner --logs"


@sandbox.command()
@click.option("--port", type=PORT, default=0, help="By default a free one.")
@click.option("--latency", type=LATENCY, default="none", show_default=True)
@click.option("--throttle", default="none", show_default=True, help="documented, documentedxN, xN")
def ec2(port: int, latency: str, throttle: str) -> None:
    """Run the strict EC2 alone, in the foreground."""
    options = ["--port", str(port), "--latency", latency, "--throttle", throttle]
    command = [sys.executable, "-m", "provisioner.sandbox.strict_ec2", *options]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted


@sandbox.command()
@chosen_version
def demo() -> None:
    """Tell the story of a volume; exit status 0 only if every step was seen.

    What needs real nodes is told on Linux as root; elsewhere it says what is missing.
    """
    from provisioner.sandbox import demo as told  # noqa: PLC0415 - boto3 costs half a second

    why = all_missing()
    console = Console(width=None if sys.stdout.isatty() else 132)
    with one_line_errors():
        image = _image_at_hand()
        helm = () if isinstance(image, str) else CHART
        found = have_binaries(*(() if why else (*REAL_NODE, *helm)))
        if run_until_signal(told.tell(console, why, image, binaries=found)):
            sys.exit(128 + signal.SIGINT)


def _image_at_hand() -> ImageArchive | str:
    """Return the newest image of this machine, or why there is none of this commit."""
    try:
        image = chosen()
    except SandboxError as error:
        return str(error)
    return why_other(image) or image


def run_until_signal(work: Coroutine[Any, Any, None]) -> bool:
    """Run ``work``; at SIGINT, SIGTERM or SIGHUP end it in good order, and return True then.

    A second signal is ignored: the end takes less than two seconds, and what interrupts it leaves
    files behind.
    """

    async def body() -> bool:
        task = asyncio.ensure_future(work)
        asked = False

        def ask() -> None:
            nonlocal asked
            if not asked:
                asked = True
                task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, ask)
        try:
            await task
        except asyncio.CancelledError:
            if not asked:
                raise
        return asked

    return asyncio.run(body())
