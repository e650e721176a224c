"""Whose volumes a command line is about."""

from __future__ import annotations

import pytest

from provisioner.moves.subject_rules import Subject, is_set, subject


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("shop/data",), Subject("shop", ("data",))),
        (("pvc", "data"), Subject("lab", ("data",))),
        (("pvc/data",), Subject("lab", ("data",))),
        (("pvc/shop/data",), Subject("shop", ("data",))),
        (("pvc/data", "pvc/logs"), Subject("lab", ("data", "logs"))),
        (("pvc/shop/data", "persistentvolumeclaim/shop/logs"), Subject("shop", ("data", "logs"))),
        (("sts/web",), Subject("lab", set_name="web")),
        (("StatefulSet", "web"), Subject("lab", set_name="web")),
        (("statefulsets.apps/shop/web",), Subject("shop", set_name="web")),
    ],
)
def test_claims_and_sets_are_named_as_kubectl_names_them(words: tuple[str, ...], meant: Subject):
    assert subject(words, "", "lab") == meant


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pod/web-0",), "no pod is moved"),
        (("sts",), "name one StatefulSet"),
        (("sts/web", "sts/db"), "name one StatefulSet"),
        (("pvc/a", "sts/b"), "unknown kind 'pvc/a'"),
        (("pvc/a", "pvc/a"), "claim a is named twice"),
        (("pvc/shop/a", "pvc/lab/a"), "of one namespace"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(words: tuple[str, ...], says: str):
    with pytest.raises(ValueError, match=says):
        subject(words, "", "lab")


def test_a_move_in_a_namespace_is_not_taken_for_a_set():
    assert is_set("sts/web")
    assert not is_set("shop/web")
    assert not is_set("sts")
