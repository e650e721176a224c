"""What ``make compat`` runs, and the row that it prints."""

import datetime as dt
from pathlib import Path

import pytest

from provisioner.sandbox.programs import RELEASES
from tests import compat
from tests.documents import DOCS

ROOT = Path(__file__).parents[1]
PAGE = DOCS / "kubernetes-versions.md"


@pytest.mark.parametrize("minor", RELEASES)
def test_every_file_that_is_run_exists(minor: int):
    files = compat.chosen(minor)

    assert [each for each in files if not (ROOT / each).exists()] == []


def test_an_older_kubernetes_is_not_asked_for_what_it_lacks():
    assert "tests/cluster/test_change.py" not in compat.chosen(33)
    assert "tests/cluster/test_change.py" in compat.chosen(34)


def test_an_older_kubelet_is_met_by_the_tests_that_have_kubelets():
    files = compat.chosen(37, nodes_only=True)

    assert files
    assert all("test_real_node_" in each for each in files)


@pytest.mark.parametrize(
    ("demo", "tests", "cells"),
    [
        (True, (40, 0, 0, 0), "complete | 40 of 40 passed"),
        (False, (40, 2, 1, 3), "**not complete** | 34 of 37 passed, 3 skipped"),
    ],
)
def test_a_row_says_what_passed_and_what_did_not(*, demo: bool, tests: tuple[int, ...], cells: str):
    counted = dict(zip(("tests", "failures", "errors", "skipped"), tests, strict=True))
    day = dt.date(2026, 11, 23)

    row = compat.row("v1.37.2", "v1.36.3", demo=demo, tests=counted, today=day)

    assert row == f"| 1.37.2 | 1.36.3 | {cells} | 2026-11-23 |"


def test_the_page_names_each_release_that_a_minor_means():
    text = PAGE.read_text()

    assert [each for each in RELEASES.values() if f"| {each.removeprefix('v')} |" not in text] == []
