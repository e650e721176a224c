"""What a controller leaves in the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.model import leadership
from provisioner.model.claim import UNKNOWN_ZONE
from provisioner.model.names import PINNED_ZONE
from provisioner.model.persistent_volume import PROVISIONED_BY
from tests.builders import DRIVER, ZONE, a_claim, a_persistent_volume, an_attachment

MADE = {PROVISIONED_BY: DRIVER}
WAITING = a_claim()
PINNED = a_claim(annotations={PINNED_ZONE: a_claim().pin(ZONE)})
DOUBTED = a_claim(annotations={PINNED_ZONE: a_claim().pin(UNKNOWN_ZONE)})


def left_nothing(volumes: Any = (), attachments: Any = (), claims: Any = (WAITING,)) -> bool:
    return leadership.left_nothing(volumes, attachments, claims, DRIVER)


def test_claims_that_wait_and_volumes_made_by_hand_show_nobody():
    assert left_nothing([a_persistent_volume(annotations={})], [an_attachment()])


@pytest.mark.parametrize(
    "left",
    [
        {"volumes": [a_persistent_volume(annotations=MADE)]},
        {"volumes": [a_persistent_volume(annotations=MADE, in_tree=True)]},
        {"attachments": [an_attachment(attached=True)]},
        {"claims": [WAITING, PINNED]},
        {"claims": [WAITING, DOUBTED]},
    ],
    ids=["volume", "in-tree volume", "attachment", "pinned claim", "doubted claim"],
)
def test_whatever_was_made_attached_or_noted_shows_somebody(left: dict[str, Any]):
    assert not left_nothing(**left)
