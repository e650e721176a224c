"""Templates as aws-ebs-csi-driver and Go's text/template work them out, and what is refused."""

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.model.tag_template import Names, parse
from provisioner.model.template_functions import FUNCTIONS

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
        ('{{ index "-" .PVCName }}{{ lastIndex "-" .PVCName }}{{ index "x" .PVCName }}', "48-1"),
        # Go's own
        ("{{- 7 -}}  x", "7x"),
        ("a \n {{- .PVName}}", "apvc-0c5a"),
        ("a {{/* no word\n of it */}} b", "a  b"),
        ("a {{- /* no word */ -}} b", "ab"),
        ('{{ "}}" }}{{ `\\n"` }}{{ "\\u00e9\\x41\\101\\t\\"" }}', '}}\\n"éAA\t"'),
        ("{{if contains `prod` .PVCNamespace}}P{{else}}N{{end}}", "P"),
        ('{{if eq .PVCName "x" "data-web-0"}}yes{{end}}', "yes"),
        ('{{if ""}}1{{else if 0}}2{{else if not true}}3{{else}}4{{end}}', "4"),
        ('{{if 1}}{{if ""}}a{{else}}b{{end}}c{{end}}', "bc"),
        ('{{ and .PVCName "" }}|{{ or "" .PVCName }}|{{ or 0 "" }}', "|data-web-0|"),
        ("{{ and 0 (substring 9 1 .PVName) }}", "0"),
        ('{{ or "a" (field "-" 9 .PVName) }}', "a"),
        (
            "{{ printf `%.3s|%5d|%-3d|%03d|%v|%t|%%` .PVName 7 8 9 true false }}",
            "pvc|    7|8  |009|true|false|%",
        ),
        ('{{ print 1 2 "a" 3 }}{{ println 1 true }}', "1 2a31 true\n"),
        ("{{ (toUpper .PVName) | printf `<%s>` }}", "<PVC-0C5A>"),
        ("{{ slice .PVName 4 }}{{ slice .PVName 0 3 }}{{ len .PVName }}", "0c5apvc8"),
        (
            '{{ lt 1 2 }}{{ ge "b" "a" }}{{ ne 1 2 }}{{ le 2 1 }}{{ gt 2 1 }}',
            "truetruetruefalsetrue",
        ),
        ('{{ len "é" }}{{ toUpper "straße" }}', "2STRAßE"),
        # Go 1.26 strconv.ParseInt with base 0: a leading zero means octal
        ("{{ substring 0 010 .PVCName }}", "data-web"),
        ("{{ 0 }} {{ 00 }} {{ +017 }} {{ -010 }}", "0 0 15 -8"),
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
        ("k={{ .PVCName }", "of tag 'k': '}' cannot be read"),
        ("k={{", "an action is not closed: }} is missing"),
        ('k={{ "a }}', "a string is not closed"),
        ('k={{ "\\ud800" }}', "is no character"),
        ('k={{ "\\q" }}', "'\\\\q' in a string is no character"),
        ('k={{ "\\xff" }}', "is no character"),
        ('k={{ "\\U00110000" }}', "is no character"),
        ("k={{ 'a' }}", "is no string"),
        ("k={{ .Name }}", "there is no .Name; there are .PVCNamespace, .PVCName, .PVName"),
        ("k={{ .PVCName.Foo }}", "a space is missing before '.Foo'"),
        ("k={{ upper .PVCName }}", "there is no function 'upper'; there are field, substring"),
        ("k={{ .PVCName | html }}", "function html is switched off in tags"),
        ("k={{ js .PVCName }}", "function js is switched off"),
        ("k={{ call .PVCName }}", "function call is switched off"),
        ("k={{ urlquery .PVCName }}", "function urlquery is switched off"),
        ("k={{ $x := 1 }}", "variables ($) are not supported"),
        ("k={{ range .PVCName }}{{end}}", "range is not supported"),
        ("k={{ with .PVCName }}{{end}}", "with is not supported"),
        ("k={{ nil }}", "nil is not supported"),
        ("k={{ print if }}", "if is not supported here"),
        ("k={{}}", "nothing stands between"),
        ("k={{ .PVCName | }}", "nothing stands between"),
        ("k={{ () }}", "nothing stands between"),
        ('k={{ "a" "b" }}', "only functions take arguments"),
        ('k={{ .PVCName | "x" }}', "piped into a value"),
        ("k={{ (len .PVCName }}", "a bracket is not closed"),
        ("k={{ len .PVCName) }}", "a bracket is closed that was not opened"),
        ("k={{ ) }}", "a bracket is closed that was not opened"),
        ("k={{ end }}", "{{end}} without an if"),
        ("k={{ else }}", "{{else}} without an if"),
        ("k={{ if true }}x", "{{end}} is missing"),
        ("k={{ if true }}x{{else}}y", "{{end}} is missing"),
        ("k={{ if true }}x{{else}}y{{else}}z{{end}}", "more than one else"),
        ("k={{ if true }}x{{else x}}y{{end}}", "'x' after else"),
        ("k={{ if true }}x{{end x}}", "'x' after end"),
        ("k={{ if }}x{{end}}", "nothing stands between"),
        ("k={{ field 1 .PVCName }}", "function field takes 3 arguments, not 2"),
        ("k={{ slice }}", "function slice takes 1 to 3 arguments, not 0"),
        ("k={{ eq 1 }}", "function eq takes at least 2 arguments, not 1"),
        (
            'k={{ substring "a" 1 .PVCName }}',
            "argument 1 of function substring is a number, not a string",
        ),
        ("k={{ 1 | toUpper }}", "argument 1 of function toUpper is a string, not a number"),
        ("k={{ toUpper (contains `a` `b`) }}", "is a string, not true or false"),
        ("k={{ 1234567890123456789 }}", "is too large a number"),
        ("k={{ 08 }}", "'08' is no number: one that begins with 0 is octal, as in Go"),
        ("k={{ -019 }}", "'-019' is no number"),
        ("k={{ printf `%d` .PVCName }}", "'%d' cannot show a string"),
        ("k={{ printf `%s` }}", "nothing is given for '%s'"),
        ("k={{ printf `x` 1 }}", "1 values are given too many"),
        ("k={{ printf `%q` .PVCName }}", "'%q' is not supported"),
        ("k={{ printf `%9999s` .PVCName }}", "is not supported"),
        ("k={{ printf `%` }}", "is not supported"),
        ("k={{ " + "(" * 60 + "1" + ")" * 60 + " }}", "nested more than"),
        ("k={{ 1 " + "| print " * 60 + "}}", "work on each other"),
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
        ('{{ substring 0 1 "é" }}', "cuts a character in two"),
        ("{{ slice .PVCName 3 2 }}", "has no part from 3 to 2"),
        ("{{ printf .PVCName 1 }}", "1 values are given too many"),
        ("{{ printf `%d` (or .PVCName 1) }}", "'%d' cannot show a string"),
        ("{{ eq 1 .PVCName }}", "a number and a string are no equals"),
        ("{{ lt true false }}", "have no order"),
        ("{{ lt 1 .PVCName }}", "have no order"),
        ('{{ field "-" 9 .PVName | or "a" }}', "has no part number 9"),  # what is piped comes first
        ("{{ toUpper (or 0 1) }}", "argument 1 of function toUpper is a string, not a number"),
    ],
)
def test_what_does_not_work_for_one_claim_is_told_when_it_is_worked_out(value: str, sentence: str):
    template = parse(f"k={value}")

    assert not template.is_constant
    with pytest.raises(ValueError, match=re.escape(sentence)):
        template.render(NAMES)


syntax = "if else end true html range .PVCName .PVName .X '-' `a` 0 1 -1 99 ( ) | é $ ' {{ }} -}}"
words = st.sampled_from([*FUNCTIONS, *syntax.replace("'-'", '"-"').split(" "), '"'])
actions = st.lists(words, max_size=8).map(lambda found: "{{ " + " ".join(found) + " }}")
pieces = st.one_of(actions, actions, words, st.text(max_size=5))


@given(st.lists(pieces, max_size=6).map("".join) | st.text(), st.text(max_size=20))
@example('{{ printf "%s" }}', "")
@example("{{" + "(" * 5_000, "")
def test_no_template_and_no_name_raise_anything_but_our_refusal(value: str, name: str):
    with contextlib.suppress(ValueError):
        template = parse(f"k={value}")
        assert isinstance(template.render(Names(name, name, name)), str)


@given(st.text().filter(lambda text: "{{" not in text))
def test_text_without_a_template_is_itself(value: str):
    template = parse(f"k={value}")

    assert template.is_constant
    assert template.render(NAMES) == value
