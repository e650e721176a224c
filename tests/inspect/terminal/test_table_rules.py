"""Tables and sentences on terminals of any width."""

from hypothesis import given
from hypothesis import strategies as st

from provisioner.inspect.terminal.table_rules import table, wrapped


def test_columns_are_as_wide_as_their_longest_cell():
    lines = table(("NAME", "SIZE"), [("a-long-name", "1Gi"), ("b", "20Gi")])

    assert lines == ["NAME          SIZE", "a-long-name   1Gi", "b             20Gi"]


def test_on_a_narrow_terminal_lines_end_with_an_ellipsis():
    assert table(("NAME", "WHY"), [("a", "because of that")], width=12) == [
        "NAME   WHY",
        "a      beca…",
    ]


def test_a_long_first_column_is_shortened_so_that_the_last_ones_stay():
    row = ("shop/data-elasticsearch-master-0", "97%", "3h")
    headings = ("CLAIM", "USE%", "FULL IN")

    assert table(headings, [row], width=36, shrink="CLAIM") == [
        "CLAIM                 USE%   FULL IN",
        "shop/data-elastics…   97%    3h",
    ]
    assert table(headings, [row], width=80, shrink="CLAIM")[1].startswith(row[0])
    assert table(headings, [row], shrink="CLAIM")[1].startswith(row[0])


def test_what_a_terminal_would_obey_is_escaped():
    assert table(("NAME",), [("\x1b[31m",)]) == ["NAME", "\\x1b[31m"]


@given(st.text(max_size=200), st.integers(1, 80))
def test_a_wrapped_sentence_keeps_its_words_and_its_width(text, width):
    lines = wrapped(text, width=width)

    assert " ".join(lines).split() == " ".join(wrapped(text, width=10_000)).split()
    assert all(len(line) <= width or " " not in line for line in lines)
