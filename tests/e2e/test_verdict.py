import pytest

from tests.e2e import expected, report, verdict
from tests.e2e.expected import Reason
from tests.e2e.results import LOST, PASSED, SKIPPED, Outcome, Spec
from tests.e2e.verdict import Ran

KNOWN = "External Storage [Driver: d] [Testpattern: Dynamic PV (ext4)] volumes should fall"


@pytest.fixture(autouse=True)
def one_known_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expected, "FAILURES", (Reason("should fall", "it is the machine's fault"),))


def name_of(what):
    return f"External Storage [Driver: d] [Testpattern: Dynamic PV (ext4)] volumes should {what}"


def ran(*tests, name="plain", selected=None, trouble=""):
    outcome = Outcome(len(tests) if selected is None else selected, {t.name: t for t in tests})
    return Ran(name, outcome, 60.0, trouble)


GOOD = Spec(name_of("store"), PASSED, 2.0)


def test_a_run_in_which_all_passed_is_good():
    found = verdict.judge([ran(GOOD, Spec(name_of("skip"), SKIPPED, 0.0, "does not support ROX"))])

    assert found.is_good
    assert [test for _, test in found.passed] == [GOOD]
    assert len(found.skipped) == 1


@pytest.mark.parametrize("state", ["failed", "panicked", "timedout", "interrupted", LOST])
def test_a_test_that_did_not_end_well_fails_the_run(state):
    bad = Spec(name_of("run"), state)
    found = verdict.judge([ran(GOOD, bad)])

    assert not found.is_good
    assert found.failed == [("plain", bad)]


def test_a_failure_counts_though_the_test_passed_with_another_class():
    bad = Spec(GOOD.name, "failed")

    assert verdict.judge([ran(GOOD), ran(bad, name="xfs")]).failed == [("xfs", bad)]


def test_a_test_that_skipped_itself_with_one_class_and_passed_with_another_has_passed():
    found = verdict.judge([ran(Spec(GOOD.name, SKIPPED)), ran(GOOD, name="immediate")])

    assert found.passed == [("immediate", GOOD)]
    assert found.skipped == []


def test_a_failure_that_is_named_with_its_reason_is_no_failure():
    found = verdict.judge([ran(GOOD, Spec(KNOWN, "failed"))])

    assert found.is_good
    assert [test.name for _, test in found.known] == [KNOWN]


def test_a_test_that_passes_although_it_is_named_is_told():
    found = verdict.judge([ran(Spec(KNOWN, PASSED))])

    assert not found.is_good
    assert "remove it there" in report.terminal(found, [], "logs")


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (ran(GOOD, selected=3), "2 tests never began"),
        (ran(GOOD, Spec(name_of("hang"), LOST)), "1 tests began and never ended"),
        (ran(GOOD, trouble="was ended: it hung"), "run plain was ended: it hung"),
        (Ran("plain", Outcome(), 1.0), "never began"),
    ],
)
def test_a_run_that_did_not_come_to_its_end_is_a_trouble(run, said):
    found = verdict.judge([run])

    assert not found.is_good
    assert any(said in each for each in found.troubles)


def test_what_the_tests_left_behind_is_a_trouble():
    found = verdict.judge([ran(GOOD)], ["EC2 volume vol-1 (available)"])

    assert not found.is_good
    assert found.troubles == ["left behind: EC2 volume vol-1 (available)"]


def test_a_volume_that_was_detached_while_in_use_is_a_trouble_even_if_kubelets_were_stopped():
    outcome = ran(GOOD).outcome

    for run in ("plain", "disruptive"):
        found = verdict.judge([Ran(run, outcome, 1.0, torn=2)])

        assert not found.is_good
        assert found.troubles == [f"run {run}: 2 volumes were detached while in use"]


def test_a_skip_without_a_reason_fails_the_run():
    """Such as that of all Disruptive tests when no node can be reached."""
    message = "No SSH Key for provider skeleton: 'open /nowhere: no such file or directory'"
    found = verdict.judge([ran(GOOD, Spec(name_of("stop"), SKIPPED, 0.0, message))])

    assert not found.is_good
    assert f"expected.py gives no reason: {message}" in report.terminal(found, [], "logs")


def test_nothing_that_passed_is_nothing_good():
    assert not verdict.judge([ran(Spec(name_of("x"), SKIPPED))]).is_good


def test_the_terminal_shows_failures_first_and_where_the_logs_are():
    bad = Spec(name_of("run"), "failed", 30.0, "pod is\nnot Running")
    lines = report.terminal(verdict.judge([ran(GOOD, bad)]), [ran(GOOD, bad)], "build/x").split(
        "\n"
    )

    assert lines[0].startswith("FAILED   volumes: should run (Dynamic PV (ext4)) [run plain, 30 s]")
    assert lines[1].strip() == "pod is not Running"
    assert lines[-1] == (
        "2 tests: 1 passed, 1 failed, 0 skipped themselves; plain 1.0 min; logs: build/x"
    )


def test_the_tables_count_by_feature_and_give_each_skip_its_reason():
    skipped = Spec(
        name_of("skip"), SKIPPED, 0.0, 'Driver "d" does not support volume type "InlineVolume"'
    )
    setting = report.Setting("today", "2 cores", "1.0", "v1.36.3", "abc", "EC2 x", "9 minutes")
    text = report.markdown(verdict.judge([ran(GOOD, skipped)]), [], setting)

    assert "| volumes | 1 | 0 | 1 | yes |" in text
    assert f"| {expected.SKIPS[0].why} | volumes 1 |" in text
    assert "2 tests: 1 passed, 0 failed, 1 skipped themselves, in 9 minutes." in text


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('Driver "d" does not support volume type "PreprovisionedPV" - skipping', "by a file"),
        ("Driver d doesn't support RWX -- skipping", "raw devices"),
        ('Driver "d" does not support ROX access mode - skipping', "attached for writing"),
        ('Driver "d" does not support SELinuxMount - skipping', "SELinux"),
        ("Block volumes do not support mount options - skipping", "file systems"),
        ("skipping multiple PV mount test for block mode", "file systems"),
        ("something new", ""),
    ],
)
def test_a_skip_is_explained_by_its_message(message, reason):
    why = expected.why_skipped(message)

    assert reason in why
    assert bool(why) is bool(reason)
