"""What tests/cluster/test_account_writes.py takes out of the policies."""

from typing import Any

import pytest

from tests.policy_clauses import mutants, without_a_clause


def changed(expression: str) -> list[str]:
    return [" ".join(each.split()) for each in mutants(expression)]


def test_a_lone_clause_becomes_true_and_false():
    assert changed("a == b") == ["true", "false"]


@pytest.mark.parametrize(("operator", "neutral"), [("&&", "true"), ("||", "false")])
def test_each_clause_of_a_chain_is_taken_away(operator: str, neutral: str):
    assert changed(f"a {operator} b {operator} c") == [
        f"{neutral} {operator} b {operator} c",
        f"a {operator} {neutral} {operator} c",
        f"a {operator} b {operator} {neutral}",
        *("true", "false"),
    ]


def test_clauses_in_brackets_are_taken_away_too():
    found = changed("a || (b && !(c || d))")

    assert "a || ( true && !(c || d))" in found
    assert "a || (b && !(c || false ))" in found
    assert "a || false" in found


def test_the_condition_of_a_macro_is_a_clause():
    assert changed("a.all(x, x == b)") == ["a.all(x, true )", "a.all(x, false )", "true", "false"]


def test_an_item_of_a_list_is_taken_away_and_an_index_is_not():
    assert [*mutants('["a", "b"]', is_value=True)] == ['[  "b" ]', '[ "a" ]']
    assert changed("x in [1, 2]")[:2] == ["x in [ 2 ]", "x in [ 1 ]"]
    assert changed("x[?key] == y.orValue([])") == ["true", "false"]


def test_operators_in_strings_divide_nothing():
    assert changed('a == "b && (c, d"') == ["true", "false"]


@pytest.mark.parametrize(
    "expression",
    ["a && b || c", "a ? b : c", "(a", "a)", "(a]", "a == 'b'", "a.all(x, b || c && d)"],
)
def test_what_would_be_misread_is_refused(expression: str):
    with pytest.raises(ValueError, match=r"bracket|not understood"):
        list(mutants(expression))


def test_each_resource_operation_and_expression_of_a_policy_is_taken_away():
    rule = {"resources": ["nodes", "pods"], "operations": ["UPDATE"]}
    policy: dict[str, Any] = {
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "m", "expression": "a"}],
            "variables": [{"name": "v", "expression": '["b"]'}],
            "validations": [{"expression": "c"}],
        }
    }

    found = dict(without_a_clause(policy))

    assert [what.partition(" of ")[0] for what in found] == [
        *("matchConditions[0]: true", "matchConditions[0]: false"),
        "variables[0]: [ ]",
        *("validations[0]: true", "validations[0]: false"),
        *("rule 0", "rule 0", "rule 0"),
    ]
    rules = [mutant["spec"]["matchConstraints"]["resourceRules"][0] for mutant in found.values()][
        -3:
    ]
    assert rules == [
        rule | {"resources": ["pods"]},
        rule | {"resources": ["nodes"]},
        rule | {"operations": ["CONNECT"]},
    ]
    assert policy["spec"]["matchConstraints"]["resourceRules"] == [rule]
