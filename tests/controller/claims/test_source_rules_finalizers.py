"""How long the source of a claim is held."""

from __future__ import annotations

import pytest

from provisioner.controller.claims.source_rules import is_needed, without
from provisioner.model.claim import Claim, ClaimStatus
from tests.sources import CLONE, replaced

KEY = CLONE.source_key


def in_phase(phase: str | None) -> Claim:
    return replaced(CLONE, status=None if phase is None else ClaimStatus(phase=phase))


@pytest.mark.parametrize(
    ("phases", "in_flight", "needed"),
    [
        ((), (), False),
        ((None,), (), True),
        (("",), (), True),
        (("Pending",), (), True),
        (("Bound",), (), False),
        (("Lost",), (), False),
        (("Bound", "Pending"), (), True),
        (("Bound",), (KEY,), True),
        ((), (KEY,), True),
        ((), ("VolumeSnapshot shop/other",), False),
    ],
)
def test_a_source_is_needed_by_pending_claims_and_volumes_in_the_making(
    phases: tuple[str | None, ...], in_flight: tuple[str, ...], *, needed: bool
):
    assert is_needed(KEY, [in_phase(phase) for phase in phases], in_flight) is needed


def test_only_ours_is_taken_off():
    assert without(["a", "ours", "b"], "ours") == ["a", "b"]
