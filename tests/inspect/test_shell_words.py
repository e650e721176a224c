"""Commands that are printed for somebody to paste."""

from __future__ import annotations

import pytest

from provisioner.inspect.explain import target_rules
from provisioner.inspect.shell_words import is_name, shell, with_region
from tests.inspect.explain.views import view, volume_of


def test_what_a_shell_would_read_otherwise_is_quoted():
    assert shell("kubectl get {} {}", "drivers[*]", "a;b") == "kubectl get 'drivers[*]' 'a;b'"


@pytest.mark.parametrize("text", ["-n", "a b", "$(x)", "", "a" * 254, "A", "a-"])
def test_what_kubernetes_accepts_as_no_name_is_none(text: str):
    assert not is_name(text)
    assert is_name("a.b-c")


def test_commands_of_the_aws_cli_name_the_region():
    assert with_region("aws ec2 x", "us-east-1") == "aws ec2 x --region us-east-1"
    assert with_region("aws ec2 x --region a", "b") == "aws ec2 x --region a"
    assert with_region("kubectl get pv", "us-east-1") == "kubectl get pv"
    assert with_region("aws ec2 x", "") == "aws ec2 x"


def test_an_explanation_names_the_region_in_its_commands():
    found = view("pv", volume=volume_of(ebs=None), region="us-east-1")
    (chain,) = target_rules.explain(found).chains
    assert chain.links[0].command.endswith(" --region us-east-1")
