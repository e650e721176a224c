"""What a run takes: the table for the documentation, from the plan's own estimate."""

from provisioner.conformance import plan
from provisioner.conformance.prices import REGION
from provisioner.conformance.table import RULES

_RUNS = {
    "no instance": plan.Allowed(instance=False, copies=False, other=False),
    "one instance": plan.Allowed(instance=True, copies=False, other=False),
    "two instances": plan.Allowed(instance=True, copies=False),
    "two instances, `--copies`": plan.Allowed(instance=True, copies=True),
}


def takes() -> str:
    """For each kind of run what its plan says."""
    head = "| run | probes | volumes | estimated | cost at most |\n|---|---|---|---|---|"
    return "\n".join([head, *(_row(name, allowed) for name, allowed in _RUNS.items())])


def _row(name: str, allowed: plan.Allowed) -> str:
    made = plan.plan(RULES, REGION, allowed=allowed)
    minutes, cost = round(made.seconds / 60), plan.money(made.cost_usd)
    return f"| {name} | {len(made.run)} | {made.volumes} | {minutes} min | {cost} |"
