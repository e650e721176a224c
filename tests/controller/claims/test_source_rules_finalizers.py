"""How long the source of a claim is held."""

from __future__ import annotations

import pytest

from provisioner.controller.claims.source_rules import is_needed, without
from provisioner.model.claim import Claim, ClaimStatus
from tests.sources import CLONE, replaced


def in_phase(phase: str | None) -> Claim:
    return replaced(CLONE, status=None if phase is None else ClaimStatus(phase=phase))


@pytest.mark.parametrize(
    ("phases", "needed"),
    [
        ((), False),
        ((None,), True),
        (("",), True),
        (("Pending",), True),
        (("Bound",), False),
        (("Lost",), False),
        (("Bound", "Pending"), True),
    ],
)
def test_a_source_is_needed_by_pending_claims(phases: tuple[str | None, ...], *, needed: bool):
    assert is_needed(in_phase(phase) for phase in phases) is needed


def test_only_ours_is_taken_off():
    assert without(["a", "ours", "b"], "ours") == ["a", "b"]
