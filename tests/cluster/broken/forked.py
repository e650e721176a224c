"""One command of the product's command line, in a process that has imported it already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from provisioner.cli import commands

OUT, ERR = "out", "err"
PRELOADED = (
    __name__,
    "provisioner.inspect.commands",
    "provisioner.inspect.doctor.command",
    "provisioner.inspect.explain.command",
)
"""What is imported once, before processes are forked."""


def run(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    """Run a command and exit as it does; what it prints is in two files of the folder."""
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, name in ((1, OUT), (2, ERR)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), descriptor)
    commands(arguments, prog_name="ebs-provisioner")
