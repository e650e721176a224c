import json

from tests.e2e.results import LOST, PASSED, SKIPPED, Spec, parse

NAME = (
    "External Storage [Driver: ebs.csi.aws.com] [Testpattern: Dynamic PV (block volmode)] "
    "volume-modify [FeatureGate:VolumeAttributesClass] should create a volume with VAC"
)


def line(event, **fields):
    return json.dumps({"event": event, **fields})


def test_a_test_counts_by_how_it_ended():
    outcome = parse(
        [
            line("selected", count=2),
            line("began", name="a", process=1),
            line("began", name="b", process=2),
            line("ended", name="b", state="skipped", message="no"),
            line("ended", name="a", state="passed", seconds=1.5),
        ]
    )

    assert outcome.selected == 2
    assert outcome.tests == {"a": Spec("a", PASSED, 1.5), "b": Spec("b", SKIPPED, 0.0, "no")}
    assert outcome.missing == 0


def test_a_test_that_began_and_never_ended_is_lost():
    outcome = parse([line("selected", count=3), line("began", name="a")])

    assert outcome.tests["a"].state == LOST
    assert outcome.missing == 2


def test_a_line_that_a_killed_process_has_half_written_is_left_out():
    whole = line("ended", name="a", state="passed")

    assert parse([whole, whole[:20]]).tests == {"a": Spec("a", PASSED)}


def test_without_a_line_nothing_was_selected():
    assert parse([""]).selected is None


def test_a_name_tells_its_feature_its_pattern_and_a_title_without_tags():
    test = Spec(NAME, PASSED)

    assert test.feature == "volume-modify"
    assert test.pattern == "Dynamic PV (block volmode)"
    assert test.title == (
        "volume-modify: should create a volume with VAC (Dynamic PV (block volmode))"
    )


def test_a_pattern_may_have_no_kind_of_volume():
    name = "External Storage [Driver: d] [Testpattern:  (delete policy)] volumegroupsnapshottable x"

    assert Spec(name, PASSED).pattern == "(delete policy)"
    assert Spec(name, PASSED).feature == "volumegroupsnapshottable"


def test_tags_may_stand_before_the_feature():
    name = "External Storage [Driver: d] [Testpattern: Dynamic PV (xfs)] [Slow] volumes should run"

    assert Spec(name, PASSED).title == "volumes: should run (Dynamic PV (xfs))"


def test_a_name_of_another_form_stays_as_it_is():
    assert Spec("[BeforeSuite]", "failed").title == "[BeforeSuite]"
