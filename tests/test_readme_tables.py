"""README's generated tables are those of the code."""

import pytest

from tests.readme_tables import COMMAND, README, TABLES, found, marked, written


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_the_one_that_the_code_makes(name: str):
    now = found(name, README.read_text())

    assert now == marked(name, TABLES[name]()), f"write it anew: .venv/bin/{COMMAND}"


def test_only_what_stands_between_the_markers_is_written():
    tables = "\n\n".join(
        f"<!-- {name}: STALE -->\nSTALE\n<!-- end of {name} -->" for name in TABLES
    )

    new = written(f"before\n\n{tables}\n\nafter\n")

    assert new.startswith("before\n\n<!-- ")
    assert new.endswith(" -->\n\nafter\n")
    assert "STALE" not in new
    assert written(new) == new


def test_a_readme_without_the_markers_is_not_written():
    with pytest.raises(SystemExit, match="has no marker"):
        written("nothing")
