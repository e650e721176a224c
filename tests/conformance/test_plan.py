"""What a run will do and cost is decided before anything is made."""

from dataclasses import replace

import pytest

from provisioner.conformance import plan, prices
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
from provisioner.conformance.table import RULES
from tests.conformance.account_world import (
    ATTACHES,
    EVERY,
    MAKES,
    ONE_VOLUME,
    READS,
    SNAPSHOT,
    WRONG,
    rule,
)

ALL = plan.Allowed(instance=True, copies=True)


def test_the_whole_table_without_copies_costs_less_than_the_default_budget():
    every = plan.plan(RULES, "us-east-1", allowed=replace(ALL, copies=False))

    assert len(every.run) > 150
    assert 0 < every.cost_usd < 0.05
    assert plan.refusal(every, 0.05) == ""


def test_another_region_is_counted_twice_and_says_so():
    here = plan.plan(EVERY, "us-east-1", allowed=ALL)
    there = plan.plan(EVERY, "sa-east-1", allowed=ALL)

    assert there.cost_usd == pytest.approx(2 * here.cost_usd)
    assert "times 2 for sa-east-1, whose own prices are not known" in plan.lines(there, 1)[-1]


def test_an_hour_of_a_large_volume_costs_its_part_of_a_month():
    use = Usage(volumes=(VolumeUse(720, "gp3"),), seconds=(3600 - 60) / 4)

    assert prices.cost_usd([use], "us-east-1") == pytest.approx(0.08)
    assert prices.daily_usd([use], "us-east-1") == pytest.approx(24 * 0.08)


def test_iops_of_io2_are_counted():
    plain, fast = (
        Usage(volumes=(VolumeUse(4, "io2"),)),
        Usage(volumes=(VolumeUse(4, "io2", iops=100),)),
    )

    assert prices.cost_usd([fast], "us-east-1") > 10 * prices.cost_usd([plain], "us-east-1")


def test_copies_run_only_where_they_are_allowed():
    copying = rule("copies", Probe(lambda _: ..., ("CopyVolumes",), Usage(copied_gib=1)))  # type: ignore[arg-type, return-value]
    without = plan.plan([copying], "us-east-1", allowed=replace(ALL, copies=False))

    assert without.run == ()
    assert isinstance(found := without.known["copies"], NotRun)
    assert "--copies" in found.why
    assert plan.plan([copying], "us-east-1", allowed=ALL).cost_usd > 0.08


def test_every_probe_that_asks_for_a_second_instance_says_so():
    """The plan counts them, so it has to know which they are."""
    asking = {
        each.name
        for each in RULES
        if isinstance(each.probe, Probe) and "other_instance" in each.probe.run.__code__.co_names
    }

    told = {e.name for e in RULES if isinstance(e.probe, Probe) and e.probe.uses.needs_other}
    assert len(asking) >= 3
    assert asking == told


def test_a_rule_without_a_probe_is_never_confirmed():
    idle = rule("idle", "it takes twelve hours")
    made = plan.plan([idle, READS], "us-east-1", allowed=ALL)

    assert [each.name for each in made.run] == ["reads"]
    assert made.known == {"idle": NotRun("it has no probe: it takes twelve hours")}


def test_what_has_a_finding_does_not_run_again_and_what_did_not_run_does():
    findings: dict[str, Finding] = {
        MAKES.name: Confirmed("x"),
        WRONG.name: Refuted("y"),
        SNAPSHOT.name: NotRun("z"),
    }
    made = plan.plan([MAKES, WRONG, SNAPSHOT, READS], "us-east-1", allowed=ALL, findings=findings)

    assert [each.name for each in made.run] == [SNAPSHOT.name, READS.name]
    assert made.known.keys() == {MAKES.name, WRONG.name}


def test_probes_that_must_be_alone_come_last():
    made = plan.plan([ATTACHES, READS, MAKES], "us-east-1", allowed=ALL)

    assert made.run[-1] is ATTACHES


def test_what_started_before_counts_again():
    once = plan.plan([MAKES], "us-east-1", allowed=ALL)
    thrice = plan.plan([MAKES], "us-east-1", allowed=ALL, started={MAKES.name: 2})

    each = prices.cost_usd([ONE_VOLUME], "us-east-1")
    assert thrice.cost_usd - once.cost_usd == pytest.approx(2 * each)


def test_a_run_above_its_budget_is_refused_with_both_amounts():
    made = plan.plan(RULES, "us-east-1", allowed=ALL)

    assert "nothing was made; allow more, or name fewer rules with --only" in plan.refusal(made, 0)


def test_a_rule_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"no rule 'read' \(did you mean reads\?\)"):
        plan.chosen(EVERY, ["read"])
    assert plan.chosen(EVERY, ["reads"]) == (READS,)
    assert plan.chosen(EVERY, []) == EVERY


def test_the_rights_of_a_plan_are_those_of_its_probes_and_its_sweep():
    assert plan.actions([READS]) == [
        "DescribeAvailabilityZones",
        "DescribeSnapshots",
        "DescribeVolumes",
    ]
    assert {"DeleteVolume", "DetachVolume", "CreateTags"} <= set(plan.actions([ATTACHES]))


def test_the_steps_in_a_cluster_are_planned_and_paid_for():
    without = plan.plan([MAKES], "us-east-1", allowed=ALL)
    both = plan.plan([MAKES], "us-east-1", allowed=ALL, cluster=True)

    assert both.cost_usd > without.cost_usd
    assert both.volumes == without.volumes + 2
    assert both.seconds == without.seconds + steps.USES.seconds
    assert "1 probes and the steps in the cluster will run" in plan.lines(both, 1)[0]
    alone = plan.plan([], "us-east-1", allowed=ALL, cluster=True)
    assert "The steps in the cluster will run, for about 5 min." in plan.lines(alone, 1)[0]


def test_steps_that_began_before_count_again():
    once = plan.plan([], "us-east-1", allowed=ALL, cluster=True)
    twice = plan.plan([], "us-east-1", allowed=ALL, cluster=True, started={steps.ALL: 1})

    assert twice.cost_usd == pytest.approx(2 * once.cost_usd)


@pytest.mark.parametrize("last", [NotRun("x"), None])
def test_all_steps_are_done_again_unless_all_have_a_finding(last: Finding | None):
    every: dict[str, Finding] = {each.name: Confirmed("y") for each in steps.STEPS}
    lacking = {**every, steps.DELETE.name: last} if last else dict(list(every.items())[:-1])

    def planned(findings: dict[str, Finding]) -> plan.Plan:
        return plan.plan([], "us-east-1", allowed=ALL, cluster=True, findings=findings)

    assert not planned(every).in_cluster
    assert planned(lacking).in_cluster


def test_each_step_has_a_name_of_its_own_and_needs_earlier_ones():
    names = [step.name for step in steps.STEPS]

    assert len({*names, *(rule.name for rule in RULES)}) == len(names) + len(RULES)
    for number, step in enumerate(steps.STEPS):
        assert set(step.needs) <= set(names[:number])
