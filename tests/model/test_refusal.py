"""For whom a class is impossible: for EC2 whoever asks, or for this controller alone."""

import pytest

from provisioner.model import tags
from provisioner.model.errors import RefusedHereError, retold


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
        ("a={{$x := .PVCName}}{{$x}}", "cannot be read"),
        ("a={{0x10}}", "'0x10' cannot be read"),
        ("a={{.}}", "cannot be read"),
        ("a={{eq .PVCName nil}}", "nil is not supported"),
        ('a={{printf "%q" .PVCName}}', "printf is not supported"),
        ('a={{index "-" .PVCName}}', "index is not supported"),
        # Go never comes to a branch that is not taken.
        ("a={{if .PVName}}x{{else}}{{.Foo}}{{end}}", "there is no .Foo"),
        ("a={{if false}}{{toUpper}}{{end}}", "takes 1 arguments"),
        # Reserved for marks of this controller.
        ("ebs-provisioner.io/x=b", "reserved"),
        # EC2 documents that it takes any character.
        ("a=b\n", "cannot be sent"),
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
        ("a={{ .PVCName }", "}} is missing"),
        ("a={{upper .PVCName}}", "there is no function"),
        ("a={{.Foo}}", "there is no .Foo"),
        ("a={{toUpper}}", "takes 1 arguments"),
        ("a={{js .PVCName}}", "there is no function"),
        ("kubernetes.io/cluster/x=owned", "reserved"),
        ("aws:x=1", "reserved"),
        ("k" * 129 + "=v", "too long"),
        (f"a={'y' * 257}", "too long"),
    ],
)
def test_what_no_claim_can_have_is_impossible_whoever_asks(text: str, says: str):
    error = refusal(text)

    assert error is not None
    assert not isinstance(error, RefusedHereError)
    assert says in str(error)


def test_other_words_weigh_as_much():
    for kind in (ValueError, RefusedHereError):
        told = retold(kind("a"), "b")
        assert (type(told), str(told)) == (kind, "b")
    assert type(retold(UnicodeError("a"), "b")) is ValueError
