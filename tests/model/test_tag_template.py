"""Templates as aws-ebs-csi-driver and Go's text/template work them out, and what is refused."""

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.model.tag_template import _FUNCTIONS, Names, parse

NAMES = Names("ns-prod-abcdef", "data-web-0", "pvc-0c5a")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        # aws-ebs-csi-driver v1.64 docs/tagging.md and pkg/util/template/template_test.go
        ("value1", "value1"),
        ("", ""),
        ("a=b", "a=b"),
        ("{{ .PVCName }}/{{.PVCNamespace}}/{{ .PVName }}", "data-web-0/ns-prod-abcdef/pvc-0c5a"),
        ('{{ .PVCNamespace | contains "prod" }}', "true"),
        ('{{ .PVCNamespace | field "-" 2 | toUpper }}', "ABCDEF"),
        ("{{ .PVCNamespace | substring 0 4 }}", "ns-p"),
        ("{{ .PVCName | toUpper | toLower }}", "data-web-0"),
        ('{{ field "" 1 .PVCName }}', "a"),
        ("{{ substring -1 3 .PVCName }}", "dat"),
        ("{{ substring 5 -1 .PVCName }}", "web-0"),
        ("{{ substring 5 99 .PVCName }}", "web-0"),
        # Go's own
        ("{{- 7 -}}  x", "7x"),
        ("a \n {{- .PVName}}", "apvc-0c5a"),
        ("{{- -7 }} {{ 0 }}", "-7 0"),
        ('{{ "a b" }}{{ `\n"` }}{{ true }}', 'a b\n"true'),
        ("{{if contains `prod` .PVCNamespace}}P{{else}}N{{end}}", "P"),
        ('{{if eq .PVCName "x" "data-web-0"}}yes{{end}}', "yes"),
        ('{{if .PVCName | eq "x"}}yes{{end}}', ""),
        ('{{if ""}}1{{else if 0}}2{{else if false}}3{{else}}4{{end}}', "4"),
        ('{{if 1}}{{if ""}}a{{else}}b{{end}}c{{end}}', "bc"),
        ("{{ (toUpper .PVName) | field `-` 1 }}", "0C5A"),
        ("{{ toUpper (substring 0 2 (toLower .PVName)) }}", "PV"),
    ],
)
def test_works_templates_out_as_go_does(value: str, result: str):
    template = parse(f"team={value}")

    assert (template.key, template.text) == ("team", value)
    assert template.render(NAMES) == result


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("team", "'team' is not of the form key=value"),
        ("=x", "is not of the form key=value"),
        ("k={{ .PVCName }", "of tag 'k': an action is not closed: }} is missing"),
        ("k={{", "an action is not closed: }} is missing"),
        ('k={{ "a }}', "'\"a' cannot be read"),
        ('k={{ "\\t" }}', "cannot be read: use names, strings without \\"),
        ("k={{ 'a' }}", "cannot be read"),
        ("k={{ .Name }}", "there is no .Name; there are .PVCNamespace, .PVCName, .PVName"),
        ("k={{ .PVCName.Foo }}", "a value takes no arguments"),
        ("k={{ upper .PVCName }}", "there is no function 'upper'; there are field, substring"),
        # aws-ebs-csi-driver has switched off these of Go's itself.
        ("k={{ .PVCName | html }}", "there is no function 'html'"),
        ("k={{ js .PVCName }}", "there is no function 'js'"),
        ("k={{ call .PVCName }}", "there is no function 'call'"),
        ("k={{ urlquery .PVCName }}", "there is no function 'urlquery'"),
        ("k={{ $x := 1 }}", "'$x := 1' cannot be read"),
        ("k={{/* a word */}}", "cannot be read"),
        *(
            (
                f"k={{{{ {each} .PVCName }}}}",
                f"{each} is not supported in a tag; use if and field, ",
            )
            for each in ("range", "with", "and", "or", "not", "ne", "len", "slice", "printf")
        ),
        ("k={{ eq .PVCName nil }}", "nil is not supported"),
        ("k={{ toUpper toLower }}", "toLower needs brackets"),
        ("k={{ eq 1 if }}", "there is no function 'if'"),
        ("k={{}}", "nothing stands between"),
        ("k={{ .PVCName | }}", "nothing stands between"),
        ("k={{ () }}", "nothing stands between"),
        ('k={{ "a" "b" }}', "a value takes no arguments"),
        ('k={{ .PVCName | "x" }}', "a value takes no arguments"),
        ("k={{ (toUpper .PVCName }}", "a bracket is not closed"),
        ("k={{ toUpper .PVCName) }}", "a bracket is closed that was not opened"),
        ("k={{ ) }}", "a bracket is closed that was not opened"),
        ("k={{ end }}", "{{end}} without an if"),
        ("k={{ else }}", "{{else}} without an if"),
        ("k={{ if true }}x", "not closed by {{end}}"),
        ("k={{ if true }}x{{else}}y", "not closed by {{end}}"),
        ("k={{ if true }}x{{else}}y{{else}}z{{end}}", "more than one {{else}}"),
        ("k={{ if true }}x{{else x}}y{{end}}", "not closed by {{end}}"),
        ("k={{ if }}x{{end}}", "nothing stands between"),
        ("k={{ field 1 .PVCName }}", "function field takes 3 arguments, not 2"),
        ("k={{ eq 1 }}", "function eq takes 2 arguments, not 1"),
        ("k={{ 1234567890123456789 }}", "cannot be read"),
        ("k={{ 08 }}", "cannot be read"),
        ("k={{ 1.5 }}", "cannot be read"),
        ("k={{ " + "(" * 60 + "1" + ")" * 60 + " }}", "nested more than"),
        ("k=" + "{{if true}}" * 60 + "{{end}}" * 60, "nested more than"),
        ("k={{if true}}" + "{{else if true}}" * 60 + "{{end}}", "nested more than"),
    ],
)
def test_what_can_never_work_is_refused_when_it_is_read(text: str, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse(text)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ('{{ .PVCNamespace | field "-" 3 }}', "'ns-prod-abcdef' has no part number 3: it has 3"),
        ('{{ .PVCNamespace | field "-" -1 }}', "has no part number -1"),
        ("{{ substring 9 3 .PVCName }}", "'data-web-0' has no part from 9 to 3"),
        ("{{ substring -1 -1 .PVCName }}", "has no part from 0 to -1"),
        ("{{ substring 20 30 .PVCName }}", "has no part from 20 to 10"),
        ("{{ eq 1 .PVCName }}", "a number and a string cannot be compared"),
        ('{{ substring "a" 1 .PVCName }}', "argument 1 of function substring is a number, not a"),
        ("{{ 1 | toUpper }}", "argument 1 of function toUpper is a string, not a number"),
        ("{{ toUpper (contains `a` `b`) }}", "is a string, not true or false"),
    ],
)
def test_what_does_not_work_for_one_claim_is_told_when_it_is_worked_out(value: str, sentence: str):
    template = parse(f"k={value}")

    assert not template.is_constant
    with pytest.raises(ValueError, match=re.escape(sentence)):
        template.render(NAMES)


syntax = "if else end true html range .PVCName .PVName .X '-' `a` 0 1 -1 99 ( ) | é $ ' {{ }} -}}"
words = st.sampled_from([*_FUNCTIONS, *syntax.replace("'-'", '"-"').split(" "), '"'])
actions = st.lists(words, max_size=8).map(lambda found: "{{ " + " ".join(found) + " }}")
pieces = st.one_of(actions, actions, words, st.text(max_size=5))


@given(st.lists(pieces, max_size=6).map("".join) | st.text(), st.text(max_size=20))
@example("{{" + "(" * 5_000 + "}}", "")
@example("{{ .PVCName" + "| toUpper" * 5_000 + "}}", "a")
def test_no_template_and_no_name_raise_anything_but_our_refusal(value: str, name: str):
    with contextlib.suppress(ValueError):
        template = parse(f"k={value}")
        assert isinstance(template.render(Names(name, name, name)), str)


@given(st.text().filter(lambda text: "{{" not in text))
def test_text_without_a_template_is_itself(value: str):
    template = parse(f"k={value}")

    assert template.is_constant
    assert template.render(NAMES) == value
