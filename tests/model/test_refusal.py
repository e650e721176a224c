"""For whom a class is impossible: for EC2 whoever asks, or for this controller alone."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model import tag_template, tags
from provisioner.model.refusal import AtExecutionError, RefusedHereError, retold

LONG = "y" * 257


def refusal(text: str) -> ValueError | None:
    try:
        tags.parse(text)
    except ValueError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # Go's text/template has more than is read here.
        ("a={{with .PVCName}}{{.}}{{end}}", "with is not supported"),
        ("a={{range .PVCName}}{{end}}", "range is not supported"),
        ("a={{$x := .PVCName}}{{$x}}", "variables"),
        ("a={{0x10}}", "'0x10}}' cannot be read: only whole numbers"),
        ("a={{1.5}}", "cannot be read"),
        ("a={{.}}", "cannot be read"),
        ("a={{'a'}}", "is no string"),
        ("a={{eq .PVCName nil}}", "nil is not supported here"),
        ("a={{9223372036854775807}}", "too large a number"),
        ('a={{"\\xff"}}', "is no character"),
        ("a=" + "{{if true}}" * 60 + "{{end}}" * 60, "nested more than"),
        ('a={{printf "%q" .PVCName}}', "'%q' is not supported"),
        ('a={{substring 0 1 "é"}}', "cuts a character in two"),
        # Go never comes to a branch that is not taken.
        ("a={{if .PVName}}x{{else}}{{.Foo}}{{end}}", "there is no .Foo"),
        ("a={{if false}}{{len 1}}{{end}}", "is a string, not a number"),
        ('a={{or "a" (len)}}', "takes 1 arguments"),
        # Reserved for marks of this controller.
        ("ebs-provisioner.io/x=b", "reserved"),
        # EC2 documents that it takes any character.
        ("a=b\n", "cannot be sent"),
        ("a={{println .PVCName}}", "println ends with a line break"),
        ("a={{if .PVCName}}\n{{end}}", "cannot be sent"),
    ],
)
def test_what_the_stock_driver_can_do_is_refused_here_alone(text: str, says: str):
    error = refusal(text)

    assert isinstance(error, RefusedHereError)
    assert says in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a", "not of the form"),
        ("a={{ .PVCName }", "cannot be read"),
        ("a={{if true}}x", "{{end}} is missing"),
        ("a={{upper .PVCName}}", "there is no function"),
        ("a={{.Foo}}", "there is no .Foo"),
        ("a={{.PVCName.Foo}}", "a space is missing"),
        ("a={{len}}", "takes 1 arguments"),
        ("a={{js .PVCName}}", "is switched off"),
        ("a={{08}}", "octal"),
        ("kubernetes.io/cluster/x=owned", "reserved"),
        ("aws:x=1", "reserved"),
        ("k" * 129 + "=v", "too long"),
        # Of these nothing depends on a claim.
        (f"a={LONG}", "too long"),
        (f'a={{{{print "{LONG}"}}}}', "at least 257 characters"),
        (f"a={{{{if .PVCName}}}}{LONG}{{{{end}}}}", "at least 257 characters"),
        (f"a={{{{if eq 1 2}}}}{{{{else}}}}{LONG}{{{{end}}}}", "at least 257 characters"),
        ('a={{printf "%300s" "x"}}', "at least 300 characters"),
        ('a={{field "-" 3 "a-b"}}{{.PVCName}}', "has no part number 3"),
        # The branch that fails is not the way out.
        (
            f'a={{{{if eq .PVCName "b"}}}}{{{{field "-" 1 "b"}}}}{{{{else}}}}{LONG}{{{{end}}}}',
            "257",
        ),
    ],
)
def test_what_no_claim_can_have_is_impossible_whoever_asks(text: str, says: str):
    error = refusal(text)

    assert error is not None
    assert not isinstance(error, RefusedHereError)
    assert says in str(error)


@pytest.mark.parametrize(
    "text",
    [
        f'a={{{{if eq .PVCName "special"}}}}ok{{{{else}}}}{LONG}{{{{end}}}}',
        """a={{if contains "-" .PVCName}}{{field "-" 1 .PVCName}}{{end}}""",
        "a={{if .PVCName}}ok{{else}}" + LONG + "{{end}}",
        'a={{if not .PVCName}}{{field "-" 9 "x"}}{{else}}ok{{end}}',
        f'a={{{{printf "%s" .PVCName}}}}{"y" * 256}',
        'a={{and "" (field "-" 9 "x")}}{{.PVName}}',
    ],
)
def test_what_some_claim_can_have_is_not_refused(text: str):
    assert refusal(text) is None


def test_other_words_weigh_as_much():
    for kind in (ValueError, RefusedHereError, AtExecutionError):
        told = retold(kind("a"), "b")
        assert (type(told), str(told)) == (kind, "b")
    assert type(retold(UnicodeError("a"), "b")) is ValueError


CHOICES = ("{{if .PVCName}}", "{{if eq .PVCName `a`}}", "{{else}}", "{{end}}")
VALUES = ("{{.PVName}}", "{{print `x` 1}}", "{{field `-` 1 .PVCName}}", "{{field `-` 1 `a`}}")
words = st.sampled_from((*CHOICES, *VALUES, "y" * 200, "\n", "z"))


@given(st.lists(words, max_size=8).map("".join), st.sampled_from(["a", "a-b", "c" * 63]))
def test_what_one_claim_can_have_is_never_refused_for_all(value: str, name: str):
    error = refusal(f"k={value}")
    if error is None or str(error).startswith("the template"):
        return  # it may work, or cannot be read at all
    owner = tags.Owner(name, name, "pvc-1", "Delete")

    with pytest.raises(ValueError, match=re.escape("tag 'k'")):
        tags.rendered([tag_template.parse(f"k={value}")], owner)
