"""What a run will do, and whether it may: decided before anything is made."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from provisioner.conformance import prices
from provisioner.conformance.cluster import steps
from provisioner.conformance.probe import (
    Confirmed,
    Finding,
    NotRun,
    Probe,
    Refuted,
    Usage,
    VolumeUse,
)
from provisioner.conformance.rule import Rule

AT_ONCE = 4
# Before the first probe: one volume and one snapshot, to see that the sweep can find and delete.
REHEARSAL = "rehearsal"
_REHEARSAL = Usage(volumes=(VolumeUse(),), snapshots_gib=1, seconds=60)
_TIGHTEST = 0.0001


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the user lets probes use.

    Attributes:
        instance: whether there is one.
        copies: whether volumes may be copied.
        other: whether there is a second instance in the zone of the first.
    """

    instance: bool
    copies: bool
    other: bool = True

    def why_not(self, use: Usage) -> str:
        """Why a probe cannot run, "" if it can."""
        if use.needs_instance and not self.instance:
            return "it needs a running instance: name one with --instance"
        if use.needs_other and not self.other:
            return "it needs two running instances in one zone: give --instance twice"
        if use.copied_gib and not self.copies:
            return (
                "it copies volumes, for which AWS charges by the GiB a price that is not known "
                "here: allow it with --copies and a larger --budget-usd"
            )
        return ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do.

    Attributes:
        run: the rules whose probes will run, those that must be alone last.
        known: rules whose finding is known without running: none has a probe, or an earlier part
            of this run has it.
        cost_usd: at most, with what an earlier part of this run has cost.
        daily_usd: what a day costs if the sweep never comes.
        volumes: how many are made at most.
        seconds: how long it takes, about.
        region: of EC2.
        in_cluster: whether the steps in the cluster will be done.
    """

    run: tuple[Rule, ...]
    known: Mapping[str, Finding]
    cost_usd: float
    daily_usd: float
    volumes: int
    seconds: float
    region: str
    in_cluster: bool = False


def chosen(rules: Sequence[Rule], only: Collection[str]) -> tuple[Rule, ...]:
    """The rules that the user has named; all for none.

    Raises:
        ValueError: there is no rule of that name; one sentence.
    """
    names = [rule.name for rule in rules]
    for name in only:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(
                f"there is no rule {name!r}{hint}: see ebs-provisioner conformance rules"
            )
    return tuple(rule for rule in rules if not only or rule.name in only)


def plan(
    rules: Sequence[Rule],
    region: str,
    *,
    allowed: Allowed,
    findings: Mapping[str, Finding] | None = None,
    started: Mapping[str, int] | None = None,
    cluster: bool = False,
) -> Plan:
    """What is to be done; ``findings`` and ``started`` are those of the run that is resumed.

    The steps in the ``cluster`` build upon each other: all are done, unless all have a finding.
    """
    final = {name: found for name, found in (findings or {}).items() if _is_final(found)}
    known = {name: found for name, found in final.items() if name not in steps.BY_NAME}
    in_cluster = cluster and not steps.BY_NAME.keys() <= final.keys()
    to_run: list[tuple[Rule, Probe]] = []
    for rule in rules:
        if isinstance(rule.probe, str):
            known[rule.name] = NotRun(f"it has no probe: {rule.probe}")
        elif rule.name not in known and (why := allowed.why_not(rule.probe.uses)):
            known[rule.name] = NotRun(why)
        elif rule.name not in known:
            to_run.append((rule, rule.probe))
    to_run.sort(key=lambda each: each[1].alone)
    uses = [_REHEARSAL, *(probe.uses for _, probe in to_run)] if to_run else []
    uses += [steps.USES] if in_cluster else []
    beside = sum(probe.uses.seconds for _, probe in to_run if not probe.alone) / AT_ONCE
    return Plan(
        run=tuple(rule for rule, _ in to_run),
        known=known,
        cost_usd=prices.cost_usd([*_spent(rules, started or {}), *uses], region),
        daily_usd=prices.daily_usd(uses, region),
        volumes=sum(each.count for use in uses for each in use.volumes),
        seconds=beside
        + sum(probe.uses.seconds for _, probe in to_run if probe.alone)
        + (steps.USES.seconds if in_cluster else 0),
        region=region,
        in_cluster=in_cluster,
    )


def _is_final(finding: Finding) -> bool:
    return isinstance(finding, (Confirmed, Refuted))


def _spent(rules: Sequence[Rule], started: Mapping[str, int]) -> list[Usage]:
    """What probes and rehearsals have used that started in an earlier part of this run."""
    earlier = [_REHEARSAL] * started.get(REHEARSAL, 0)
    earlier += [steps.USES] * started.get(steps.ALL, 0)
    return earlier + [
        rule.probe.uses
        for rule in rules
        for _ in range(started.get(rule.name, 0))
        if not isinstance(rule.probe, str)
    ]


def refusal(planned: Plan, budget_usd: float) -> str:
    """Why a run must not start, "" if it may."""
    if planned.cost_usd <= budget_usd:
        return ""
    return (
        f"this run may cost ${planned.cost_usd:.4f}, and --budget-usd allows ${budget_usd:.4f}: "
        "nothing was made; allow more, or name fewer rules with --only"
    )


def actions(rules: Iterable[Rule]) -> list[str]:
    """The IAM actions that these probes and their sweep need, sorted."""
    needed = {"DescribeAvailabilityZones", "DescribeVolumes", "DescribeSnapshots"}
    for rule in rules:
        if isinstance(rule.probe, str):
            continue
        needed |= set(rule.probe.actions)
        if rule.probe.uses.volumes:
            needed |= {"CreateVolume", "CreateTags", "DeleteVolume"}
        if rule.probe.uses.snapshots_gib:
            needed |= {"CreateSnapshot", "CreateTags", "DeleteSnapshot"}
        if rule.probe.uses.needs_instance:
            needed |= {"AttachVolume", "DetachVolume", "DescribeInstances"}
    return sorted(needed)


def money(usd: float) -> str:
    """An amount, rounded up."""
    if usd == 0:
        return "$0.00"
    return f"${max(usd, _TIGHTEST):.4f}"


def lines(planned: Plan, budget_usd: float) -> list[str]:
    """The plan, as it is printed."""
    idle = [name for name, finding in planned.known.items() if isinstance(finding, NotRun)]
    done = len(planned.known) - len(idle)
    count = len(planned.run)
    minutes = max(1, round(planned.seconds / 60))
    parts = [f"{count} probes"] if count or not planned.in_cluster else []
    parts += ["the steps in the cluster"] if planned.in_cluster else []
    first = f"{' and '.join(parts).capitalize()} will run, for about {minutes} min."
    if done:
        first += f" {done} rules have a finding already."
    if idle:
        first += f" {len(idle)} rules cannot be probed here; the report says why."
    made = (
        f"They make up to {planned.volumes} volumes, each with a tag of this run, and delete all "
        "of them."
    )
    cost = (
        f"Cost: at most {money(planned.cost_usd)} of the allowed {money(budget_usd)}; "
        f"{money(planned.daily_usd)} a day for as long as nobody sweeps what a kill may leave."
    )
    return [first, made, cost, prices.certainty(planned.region)]
