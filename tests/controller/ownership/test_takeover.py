"""What the process before us has begun: never doubled, whoever it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from provisioner.controller.ownership.takeover import Takeover
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.lookups import NameLookUps
from provisioner.model.claim import UNKNOWN_ZONE, Claim
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import Later
from provisioner.model.leadership import Epoch
from provisioner.model.names import PINNED_ZONE
from provisioner.model.volume import Volume, VolumeState
from tests.builders import UID, ZONE, a_claim, a_volume

UNPINNED = a_claim()
PINNED = a_claim(annotations={PINNED_ZONE: a_claim().pin(ZONE)})
IN_DOUBT = a_claim(annotations={PINNED_ZONE: a_claim().pin(UNKNOWN_ZONE)})
MADE = a_volume()


class Ec2:
    """What was listed at the start, and what a look-up by name shows."""

    def __init__(self, listed: Volume | None = None, *shown: Volume, is_fresh: bool = True) -> None:
        self.listed = listed
        self.shown = list(shown)
        self.is_fresh = is_fresh

    async def volume_for(self, _: str) -> Volume | None:
        return self.listed

    async def found_any(self) -> bool:
        return self.listed is not None

    async def find(self, _: str) -> list[Volume]:
        return self.shown


def took_over(ec2: Ec2, *claims: Claim, from_stranger: bool = False) -> Takeover:
    takeover = Takeover(cast("UnclaimedTags", ec2), cast("NameLookUps", ec2))
    takeover.begin(claims, from_stranger=from_stranger)
    return takeover


async def test_a_claim_that_came_later_has_nothing_to_be_found():
    takeover = took_over(Ec2(MADE, MADE), from_stranger=True)

    assert UID not in takeover.claims
    assert not takeover.is_in_doubt(UNPINNED)


async def test_a_claim_that_has_its_volume_is_not_noted():
    with_volume = a_claim("other", uid="other", volume_name="pv-1")

    takeover = took_over(Ec2(), with_volume, UNPINNED, from_stranger=True)

    assert takeover.claims == {UNPINNED.uid}


async def test_what_one_of_ours_has_made_in_the_pinned_zone_is_taken():
    assert await took_over(Ec2(MADE), PINNED).volume_of(PINNED) == MADE


@pytest.mark.parametrize("claim", [PINNED, UNPINNED], ids=["pinned", "not pinned any more"])
async def test_what_one_of_ours_has_made_is_taken_wherever_it_lies(claim: Claim):
    elsewhere = a_volume(zone="us-east-1z")

    assert await took_over(Ec2(elsewhere), claim).volume_of(claim) == elsewhere


async def test_what_was_listed_a_while_ago_is_looked_at_again_before_it_is_taken():
    made_bigger = a_volume(size_gib=2)
    still_there = took_over(Ec2(MADE, made_bigger, is_fresh=False), PINNED)
    gone_since = took_over(Ec2(MADE, is_fresh=False), PINNED)

    assert await still_there.volume_of(PINNED) == made_bigger
    assert await gone_since.volume_of(PINNED) is None


async def test_what_was_going_when_it_was_listed_is_not_taken():
    takeover = took_over(Ec2(a_volume(state=VolumeState.DELETING)), PINNED)

    assert await takeover.volume_of(PINNED) is None


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

    assert await takeover.volume_of(UNPINNED) == Later(LOOK_AGAIN_S)


async def test_after_a_stranger_nothing_is_begun_until_ec2_has_shown_nothing_for_a_minute():
    takeover = took_over(Ec2(), UNPINNED, from_stranger=True)

    assert await takeover.volume_of(UNPINNED) == Later(LOOK_AGAIN_S)
    takeover._ended_at_s -= CONSISTENCY_S
    assert await takeover.volume_of(UNPINNED) is None


async def test_the_minute_is_counted_from_the_end_of_the_stranger_whoever_led_since():
    takeover = Takeover(cast("UnclaimedTags", Ec2()), cast("NameLookUps", Ec2()))
    takeover.begin([UNPINNED], from_stranger=True, ended_s_ago=CONSISTENCY_S)

    assert await takeover.volume_of(UNPINNED) is None


async def test_only_claims_that_a_stranger_may_have_seen_are_in_doubt():
    other = a_claim("other", uid="another-uid")
    takeover = took_over(Ec2(), UNPINNED, from_stranger=True)
    takeover.begin([other], from_stranger=False)

    assert takeover.is_in_doubt(UNPINNED)
    assert not takeover.is_in_doubt(other)
    assert await takeover.volume_of(other) is None


async def test_the_doubt_outlives_the_process_that_took_over_from_the_stranger():
    takeover = took_over(Ec2(), IN_DOUBT, from_stranger=False)

    assert not IN_DOUBT.pinned_zone
    assert await takeover.volume_of(IN_DOUBT) == Later(LOOK_AGAIN_S)


async def test_what_is_certain_is_not_doubted_again():
    takeover = took_over(Ec2(), UNPINNED, from_stranger=True)
    takeover.settle(UID)

    assert UID not in takeover.claims
    assert not takeover.is_in_doubt(UNPINNED)


async def test_of_claims_without_a_volume_those_from_before_the_proven_epoch_are_in_doubt():
    began_at = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
    older = a_claim("older", uid="older", created_at=began_at)
    younger = a_claim("younger", uid="younger", created_at=began_at + timedelta(seconds=1))
    bound = a_claim("bound", uid="bound", created_at=began_at, volume_name="pv-1")
    takeover = Takeover(cast("UnclaimedTags", Ec2()), cast("NameLookUps", Ec2()))

    takeover.take_over([older, younger, bound], Epoch(began_at))

    assert takeover.claims == {"older", "younger"}
    assert takeover.is_in_doubt(older)
    assert not takeover.is_in_doubt(younger)


def first_ever(ec2: Ec2) -> Takeover:
    takeover = Takeover(cast("UnclaimedTags", ec2), cast("NameLookUps", ec2))
    takeover.take_over([UNPINNED], None, is_first=True)
    return takeover


async def test_where_nobody_led_before_ec2_is_searched_once():
    assert await first_ever(Ec2()).volume_of(UNPINNED) is None


async def test_where_nobody_seems_to_have_led_what_ec2_shows_is_taken_all_the_same():
    assert await first_ever(Ec2(None, MADE)).volume_of(UNPINNED) == MADE


async def test_a_tagged_volume_of_any_claim_shows_that_one_of_ours_has_led():
    assert await first_ever(Ec2(MADE)).volume_of(UNPINNED) == Later(LOOK_AGAIN_S)
