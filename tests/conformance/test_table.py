"""The table of what the product assumes about EC2."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from provisioner.conformance.probe import Probe
from provisioner.conformance.rule import Certainty, Rule
from provisioner.conformance.table import RULES

ROOT = Path(__file__).parents[2]
STRICT_EC2 = ROOT / "provisioner/sandbox/strict_ec2"
# Not refusals: what a dry run answers, and mistakes of ours.
_NO_REFUSALS = {"InternalError"}
_CODE = re.compile(r"[A-Z][A-Za-z]+(\.[A-Z][A-Za-z]+)?")


def test_every_rule_has_a_name_of_its_own():
    names = [rule.name for rule in RULES]

    assert len(RULES) > 200
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_a_sentence_that_something_rests_on(rule: Rule):
    assert rule.sentence.endswith(".")
    assert rule.rests_on.consequence.endswith(".")
    assert rule.rests_on.files
    assert [path for path in rule.rests_on.files if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_code_is_documented_only_where_the_source_names_it(rule: Rule):
    unnamed = [code for code in _codes_of(rule.sentence) if code not in rule.source]

    if rule.certainty is Certainty.DOCUMENTED and "DryRun" not in rule.source:
        assert unnamed == [] or re.search(r"\bcodes?\b", rule.source), unnamed


def _codes_of(sentence: str) -> set[str]:
    """The words of a sentence that are codes of the strict EC2."""
    return _raised() & set(re.findall(r"[\w.]*\w", sentence))


def test_what_has_no_probe_says_why_and_is_the_exception():
    reasons = [rule.probe for rule in RULES if isinstance(rule.probe, str)]

    assert all(reason.endswith(".") for reason in reasons)
    assert len(reasons) < len(RULES) / 7


def test_a_probe_names_the_rights_it_needs():
    unnamed = [r.name for r in RULES if isinstance(r.probe, Probe) and not r.probe.actions]

    assert unnamed == []


def _codes_in(path: Path) -> set[str]:
    """The codes of refusals in a file: the first argument of Ec2Error, and constants for it."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(target := node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Ec2Error", "_over"):
            match node.args[0]:
                case ast.Constant(value=str(code)):
                    found.add(code)
                case ast.Name(id=name) if name in constants:
                    found.add(constants[name])
        if isinstance(node, ast.Dict):  # such as the codes of malformed ids
            texts = [each.value for each in node.values if isinstance(each, ast.Constant)]
            found |= {str(each) for each in texts if str(each).endswith(".Malformed")}
    return {code for code in found if _CODE.fullmatch(code)}


@cache
def _raised() -> set[str]:
    return {code for path in STRICT_EC2.glob("*.py") for code in _codes_in(path)}


def test_every_refusal_of_the_strict_ec2_is_a_rule():
    raised = _raised()
    sentences = " ".join(rule.sentence for rule in RULES)

    assert {"VolumeInUse", "CopyVolumesLimitExceeded", "InvalidVolumeID.Malformed"} <= raised
    assert {code for code in raised - _NO_REFUSALS if code not in sentences} == set()
