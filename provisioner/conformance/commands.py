"""``ebs-provisioner conformance``: the command line."""

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from provisioner.conformance.probe import CannotRunError, Confirmed, Finding, NotRun, Refuted
from provisioner.conformance.rule import Rule
from provisioner.model.sentences import printable

if TYPE_CHECKING:
    from provisioner.conformance.account import Terminal
    from provisioner.conformance.cluster.steps import Step
    from provisioner.conformance.journal import InCluster
    from provisioner.conformance.report import Report

T = TypeVar("T")

_LATEST = "latest"
_CLUSTER = "cluster"
_FOLDER = Path("~/.local/state/ebs-provisioner/conformance")
_SIGNS: dict[type[Any], str] = {Confirmed: "ok      ", Refuted: "REFUTED ", NotRun: "not run "}
_COULD_NOT_RUN = 2
_MOST_INSTANCES = 2


class _CouldNotRunError(click.ClickException):
    """Reported as one line."""

    exit_code = _COULD_NOT_RUN


@click.group()
def conformance() -> None:
    """Find out whether EC2 behaves as this product assumes."""


@conformance.command("rules")
@click.option("--only", multiple=True, metavar="RULE", help="Show this rule; can be repeated.")
def rules(*, only: tuple[str, ...]) -> None:
    """List what is assumed about EC2: how certain, from which source, and what relies on it."""
    for rule in _chosen(only):
        click.echo(f"{rule.name} ({rule.certainty})")
        click.echo(f"    {rule.sentence}")
        click.echo(f"    source: {rule.source} (read {rule.read_on})")
        click.echo(f"    relies on it: {rule.rests_on.consequence}")
        if isinstance(rule.probe, str):
            click.echo(f"    no probe: {rule.probe}")


@conformance.command("aws")
@click.option("--endpoint-url", help="EC2 endpoint.  [default: that of AWS]")
@click.option("--region", help="AWS Region.  [default: AWS_REGION, or that of the profile]")
@click.option("--zone", help="Where volumes are made.  [default: the instance's, or the first]")
@click.option(
    "--instance",
    multiple=True,
    help="A running instance that volumes are attached to for seconds; give two in one zone.",
)
@click.option(
    "--budget-usd",
    type=click.FloatRange(min=0),
    default=0.05,
    show_default=True,
    help="Make nothing if the run may cost more.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="RULE",
    help='Probe this rule, or do the steps in the "cluster"; can be repeated.',
)
@click.option(
    "--copies",
    is_flag=True,
    help="Run probes of CopyVolumes too; AWS charges once for each GiB, a price not known here.",
)
@click.option(
    "--context",
    metavar="NAME",
    help="Do the worked example too, in the cluster of this context of the kubeconfig.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="With --context.  [default: KUBECONFIG, or ~/.kube/config]",
)
@click.option(
    "--image",
    default="busybox",
    show_default=True,
    help="With --context: image of its pods; it needs a shell, sha256sum, dd, df and awk.",
)
@click.option(
    "--file-system",
    type=click.Choice(["ext4", "xfs"]),
    default="ext4",
    show_default=True,
    help="With --context: of its volumes.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report to FILE and FILE.json.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=_FOLDER,
    show_default=True,
    help="Folder of the runs' journals.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be done; make nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before the run.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[RUN]",
    help="Continue an interrupted run.",
)
@click.option(
    "--sweep",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[RUN]",
    help="Delete what interrupted runs of this machine, or one RUN, have left.",
)
@click.pass_context
def aws(
    ctx: click.Context,
    *,
    endpoint_url: str | None,
    region: str | None,
    zone: str | None,
    instance: tuple[str, ...],
    budget_usd: float,
    only: tuple[str, ...],
    copies: bool,
    context: str | None,
    kubeconfig: str | None,
    image: str,
    file_system: str,
    report: Path | None,
    state: Path,
    only_plan: bool,
    yes: bool,
    resume: str | None,
    sweep: str | None,
) -> None:
    """Probe an account, or a simulator, for what this product assumes about EC2.

    With --context, this controller, webhook and node plugin, which have to run there, also have to
    provision, attach, move, grow, snapshot, restore and delete a volume.

    Everything that is made has the tag ebs-provisioner.io/conformance-run and is deleted at the
    end. The exit status is 0 if all that ran is confirmed, 1 if something is refuted, and 2 if
    the run did not take place, ended early, or could not delete something.
    """
    from provisioner.conformance import account  # noqa: PLC0415 -- boto3

    if len(instance) > _MOST_INSTANCES:
        raise click.UsageError("--instance can be given twice at most")
    cluster = _cluster(context, kubeconfig, image, file_system, only)
    order = account.Order(
        rules=_chosen(only),
        folder=state.expanduser(),
        endpoint=endpoint_url,
        region=region,
        zone=zone,
        instances=instance,
        budget_usd=budget_usd,
        copies=copies,
        cluster=cluster,
    )
    if sweep is not None:
        left = _run(account.sweep_all(order, _terminal(), _named(sweep)))
        ctx.exit(_COULD_NOT_RUN if left else 0)
    if only_plan:
        _run(account.planned(order, _terminal()))
        ctx.exit(0)
    if resume is not None:
        found = _run(account.resume(order, _terminal(yes=yes), _named(resume)))
    else:
        found = _run(account.run(order, _terminal(yes=yes)))
    ctx.exit(_COULD_NOT_RUN if found is None else _shown(found, report))


def _terminal(*, yes: bool = False) -> "Terminal":
    from provisioner.conformance.account import Terminal  # noqa: PLC0415 -- boto3

    return Terminal(say=_say, agrees=lambda: yes or _agrees(), tell=_tell)


def _cluster(
    context: str | None,
    kubeconfig: str | None,
    image: str,
    file_system: str,
    only: tuple[str, ...],
) -> "InCluster | None":
    """The cluster that the user names; never the one that happens to be current."""
    from provisioner.conformance.cluster.part import kubeconfig_of  # noqa: PLC0415 -- as above
    from provisioner.conformance.journal import InCluster  # noqa: PLC0415 -- as above

    if context is None:
        if kubeconfig is not None:
            raise click.UsageError("--kubeconfig needs --context: no cluster is used unnamed")
        if _CLUSTER in only:
            raise click.UsageError(f"--only {_CLUSTER} needs --context")
        return None
    if only and _CLUSTER not in only:
        raise click.UsageError(f"--context needs --only {_CLUSTER} beside the rules, or no --only")
    return InCluster(kubeconfig_of(kubeconfig), context, image, file_system)


def _chosen(only: tuple[str, ...]) -> tuple[Rule, ...]:
    from provisioner.conformance import plan  # noqa: PLC0415 -- only for a command that needs it
    from provisioner.conformance.table import RULES  # noqa: PLC0415 -- as above

    if only and set(only) == {_CLUSTER}:
        return ()
    try:
        return plan.chosen(RULES, [name for name in only if name != _CLUSTER])
    except ValueError as error:
        raise click.ClickException(printable(str(error))) from error


def _named(run: str) -> str:
    from provisioner.conformance.journal import is_run  # noqa: PLC0415 -- as above

    if run == _LATEST:
        return ""
    if not is_run(run):
        raise click.ClickException(f"{printable(run)!r} is not a run's id")
    return run


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command to its end; what keeps it from running is one line and the status 2."""
    from provisioner.conformance.journal import JournalError  # noqa: PLC0415 -- as above

    try:
        return asyncio.run(work)
    except (CannotRunError, JournalError) as error:
        raise _CouldNotRunError(printable(str(error))) from error
    except (asyncio.CancelledError, KeyboardInterrupt) as error:
        raise _CouldNotRunError("interrupted: --sweep deletes what is left") from error


def _agrees() -> bool:
    if not sys.stdin.isatty():
        click.echo("Nobody can be asked here: give --yes. Nothing was made.")
        return False
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio's would wait
    try:
        return click.confirm("Start?")
    finally:
        signal.signal(signal.SIGINT, before)


def _say(line: str) -> None:
    click.echo(printable(line))


def _tell(rule: "Rule | Step", finding: Finding) -> None:
    from provisioner.conformance.journal import sentence_of  # noqa: PLC0415 -- as above

    click.echo(printable(f"{_SIGNS[type(finding)]}{rule.name}: {sentence_of(finding)}"))


def _shown(found: "Report", path: Path | None) -> int:
    """Print or write a report; returns the exit status."""
    from provisioner.conformance.report import as_json, as_markdown  # noqa: PLC0415 -- as above

    text = as_markdown(found)
    if path is None:
        click.echo(text)
        return found.exit_status
    try:
        path.write_text(text)
        path.with_name(f"{path.name}.json").write_text(json.dumps(as_json(found), indent=1) + "\n")
    except OSError as failure:
        click.echo(text)
        raise click.ClickException(f"the report cannot be written: {failure}") from failure
    click.echo(f"{found.counts}: {path}, {path}.json")
    return found.exit_status
