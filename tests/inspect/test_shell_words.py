"""Commands that are printed for somebody to paste."""

from __future__ import annotations

import shlex

import pytest

from provisioner.inspect.explain import target_rules
from provisioner.inspect.shell_words import cluster_flags, is_name, shell, with_cluster, with_region
from tests.inspect.explain.test_elsewhere_rules import DELETED, moving, on_other, other_node
from tests.inspect.explain.views import view, volume_of


def test_what_a_shell_would_read_otherwise_is_quoted():
    assert shell("kubectl get {} {}", "drivers[*]", "a;b") == "kubectl get 'drivers[*]' 'a;b'"


def test_a_word_that_would_be_a_flag_leaves_no_command():
    assert shell("kubectl delete pod {}", "--all") == ""


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


FLAGS = cluster_flags("prod", None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("kubectl -n shop delete pod web-0", "kubectl --context prod -n shop delete pod web-0"),
        ("kubectl get pv", "kubectl --context prod get pv"),
        ("kubectl ebs explain pv p", "kubectl ebs explain --context prod pv p"),
        ("kubectl ebs doctor", "kubectl ebs doctor --context prod"),
        (
            "Run kubectl taint node n t- (kubectl get pods): it waits.",
            "Run kubectl --context prod taint node n t- (kubectl --context prod get pods): it waits.",
        ),
        ("the plugin kubectl ebs.", "the plugin kubectl ebs."),
        ("aws ec2 x", "aws ec2 x"),
    ],
)
def test_commands_of_kubectl_name_the_cluster_that_was_asked(text: str, wanted: str):
    assert with_cluster(text, FLAGS) == wanted
    assert with_cluster(text, cluster_flags(None, None)) == text


def test_flags_are_quoted_and_put_into_no_quoted_word():
    flags = cluster_flags("my ctx", "a b")
    assert flags == "--context 'my ctx' --kubeconfig 'a b'"
    words = shell("kubectl patch pv p -p {}", "it's kubectl delete x")
    assert shlex.split(with_cluster(words, flags))[-1] == "it's kubectl delete x"


def test_an_explanation_names_the_cluster_in_its_commands_and_its_sentences():
    found = moving(on_other(deleted_at=DELETED), node=other_node(ready="Unknown"))
    first = target_rules.explain(found, FLAGS).chains[0].links[0]
    assert "run kubectl --context prod taint node node-2 " in first.remedy

    first = target_rules.explain(moving(on_other()), FLAGS).chains[0].links[0]
    assert first.command == "kubectl --context prod -n shop delete pod old"
