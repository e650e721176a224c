"""The generated tables in docs are those of the code."""

import pytest

from tests.doc_tables import COMMAND, TABLES, Table, found, marked, written


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_table_is_the_one_that_the_code_makes(table: Table):
    now = found(table, table.page.read_text())

    assert now == marked(table), f"write it again: .venv/bin/{COMMAND}"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_only_what_stands_between_the_markers_is_written(table: Table):
    old = f"<!-- {table.name}: STALE -->\nSTALE\n<!-- end of {table.name} -->"

    new = written(table, f"before\n\n{old}\n\nafter\n")

    assert new.startswith("before\n\n<!-- ")
    assert new.endswith(" -->\n\nafter\n")
    assert "STALE" not in new
    assert written(table, new) == new


def test_a_page_without_the_markers_is_not_written():
    with pytest.raises(SystemExit, match="has no marker"):
        written(TABLES[0], "nothing")
