"""One command of the product's command line, in a process that has imported it already.

Imports are two thirds of the CPU that a command takes, and more than a hundred of them run in the
tests: their processes are forked from one that has imported them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from provisioner.cli import commands

OUT, ERR = "out", "err"
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        __name__,
        "provisioner.inspect.cost.command",
        "provisioner.inspect.df.command",
        "provisioner.inspect.doctor.command",
        "provisioner.inspect.explain.command",
        "provisioner.inspect.history.command",
        "provisioner.inspect.orphans.command",
        "provisioner.inspect.quota.command",
        "provisioner.inspect.volumes.command",
        "provisioner.moves.command",
    ]
)


def started(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    reader_left: bool = False,
) -> ForkServerProcess:
    """A command that runs, and exits as it does for a user.

    What it prints comes into two files of the folder, ``OUT`` and ``ERR``; with ``reader_left``
    its standard output is a pipe that nobody reads any more.
    """
    given = (arguments, environment, folder)
    process = _forks.Process(target=_run, args=given, kwargs={"reader_left": reader_left})
    process.start()
    return process


def _run(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, *, reader_left: bool
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, name in ((1, OUT), (2, ERR)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), descriptor)
    if reader_left:
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)
    commands(arguments, prog_name="ebs-provisioner")
