"""Objects as users name them on a command line."""

import re

import pytest

from provisioner.inspect.object_name_rules import ObjectName, claim_name, object_name


@pytest.mark.parametrize(
    ("words", "namespace", "meant"),
    [
        (("pod", "shop/web-0"), "", ObjectName("pod", "shop", "web-0")),
        (("po", "web-0"), "shop", ObjectName("pod", "shop", "web-0")),
        (("pod/web-0",), "shop", ObjectName("pod", "shop", "web-0")),
        (("pod/shop/web-0",), "", ObjectName("pod", "shop", "web-0")),
        (("PVC", "data"), "", ObjectName("pvc", "default", "data")),
        (("persistentvolumeclaims", "shop/data"), "shop", ObjectName("pvc", "shop", "data")),
        (("pv", "pvc-1"), "shop", ObjectName("pv", "", "pvc-1")),
        (
            ("no", "ip-10-0-0-1.ec2.internal"),
            "",
            ObjectName("node", "", "ip-10-0-0-1.ec2.internal"),
        ),
        (("volumesnapshot.snapshot.storage.k8s.io", "a/b"), "", ObjectName("snapshot", "a", "b")),
    ],
)
def test_an_object_is_named_as_with_kubectl(words, namespace, meant):
    assert object_name(words, namespace) == meant


@pytest.mark.parametrize(
    ("word", "given", "meant"),
    [
        ("shop/data", "", "pvc shop/data"),
        ("data", "", "pvc lab/data"),
        ("data", "shop", "pvc shop/data"),
        ("shop/data", "shop", "pvc shop/data"),
    ],
)
def test_the_namespace_of_the_context_is_for_names_without_one(word, given, meant):
    assert str(object_name(("pvc", word), given, "lab")) == meant
    assert str(claim_name((word,), given, "lab")) == meant


@pytest.mark.parametrize(
    ("words", "namespace", "says"),
    [
        ((), "", "name one object"),
        (("pod",), "", "name one object"),
        (("pod", "a", "b"), "", "name one object"),
        (("deployment", "shop/web"), "", "unknown kind 'deployment'"),
        (("pv", "shop/data"), "", "a pv has no namespace: write pv data"),
        (("pod", "shop/web-0"), "lab", "is in namespace shop, but -n says lab"),
        (("pod", "shop/"), "", "'' cannot be the name"),
        (("pod", "a/b/c"), "", "'a/b' cannot be the name"),
        (("pod", "we\x1b[2Jb"), "", r"'we\\x1b[2Jb' cannot be the name"),
        (("pod", "x" * 254), "", "cannot be the name"),
    ],
)
def test_a_name_that_means_nothing_is_refused_in_one_sentence(words, namespace, says):
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        object_name(words, namespace)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("shop/data",), "pvc shop/data"),
        (("data",), "pvc default/data"),
        (("pvc/data",), "pvc default/data"),
        (("pvc", "shop/data"), "pvc shop/data"),
        (("pod",), "pvc default/pod"),
    ],
)
def test_where_only_claims_are_meant_the_kind_may_be_left_out(words, meant):
    assert str(claim_name(words, "")) == meant


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pod", "shop/web"), "for claims, not for a pod: use NAMESPACE/NAME"),
        (("node/a",), "for claims, not for a node"),
        (("thing", "shop/data"), "name one claim, such as: shop/data"),
        (("pvc", "a", "b"), "name one claim"),
    ],
)
def test_where_only_claims_are_meant_no_other_kind_is_offered(words, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        claim_name(words, "")
