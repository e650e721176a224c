"""Each probe against the strict EC2, and against one in which its rule is broken."""

import json
import subprocess
import sys
from typing import Any

import pytest

from provisioner.conformance.probe import Probe
from provisioner.conformance.table import RULES
from tests.conformance.mutants import MUTANTS
from tests.conformance.rule_tables import recorded

_NAMES = [rule.name for rule in RULES if isinstance(rule.probe, Probe)]


def _run(*arguments: str) -> Any:
    """In a process of its own: moto is patched for good."""
    command = [sys.executable, "-m", "tests.conformance.mutation", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


def test_each_probe_has_a_mutant():
    assert sorted(mutant.rule for mutant in MUTANTS) == sorted(_NAMES)


def test_the_strict_ec2_keeps_every_rule():
    found = _run("--base")

    assert sorted(found) == sorted(_NAMES)
    assert {name: told for name, told in found.items() if told[0] != "Confirmed"} == {}


def test_each_broken_rule_is_refuted_by_its_own_probe():
    found = _run()

    assert sorted(found) == sorted(_NAMES)
    missed = {name: told["own"] for name, told in found.items() if told["own"][0] != "Refuted"}
    assert missed == {}


def test_what_is_recorded_for_the_documentation_is_of_these_rules():
    assert sorted(recorded()) == sorted(_NAMES)


@pytest.mark.parametrize(
    "rule",
    [
        "token-again",
        "attach-excludes-other-instances",
        "attach-in-another-zone",
        "create-answers-creating",
        "modify-four-in-a-day",
        "describe-pages",
    ],
)
def test_plain_moto_breaks_what_the_product_rests_on_most(rule: str):
    assert recorded()[rule]["plain"] == "Refuted"
