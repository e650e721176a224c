"""What the process before us has begun: never doubled, whoever it was."""

from __future__ import annotations

from typing import cast

import pytest

from provisioner.decide.creation import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.ec2.lookups import NameLookUps
from provisioner.model.claim import PINNED_ZONE, UNKNOWN_ZONE, Claim
from provisioner.model.volume import Volume, VolumeState
from provisioner.reconcile.marks import Marks
from provisioner.reconcile.takeover import Takeover
from tests.builders import UID, ZONE, a_claim, a_volume

UNPINNED = a_claim()
PINNED = a_claim(annotations={PINNED_ZONE: a_claim().pin(ZONE)})
IN_DOUBT = a_claim(annotations={PINNED_ZONE: a_claim().pin(UNKNOWN_ZONE)})
MADE = a_volume()


class Ec2:
    """What marks have listed, and what a look-up by name shows."""

    def __init__(self, listed: Volume | None = None, *shown: Volume) -> None:
        self.listed = listed
        self.shown = list(shown)

    async def unowned(self, _: str) -> Volume | None:
        return self.listed

    async def find(self, _: str) -> list[Volume]:
        return self.shown


def took_over(ec2: Ec2, *claims: Claim, from_stranger: bool = False) -> Takeover:
    takeover = Takeover(cast("Marks", ec2), cast("NameLookUps", ec2))
    takeover.begin(claims, from_stranger=from_stranger)
    return takeover


async def test_a_claim_that_came_later_has_nothing_to_be_found():
    takeover = took_over(Ec2(MADE, MADE), from_stranger=True)

    assert await takeover.volume_of(UNPINNED) is None


async def test_what_one_of_ours_has_made_in_the_pinned_zone_is_taken():
    assert await took_over(Ec2(MADE), PINNED).volume_of(PINNED) == MADE


async def test_what_lies_in_another_zone_than_the_pinned_one_is_left_to_the_token():
    elsewhere = a_volume(zone="us-east-1z")

    assert await took_over(Ec2(elsewhere), PINNED).volume_of(PINNED) is None


async def test_what_a_stranger_has_made_is_taken_as_soon_as_ec2_shows_it():
    takeover = took_over(Ec2(None, MADE), UNPINNED, from_stranger=True)

    assert await takeover.volume_of(UNPINNED) == MADE


async def test_a_stranger_heeds_no_pin_of_ours_so_its_volume_is_looked_for():
    elsewhere = a_volume(zone="us-east-1z")
    takeover = took_over(Ec2(None, elsewhere), PINNED, from_stranger=True)

    assert await takeover.volume_of(PINNED) == elsewhere


@pytest.mark.parametrize("state", [VolumeState.DELETING, VolumeState.DELETED, VolumeState.ERROR])
async def test_what_goes_is_not_taken(state):
    takeover = took_over(Ec2(None, a_volume(state=state)), UNPINNED, from_stranger=True)

    assert await takeover.volume_of(UNPINNED) == LOOK_AGAIN_S


async def test_after_a_stranger_nothing_is_begun_until_ec2_has_shown_nothing_for_a_minute():
    takeover = took_over(Ec2(), UNPINNED, from_stranger=True)

    assert await takeover.volume_of(UNPINNED) == LOOK_AGAIN_S
    takeover._at_s -= CONSISTENCY_S
    assert await takeover.volume_of(UNPINNED) is None


async def test_the_doubt_outlives_the_process_that_took_over_from_the_stranger():
    takeover = took_over(Ec2(), IN_DOUBT, from_stranger=False)

    assert not IN_DOUBT.pinned_zone
    assert await takeover.volume_of(IN_DOUBT) == LOOK_AGAIN_S


async def test_what_is_certain_is_not_doubted_again():
    takeover = took_over(Ec2(), UNPINNED, from_stranger=True)
    takeover.settle(UID)

    assert await takeover.volume_of(UNPINNED) is None
