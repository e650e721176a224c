"""What is refuted comes first, with what in the product relies on it."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from provisioner.conformance.cluster import steps
from provisioner.conformance.journal import Begun, InCluster
from provisioner.conformance.probe import Confirmed, NotRun, Refuted
from provisioner.conformance.report import Report, as_json, as_markdown
from tests.conformance.account_world import ATTACHES, MAKES, READS, WRONG

BEGUN = Begun(
    run="20261123t090000-abcdef",
    version="1.2",
    endpoint="https://ec2.us-east-1.amazonaws.com",
    region="us-east-1",
    zone="us-east-1a",
    zones=("us-east-1a",),
    instances=("i-1",),
    instance_type="m5.large",
    rules=(),
    at=datetime(2026, 11, 23, 9, 0, tzinfo=UTC),
)
MIXED = Report(
    BEGUN,
    [READS, ATTACHES, WRONG, MAKES],
    {
        READS.name: Confirmed("a | b\nc"),
        ATTACHES.name: NotRun("no right"),
        WRONG.name: Refuted("no"),
    },
    {},
)


def test_refuted_rules_come_first_and_say_what_relies_on_them():
    text = as_markdown(MIXED)

    assert text.index("## Refuted") < text.index("## Not run") < text.index("## Confirmed")
    refuted = text[text.index("## Refuted") : text.index("## Not run")]
    assert "### is-wrong" in refuted
    assert "Nothing would be lost. (`provisioner/ec2/volumes.py`)" in refuted
    assert "1 refuted, 1 confirmed, 2 not run" in text


def test_a_report_says_where_and_when_it_was():
    text = as_markdown(MIXED)

    for part in ("ec2.us-east-1.amazonaws.com", "us-east-1a", "i-1 (m5.large)", "2026-11-23 09:00"):
        assert part in text
    assert "ebs-provisioner 1.2; run 20261123t090000-abcdef" in text


def test_what_was_seen_breaks_no_table():
    assert r"| reads | EC2 keeps the rule reads | a \| b c |" in as_markdown(MIXED)


def test_the_json_has_the_same():
    document = json.loads(json.dumps(as_json(MIXED)))

    assert [row["verdict"] for row in document["rules"]] == [
        *("refuted", "not run", "not run", "confirmed"),
    ]
    assert document["rules"][0]["rests_on"]["files"] == ["provisioner/ec2/volumes.py"]
    assert document["instances"] == ["i-1"]


def test_the_exit_status_tells_refuted_from_not_run():
    fine = replace(MIXED, findings={READS.name: Confirmed("x")})

    assert MIXED.exit_status == 1
    assert fine.exit_status == 0
    assert replace(fine, left={"vol-1": "denied"}).exit_status == 2
    assert replace(fine, stopped="it was interrupted").exit_status == 2
    assert replace(fine, findings={}).exit_status == 2
    assert replace(MIXED, left={"vol-1": "denied"}).exit_status == 1


CLUSTER = InCluster("/home/me/.kube/config", "staging", "busybox", "ext4", "uid", ("n1", "n2"))
IN_CLUSTER = Report(
    msgspec.structs.replace(BEGUN, cluster=CLUSTER),
    [],
    {step.name: Confirmed("x") for step in steps.STEPS} | {steps.MOVE.name: NotRun("one node")},
    {},
    "",
    {steps.WRITE.name: 7.25},
)


def test_the_steps_stand_beside_what_the_sandbox_takes():
    text = as_markdown(IN_CLUSTER)

    assert "Context staging, nodes n1, n2; ext4." in text
    assert steps.SANDBOX in text
    sandbox_s = f"{steps.WRITE.sandbox_s:.2f}"
    assert f"| {steps.WRITE.sentence} | confirmed | 7.25 | {sandbox_s} | x |" in text
    assert f"| {steps.MOVE.sentence} | not run |  | {steps.MOVE.sandbox_s:.2f} | one node |" in text
    assert "steps in the cluster: 0 refuted, 7 confirmed, 1 not run" in text


def test_the_json_has_the_steps():
    cluster = json.loads(json.dumps(as_json(IN_CLUSTER)))["cluster"]

    assert (cluster["context"], cluster["nodes"]) == ("staging", ["n1", "n2"])
    rows = {row["name"]: row for row in cluster["steps"]}
    assert rows[steps.WRITE.name]["seconds"] == 7.25
    assert rows[steps.WRITE.name]["sandbox_seconds"] == steps.WRITE.sandbox_s
    assert rows[steps.MOVE.name]["verdict"] == "not run"
    assert as_json(MIXED)["cluster"] is None


def test_the_exit_status_counts_the_steps():
    refuted = {**IN_CLUSTER.findings, steps.MOVE.name: Refuted("other bytes")}
    none = dict.fromkeys(refuted, NotRun("x"))

    assert IN_CLUSTER.exit_status == 0
    assert replace(IN_CLUSTER, findings=refuted).exit_status == 1
    assert replace(IN_CLUSTER, findings=none).exit_status == 2


def test_every_step_was_measured_in_the_sandbox():
    assert all(step.sandbox_s > 0 for step in steps.STEPS)
