"""``kubectl ebs explain``: why an object does not work, the first cause first."""

import difflib

import click

from provisioner.inspect.command_line import Target, carry_out, reading, target_options
from provisioner.inspect.completion.objects import object_words
from provisioner.inspect.explain.chain_rules import Cause
from provisioner.inspect.explain.gathering.gatherer import Gatherer
from provisioner.inspect.explain.printing import chain_words
from provisioner.inspect.explain.printing.event_words import EVENTS
from provisioner.inspect.explain.target_rules import explain as explained
from provisioner.inspect.object_name_rules import object_name
from provisioner.inspect.terminal import call_words, screen
from provisioner.model.errors import Reason

_REASON = "reason"
_WRONG = 1


_REASONS: tuple[Cause | Reason | str, ...] = (*EVENTS, *Reason, *Cause)


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="KIND NAME",
    shell_complete=object_words(others={_REASON: _REASONS}),
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print it.",
)
@click.option(
    "--lease-namespace",
    default="",
    help="Namespace of the controller's leases; they are looked for if it is not given.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say how often AWS was asked, too.")
@target_options
def explain(
    *, words: tuple[str, ...], output: str, lease_namespace: str, verbose: bool, target: Target
) -> None:
    """Say why an object does not work, and what would help.

    Such as: kubectl ebs explain pod shop/web-0

    KIND is pod, pvc, pv, node or snapshot, and NAME may be NAMESPACE/NAME. The causes come first,
    each with where it can be seen; then who acts next, and what would help. `explain reason NAME`
    says what an event, a reason in its message, or a cause means. The command only reads.

    The exit code is 0 if nothing is wrong, 1 if something is or could not be read, and 2 for a
    wrong argument.
    """
    if words[0] == _REASON:
        _show_reason(words[1:], output)
        return
    carry_out(_explain(words, output, lease_namespace, target, verbose=verbose))


async def _explain(
    words: tuple[str, ...], output: str, lease_namespace: str, target: Target, *, verbose: bool
) -> int:
    name = object_name(words, target.namespace, target.default_namespace)
    async with reading(target) as readers:
        async with screen.progress(f"looking at {name}"):
            view = await Gatherer(readers, target.driver, lease_namespace).view(name)
        explanation = explained(view, target.flags)
        calls = dict(readers.cloud.sent())
        if output == "json":
            rest = {"gaps": readers.gap_lines(), "awsCalls": calls}
            screen.show_json(chain_words.as_json(explanation) | rest)
        else:
            screen.show(chain_words.lines(explanation, width=screen.text_width()))
            screen.warn(readers.gap_lines())
        if verbose:
            screen.warn([call_words.listed(calls)])
    return _WRONG if explanation.is_wrong or readers.gap_lines() else 0


def _show_reason(names: tuple[str, ...], output: str) -> None:
    try:
        if len(names) != 1:
            raise ValueError("name one reason, such as: explain reason QuotaExceeded")
        reason = _reason(names[0])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if output == "json":
        screen.show_json(chain_words.advice_json(reason))
    else:
        screen.show(chain_words.advice_lines(reason, width=screen.text_width()))


def _reason(name: str) -> Cause | Reason | str:
    by_word = {each.lower(): each for each in _REASONS}
    if name.lower() in by_word:
        return by_word[name.lower()]
    near = difflib.get_close_matches(name.lower(), by_word, n=1)
    hint = f"; did you mean {by_word[near[0]]}?" if near else ""
    raise ValueError(f"unknown reason {name[:80]!r}{hint}")
