"""What is refuted comes first, with what in the product relies on it."""

import json
from dataclasses import replace
from datetime import UTC, datetime

from provisioner.conformance.journal import Begun
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
