"""What the process before us may have begun for a claim and not finished.

One of ours wrote the zone to the claim before EC2 heard of it, so the same request finds the same
volume; its marked volumes are listed once, so that not even that call is needed. Another
controller (the stock driver) wrote nothing down: its volumes are searched by their name tag, and
nothing is begun until EC2 has shown none for as long as it may take to show one. That doubt is
written to the claim, so that it outlives this process.
"""

import asyncio
from collections.abc import Iterable

from provisioner.decide.creation import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.ec2.lookups import NameLookUps
from provisioner.model.claim import Claim
from provisioner.model.volume import Volume, VolumeState
from provisioner.reconcile.marks import Marks

_GOING = (VolumeState.DELETING, VolumeState.DELETED, VolumeState.ERROR)


class Takeover:
    """How this process came to lead; before ``begin``, nobody was before us."""

    def __init__(self, marks: Marks, lookups: NameLookUps) -> None:
        self._marks = marks
        self._lookups = lookups
        self._at_s = 0.0
        self._from_stranger = False
        self._claims: set[str] = set()

    def begin(self, claims: Iterable[Claim], *, from_stranger: bool) -> None:
        """Note who is there at the moment of taking over.

        ``from_stranger``: the controller before was not one of ours.
        """
        self._at_s = asyncio.get_running_loop().time()
        self._from_stranger = from_stranger
        self._claims = {claim.uid for claim in claims}

    def may_have_begun(self, uid: str) -> bool:
        """Whether something may be left of what was begun for the claim before us."""
        return uid in self._claims

    def settle(self, uid: str) -> None:
        """It is certain that nothing is left of what was begun for the claim."""
        self._claims.discard(uid)

    async def volume_of(self, claim: Claim) -> Volume | float | None:
        """The volume that was begun for a claim; None when there surely is none that matters.

        A number: it cannot be told yet; ask again after so many seconds.

        Raises:
            Ec2Error: EC2 could not be asked, so nothing may be begun.
        """
        if claim.uid not in self._claims:
            return None
        name = claim.persistent_volume_name
        # A stranger heeds no pin of ours: it may have made the volume in another zone.
        if not claim.is_in_doubt and not self._from_stranger:
            found = await self._marks.unowned(name)
            return found if found is not None and found.zone == claim.pinned_zone else None
        shown = [v for v in await self._lookups.find(name) if v.state not in _GOING]
        if shown:
            return min(shown, key=lambda volume: volume.volume_id)
        waited_s = asyncio.get_running_loop().time() - self._at_s
        return None if waited_s >= CONSISTENCY_S else LOOK_AGAIN_S
