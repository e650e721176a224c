"""``kubectl ebs orphans``: volumes that no PersistentVolume names."""

import asyncio
import os
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from provisioner import options
from provisioner.inspect.command_line import Target, carry_out, reading, target_options
from provisioner.inspect.orphans import apply, orphan_plan_rules
from provisioner.inspect.orphans.look import (
    Own,
    Seen,
    account_of,
    cluster_side,
    cluster_uid_of,
    look,
    look_at_own,
)
from provisioner.inspect.orphans.orphan_plan_rules import Plan, Planned, claim_of, summary
from provisioner.inspect.terminal import screen
from provisioner.inspect.terminal.table_rules import NOTHING, table
from provisioner.model import tags
from provisioner.model.errors import Reason, StorageError
from provisioner.model.sentences import printable

_HEADINGS = ("VOLUME", "ZONE", "TYPE", "SIZE", "CREATED", "CLUSTER", "CLAIM")
_NO_ID = (
    "no cluster id is known, neither by the option of a controller nor by a volume's tag: give "
    "--cluster-id"
)
_FAILURES = (apply.KEPT, apply.FAILED, apply.UNKNOWN)


@click.command(short_help="List volumes that no PersistentVolume names.")
@click.option("--cluster-id", default="", help="Of a cluster that is gone.  [default: this one's]")
@click.option(
    "--plan", "plan_path", type=click.Path(path_type=Path), help="Write the list to this new file."
)
@click.option(
    "--apply",
    "apply_path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Delete the volumes of a plan that are still orphans.",
)
@click.option(
    "--min-age",
    type=options.Duration(),
    default="1h",
    show_default=True,
    help="Leave younger volumes alone.",
)
@click.option("--yes", is_flag=True, help="With --apply: do not ask.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@target_options
def orphans(
    *,
    cluster_id: str,
    plan_path: Path | None,
    apply_path: Path | None,
    min_age: float,
    yes: bool,
    output: str,
    target: Target,
) -> None:
    """List volumes that were made for claims and that no PersistentVolume names.

    With --cluster-id, those of a cluster that is gone; the kubeconfig is that of any other cluster,
    whose PersistentVolumes are spared. --plan writes them to a file. Look at it. --apply deletes
    what the file names and a second look confirms, and writes what became of each volume to
    FILE.outcome. Of all other commands only move changes anything.

    Exit code 0: listed, or all of the plan is gone; 1: not, or not all.
    """
    if apply_path is not None:
        if cluster_id or plan_path is not None:
            raise click.UsageError("--apply takes all from its file: leave the other options out")
        carry_out(_apply(target, _read(apply_path), apply_path, sure=yes))
    if plan_path is not None and not cluster_id:
        raise click.UsageError(
            "--plan needs --cluster-id: only what a dead cluster has left is deleted by a plan"
        )
    try:
        tags.check_cluster_id(cluster_id)
    except ValueError as error:
        raise click.BadParameter(printable(str(error)), param_hint="'--cluster-id'") from error
    if plan_path is not None:
        carry_out(_make_plan(target, cluster_id, plan_path, min_age_s=min_age))
    carry_out(_list(target, cluster_id, output, min_age_s=min_age))


async def _list(target: Target, cluster_id: str, output: str, *, min_age_s: float) -> int:
    async with reading(target) as readers:
        async with screen.progress("looking for orphans"):
            side = await cluster_side(readers)
            if cluster_id:
                own = Own([await look(readers, side, cluster_id, min_age_s=min_age_s)])
            else:
                own = await look_at_own(readers, side, min_age_s=min_age_s)
        region = readers.cloud.region
    others = _other_lines(own)
    if not own.seen:
        raise StorageError(Reason.OBJECT_NOT_FOUND, "; ".join(others) or _NO_ID)
    plans = [orphan_plan_rules.plan(each.volumes, each.around, region=region) for each in own.seen]
    screen.show(_shown(plans, output))
    screen.warn([*_kept_lines(own.seen), *others])
    return 0


async def _make_plan(target: Target, cluster_id: str, path: Path, *, min_age_s: float) -> int:
    async with reading(target) as readers:
        async with screen.progress("looking for orphans"):
            side = await cluster_side(readers)
            seen = await look(readers, side, cluster_id, min_age_s=min_age_s)
            account, uid = await asyncio.gather(account_of(readers), cluster_uid_of(readers))
        region = readers.cloud.region
    planned = orphan_plan_rules.plan(
        seen.volumes, seen.around, region=region, account=account, cluster_uid=uid
    )
    return _write(target, path, planned, seen)


def _shown(plans: list[Plan], output: str) -> list[str]:
    if output == "json":
        found = [{"cluster_id": p.cluster_id, "volumes": p.volumes} for p in plans]
        return [screen.json_text(found)]
    rows = [_cells(plan, each) for plan in plans for each in plan.volumes]
    return table(_HEADINGS, rows, width=screen.width()) if rows else ["No orphans found."]


def _cells(plan: Plan, each: Planned) -> tuple[str, ...]:
    return (
        each.volume_id,
        each.zone,
        each.volume_type,
        f"{each.size_gib}Gi",
        f"{each.created_at:%Y-%m-%d}",
        plan.cluster_id,
        claim_of(each.tags) or NOTHING,
    )


def _kept_lines(seen: Sequence[Seen]) -> list[str]:
    """How many volumes with the cluster's tag are no orphans, by the reason."""
    count: Counter[str] = Counter()
    for each in seen:
        for volume in each.volumes:
            why = orphan_plan_rules.why_kept(volume, each.around)
            if why:
                count[_kind_of(why)] += 1
    return [f"not listed: {number}, each because {why}" for why, number in sorted(count.items())]


def _other_lines(own: Own) -> list[str]:
    """Which ids on volumes here are left out."""
    return [
        f"cluster {each} is left out: its tag is on volumes here, but it seems to be another, "
        f"living one ({why}); if it is this one, give --cluster-id {shlex.quote(each)}"
        for each, why in own.others.items()
    ]


def _kind_of(why: str) -> str:
    """A reason without what differs from volume to volume."""
    if why.startswith("PersistentVolume "):
        return "a PersistentVolume of this cluster names it"
    return "it is attached" if why.startswith("it is attached") else why


def _write(target: Target, path: Path, planned: Plan, seen: Seen) -> int:
    signs = orphan_plan_rules.signs_of_life(seen.volumes, seen.around)
    if signs:
        raise StorageError(
            Reason.NOT_SUPPORTED,
            f"no plan is written: cluster {planned.cluster_id} seems to be alive: "
            f"{'; '.join(signs)}",
        )
    try:
        # A plan that somebody has looked at is never overwritten.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orphan_plan_rules.text_of(planned))
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from error
    screen.show([f"{summary(planned.volumes)} of cluster {planned.cluster_id}: see {path}"])
    screen.show([f"After you have looked at it: {_apply_command(target, path)}"])
    return 0


def _apply_command(target: Target, path: Path) -> str:
    """What applies a plan to the same cluster and Region, as the same user."""
    other = target.impersonate
    flags = [
        *(("--region", target.region), ("--as", other.user)),
        *(("--as-group", each) for each in other.groups),
        ("--as-uid", other.uid),
    ]
    given = [word for flag, value in flags if value for word in (flag, value)]
    command = shlex.join(["kubectl", "ebs", "orphans", "--apply", str(path), *given])
    return f"{command} {target.flags}".rstrip()


def _read(path: Path) -> Plan:
    try:
        return orphan_plan_rules.read_plan(path.read_bytes())
    except (OSError, ValueError) as error:
        raise click.ClickException(printable(f"{path}: {error}")) from error


async def _apply(target: Target, plan: Plan, path: Path, *, sure: bool) -> int:
    if not plan.volumes:
        screen.show(["The plan names no volume."])
        return 0
    async with reading(target) as readers:
        await apply.fresh(readers, plan)
        if not sure:
            _confirm(plan)
        outcomes = apply.outcome_path(path)
        try:
            async with screen.progress("deleting volumes"):
                count = await apply.carry_out_plan(readers, plan, outcomes)
        except asyncio.CancelledError:
            what = f"{outcomes} has what was deleted until then; run it again for the rest"
            screen.warn([f"interrupted: {what}"])
            raise
    screen.show([f"{apply.told(count)}: see {outcomes}"])
    return 1 if any(count.get(each) for each in _FAILURES) else 0


def _confirm(plan: Plan) -> None:
    """Ask somebody who has to name the cluster.

    Raises:
        StorageError: there is nobody to ask, or the answer is another one.
    """
    where = f"in account {plan.account}, {plan.region}"
    what = f"{summary(plan.volumes)} of cluster {plan.cluster_id} {where}"
    if not sys.stdin.isatty():
        raise StorageError(
            Reason.INVALID_REQUEST, f"nobody can be asked whether to delete {what}: give --yes"
        )
    click.echo(f"This permanently deletes {printable(what)}, with all their data.", err=True)
    question = "Type the cluster's id to go on"
    answer = click.prompt(question, default="", show_default=False, err=True)
    if answer.strip() != plan.cluster_id:
        raise StorageError(Reason.INVALID_REQUEST, "nothing was deleted")
