"""``ebs-provisioner copy-files`` and ``check-volume``: what the pod of a VolumeMove runs."""

import asyncio
import logging
from pathlib import Path

import click

from provisioner.copying import check
from provisioner.copying.run import CopyError, run
from provisioner.model.copy_report import REPORT_PATH

_REPORT = click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    default=REPORT_PATH,
    show_default=True,
    help="Where the report goes, as JSON.",
)


@click.command("copy-files", short_help="Copy a volume's files, in a pod of a VolumeMove (alpha).")
@click.argument("source", metavar="FROM", type=click.Path(exists=True, file_okay=False))
@click.argument("target", metavar="TO", type=click.Path(exists=True, file_okay=False))
@_REPORT
def copy_files(source: str, target: str, report: Path) -> None:
    """Copy all files of FROM, a file system that is mounted read-only, to TO.

    It is refused if they do not fit into TO with 5 % to spare. Afterwards both are compared by
    checksum. What TO has and FROM has not is deleted.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        told = asyncio.run(run(source, target, report))
    except CopyError as error:
        report.write_text(str(error))
        raise click.ClickException(str(error)) from error
    if told.refused:
        click.echo(told.refused, err=True)


@click.command("check-volume", short_help="Look at a volume, in a pod of a VolumeMove (alpha).")
@click.argument("path", metavar="PATH", type=click.Path())
@_REPORT
def check_volume(path: str, report: Path) -> None:
    """Tell the type and the UUID of the file system at PATH, and whether its root can be listed."""
    told = asyncio.run(check.run(path, report))
    if told.refused:
        click.echo(told.refused, err=True)
