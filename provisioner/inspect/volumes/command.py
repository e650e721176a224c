"""``kubectl ebs volumes``: what EC2 has, beside what the claims request; and ``budget``."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import click

from provisioner.inspect.command_line import Target, carry_out, reading, target_options
from provisioner.inspect.terminal import screen
from provisioner.inspect.volumes.table import Row, as_json, budget_lines, lines, read_rows

_OUTPUT = click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
_EVERYWHERE = click.option(
    "--all-namespaces", "-A", is_flag=True, help="Volumes of all namespaces: so it is without -n."
)


@click.command()
@_EVERYWHERE
@_OUTPUT
@target_options
def volumes(*, all_namespaces: bool, output: str, target: Target) -> None:
    """List volumes and what their claims request.

    Volumes are shown as EC2 has them. SIZE is the current size and, after an arrow, the requested
    one. LEFT is how many modifications EC2 still accepts, and until when. With --namespace, only
    volumes of its claims are shown. The command only reads the API server and EC2; it changes
    nothing and needs no running controller.

    Exit code 0; 1 if something could not be read: the rest is shown.
    """
    _check(target, all_namespaces=all_namespaces)

    def shown(rows: Sequence[Row]) -> list[str]:
        return list(lines(rows, width=screen.width()))

    carry_out(_show(target, output, shown))


@click.command(short_help="Show how often each volume may still be modified.")
@_EVERYWHERE
@_OUTPUT
@target_options
def budget(*, all_namespaces: bool, output: str, target: Target) -> None:
    """Show how often each volume may still be modified, and when once more.

    EC2 accepts four modifications of a volume in any 24 hours. The controller notes its own on the
    PersistentVolume; of those by others, EC2 shows only the latest. So EC2 may refuse one that is
    shown as left.

    Exit code 0; 1 if something could not be read: the rest is shown.
    """
    _check(target, all_namespaces=all_namespaces)

    def shown(rows: Sequence[Row]) -> list[str]:
        return budget_lines(rows, datetime.now(UTC), width=screen.width())

    carry_out(_show(target, output, shown))


def _check(target: Target, *, all_namespaces: bool) -> None:
    if all_namespaces and target.namespace:
        raise click.UsageError("-n and --all-namespaces exclude each other")


async def _show(target: Target, output: str, shown: Callable[[Sequence[Row]], list[str]]) -> int:
    async with reading(target) as readers:
        async with screen.progress("reading the volumes"):
            rows = await read_rows(readers, driver=target.driver, namespace=target.namespace)
        told = readers.gap_lines()
    if output == "json":
        screen.show_json(as_json(rows))
    else:
        screen.show(shown(rows))
    screen.warn(told)
    return 1 if told else 0
