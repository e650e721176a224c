"""The report: nothing in it can steer a terminal or break a document."""

import json
from xml.etree import ElementTree as ET

from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.inspect.doctor.report_words import (
    as_json,
    as_junit,
    block,
    ordered,
    split,
    summary,
)
from provisioner.inspect.terminal.call_words import listed

ODD = 'a \x1b[31m"<&> b'
CHECKS = [
    Check("one", Verdict.OK, "one works", "fine"),
    Check("two", Verdict.FAILED, "two works", ODD, "mend two, with many words " * 9),
    Check("three", Verdict.WARNING, "three works", "old", "renew it"),
    Check("four", Verdict.UNKNOWN, "four works", "not read"),
    Check("five", Verdict.SKIPPED, "five works", "nothing there"),
]


def test_the_worst_comes_first():
    assert [each.id for each in ordered(CHECKS)] == ["two", "three", "four", "five", "one"]


def test_a_block_has_proof_and_remedy_in_the_width_and_escapes_what_a_terminal_obeys():
    lines = list(block(CHECKS[1], width=60, verdict="failed"))

    assert lines[0] == "failed   two: two works"
    assert "\x1b" not in "".join(lines)
    assert max(map(len, lines)) <= 60
    assert lines[2].startswith("         -> mend two")


def test_what_is_well_takes_one_line():
    assert list(block(CHECKS[0], width=60, verdict="ok")) == ["ok       one: one works"]


def test_the_summary_counts():
    verdicts = "5 checks: 1 failed, 1 warning, 1 unknown, 1 skipped, 1 ok"
    assert summary(CHECKS, {}) == f"{verdicts}; no calls to AWS"
    assert summary(CHECKS, {"DescribeVolumes": 1}) == f"{verdicts}; 1 call to AWS"
    calls = {"DescribeVolumes": 3, "DescribeInstances": 1}
    assert summary(CHECKS, calls) == f"{verdicts}; 4 calls to AWS"
    assert listed(calls) == "4 calls to AWS: DescribeInstances 1, DescribeVolumes 3"


def test_json_has_every_check():
    document = json.loads(as_json(CHECKS, {"DescribeVolumes": 2}, "arn:me"))

    assert [each["id"] for each in document["checks"]] == ["one", "two", "three", "four", "five"]
    assert document["checks"][1]["proof"] == ODD
    assert document["summary"]["failed"] == 1
    assert document["awsCalls"] == {"DescribeVolumes": 2}


def test_junit_can_be_parsed_and_counts():
    suite = ET.fromstring(as_junit(CHECKS))  # noqa: S314 -- our own

    assert {k: suite.get(k) for k in ("tests", "failures", "skipped", "errors")} == {
        "tests": "5",
        "failures": "1",
        "skipped": "2",
        "errors": "0",
    }
    assert len(suite.findall("testcase")) == 5


def test_no_check_is_a_report_too():
    assert summary([], {}).startswith("0 checks: 0 failed, 0 warning, 0 unknown, 0 skipped, 0 ok")
    assert ET.fromstring(as_junit([])).get("tests") == "0"  # noqa: S314 -- our own


def test_what_an_api_server_away_keeps_back_is_one_line():
    away = Check("api-server", Verdict.FAILED, "it answers", "refused")
    cut_off = [Check(id_, Verdict.UNKNOWN, "t", "refused", is_cut_off=True) for id_ in "ab"]
    other = Check("aws", Verdict.UNKNOWN, "t", "no credentials")

    shown, lines = split([away, *cut_off, other])

    assert shown == [away, other]
    assert lines == [
        "unknown  2 checks need the API server and were not run (-o json lists all ids)"
    ]
    assert split([cut_off[0], other]) == ([cut_off[0], other], [])
