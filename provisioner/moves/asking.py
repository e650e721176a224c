"""Ask somebody before anything is changed."""

import sys

import click

from provisioner.moves.wish_rules import Given


def check(what: str, given: Given) -> None:
    """See that somebody can be asked, before anything is read.

    Raises:
        ClickException: nobody can.
    """
    if not (given.yes or given.dry_run or _can_ask()):
        raise click.ClickException(
            f"nobody can be asked whether to move {what}: give --yes, or --dry-run for the plan "
            "alone"
        )


def _can_ask() -> bool:
    return sys.stdin.isatty()


def confirm(what: str, given: Given) -> None:
    """Ask, unless --yes has answered.

    Raises:
        ClickException: the answer is no.
    """
    if not given.yes and not click.confirm(f"Move {what}?", default=False, err=True):
        raise click.ClickException("nothing was changed")
