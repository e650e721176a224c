"""What a run takes, and what is done in a cluster: tables for the documentation."""

from provisioner.conformance import plan
from provisioner.conformance.cluster.steps import SANDBOX, STEPS
from provisioner.conformance.prices import REGION
from provisioner.conformance.rule import Rule
from provisioner.conformance.table import RULES

_RUNS = {
    "no instance": plan.Allowed(instance=False, copies=False, other=False),
    "one instance": plan.Allowed(instance=True, copies=False, other=False),
    "two instances": plan.Allowed(instance=True, copies=False),
    "two instances, `--copies`": plan.Allowed(instance=True, copies=True),
}


def takes() -> str:
    """For each kind of run what its plan says."""
    rows = [_row(name, RULES, allowed) for name, allowed in _RUNS.items()]
    alone = _row("only the cluster", (), _RUNS["no instance"], cluster=True)
    head = "| run | probes | volumes | estimated | cost at most |\n|---|---|---|---|---|"
    return "\n".join([head, *rows, alone])


def _row(
    name: str, rules: tuple[Rule, ...], allowed: plan.Allowed, *, cluster: bool = False
) -> str:
    made = plan.plan(rules, REGION, allowed=allowed, cluster=cluster)
    minutes, cost = round(made.seconds / 60), plan.money(made.cost_usd)
    return f"| {name} | {len(made.run)} | {made.volumes} | {minutes} min | {cost} |"


def steps() -> str:
    """The steps, and how long the sandbox takes."""
    rows = [f"| {each.name} | {each.sentence} | {each.sandbox_s:.2f} s |" for each in STEPS]
    head = f"| step | what has to be so | sandbox ({SANDBOX}) |\n|---|---|---|"
    return "\n".join([head, *rows])
