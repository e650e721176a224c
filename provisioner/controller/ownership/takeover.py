"""Takeover: what the previous leader may have started for a claim and not finished.

A leader of ours wrote the zone to the claim before it asked EC2, so the same request finds the same
volume. Its tagged volumes are listed once, so that usually not even that call is needed. They are
used in whichever zone they are: the zone annotation may be gone, but the volume exists.

Another controller (the stock driver) left no record. Its volumes are searched by their name tag,
and nothing is started until EC2 has shown none for as long as it may take to show one. That doubt
outlives this process: the next leader knows from the leases which claims are older than our epoch,
and to a claim without a zone the doubt is written before the first search as well.

If neither leases nor objects nor tagged volumes show that any controller has led before, EC2 is
searched only once. Leases that were deleted right after another controller had sent its very first
CreateVolume show nothing, nor does EC2 for some seconds: that case is not waited for.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from provisioner import clock
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.lookups import NameLookUps
from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import Later
from provisioner.model.leadership import Epoch
from provisioner.model.volume import Volume, VolumeState

GOING = (VolumeState.DELETING, VolumeState.DELETED, VolumeState.ERROR)


class Takeover:
    """What the previous leader may have left; nothing, before ``begin``.

    Attributes:
        claims: the UIDs of those for which something may be left of what was begun before us.
    """

    def __init__(self, unclaimed: UnclaimedTags, lookups: NameLookUps) -> None:
        self._unclaimed = unclaimed
        self._lookups = lookups
        self._ended_at_s = 0.0  # when another controller may have begun something at last
        self._began_at_s = 0.0
        self._is_first = False
        self.claims: set[str] = set()
        self._doubted: set[str] = set()

    def begin(
        self, claims: Iterable[Claim], *, from_stranger: bool, ended_s_ago: float = 0.0
    ) -> None:
        """Note claims that exist when we take over, and have no volume for good.

        Args:
            claims: some of them, or all.
            from_stranger: a controller that is not ours may have worked on these.
            ended_s_ago: seconds since the last such controller has certainly ended.
        """
        self._ended_at_s = clock.now_s() - ended_s_ago
        uids = {claim.uid for claim in claims if not claim.spec.volume_name}
        self.claims |= uids
        if from_stranger:
            self._doubted |= uids

    def take_over(
        self, claims: Iterable[Claim], epoch: Epoch | None, *, is_first: bool = False
    ) -> None:
        """Note all claims, by the epoch that the leases prove; None without proof.

        ``is_first``: nothing in the cluster shows that any controller has led before.
        """
        self._began_at_s, self._is_first = clock.now_s(), is_first
        if epoch is None:
            ended_s_ago = CONSISTENCY_S if is_first else 0.0
            self.begin(claims, from_stranger=True, ended_s_ago=ended_s_ago)
            return
        lasted_s = epoch.lasted_s(datetime.now(UTC))
        unbound = [claim for claim in claims if not claim.spec.volume_name]
        older = [each for each in unbound if epoch.may_predate(each.metadata.creation_timestamp)]
        self.begin(unbound, from_stranger=False, ended_s_ago=lasted_s)
        self.begin(older, from_stranger=True, ended_s_ago=lasted_s)

    def is_in_doubt(self, claim: Claim) -> bool:
        """Whether another controller may have begun a volume for it, in whatever zone."""
        return claim.uid in self.claims and (
            claim.is_in_doubt or claim.uid in self._doubted  # a stranger heeds no pin of ours
        )

    def settle(self, uid: str) -> None:
        """It is certain that nothing is left of what was begun for the claim."""
        self.claims.discard(uid)
        self._doubted.discard(uid)

    async def volume_of(self, claim: Claim) -> Volume | Later | None:
        """The volume that was begun for one of ``claims``; None if surely none matters.

        ``Later``: EC2 may not show it yet.

        Raises:
            Ec2Error: EC2 could not be asked, so nothing may be begun.
        """
        name = claim.persistent_volume_name
        in_doubt = self.is_in_doubt(claim)
        if not in_doubt:
            found = await self._unclaimed.volume_for(name)
            if found is None or (self._unclaimed.is_fresh and found.state not in GOING):
                return found
        shown = [v for v in await self._lookups.find(name) if v.state not in GOING]
        if shown:
            return min(shown, key=lambda volume: volume.volume_id)
        ended_at_s = self._ended_at_s
        if self._is_first and await self._unclaimed.found_any():
            # One of ours has led: its leases are gone, its tags are not.
            ended_at_s = self._began_at_s
        waited_s = clock.now_s() - ended_at_s
        return Later(LOOK_AGAIN_S) if in_doubt and waited_s < CONSISTENCY_S else None
