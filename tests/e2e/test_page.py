import pytest

from tests.e2e import page

PAGE = (
    "# E2e\n\n<!-- results: made by make conformance -->\n\nold\n\n<!-- end of results -->\nrest\n"
)


def test_the_tables_of_a_page_are_replaced_and_nothing_else():
    new = page.written(PAGE, "| a |\n| --- |")

    assert new == PAGE.replace("old", "| a |\n| --- |")
    assert page.written(new, "old") == PAGE


def test_a_page_without_markers_is_an_error():
    with pytest.raises(ValueError, match="has no markers"):
        page.written("# E2e\n", "x")
