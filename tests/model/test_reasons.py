import re

import pytest

from provisioner.model.errors import Reason
from provisioner.model.reasons import EXPLAINED, table


def test_every_reason_is_explained():
    assert set(EXPLAINED) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_an_explanation_is_whole_sentences_that_fit_a_table(reason: Reason):
    explained = EXPLAINED[reason]

    for text in (explained.meaning, explained.remedy):
        assert re.fullmatch(r"[A-Z`][^|\n]+\.", text)


def test_every_reason_has_one_row():
    header, ruler, *rows = table().splitlines()

    assert header.count("|") == ruler.count("|") == 4
    assert [row.count("|") for row in rows] == [4] * len(Reason)
    assert [re.match(r"\| `(\w+)` ", row)[1] for row in rows] == [r.value for r in EXPLAINED]  # type: ignore[index]
