"""One look at a bound claim, and whether what was wanted of it before is still under way."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from provisioner.decide import attributes as attribute_rules
from provisioner.decide import expand, volume_plan
from provisioner.decide.volume_plan import View, Wish
from provisioner.model.budget import Ledger
from provisioner.model.claim import Claim
from provisioner.model.modification import ModificationState
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.reconcile.modify_memory import Known, loop_s

# Go on at once; or the next look in so many seconds, None: when woken.
Next = Literal[True] | float | None


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one claim; what it wants is ``grow``, ``change`` or both.

    ``is_bound``: something else is wanted by now than what may be under way.
    """

    claim: Claim
    persistent_volume: PersistentVolume
    volume_id: str
    known: Known
    grow: expand.Grow | None
    change: attribute_rules.Change | None
    is_bound: bool = False

    @property
    def wishes(self) -> frozenset[Wish]:
        """What is wanted."""
        wanted = {Wish.SIZE: self.grow is not None, Wish.ATTRIBUTES: self.change is not None}
        return frozenset(wish for wish in Wish if wanted[wish])


def view_of(
    look: Look,
    change: attribute_rules.Change | None,
    tags: Mapping[str, str],
    ledger: Ledger,
    now: datetime,
) -> View:
    """What the plan is made from; ``change`` with its ``tags`` may be less than is wanted."""
    known = look.known
    return View(
        volume=known.volume,
        latest=known.latest,
        ledger=ledger,
        now=now,
        size_gib=look.grow.size_gib if look.grow else None,
        attributes=change.attributes if change else None,
        tags=tags,
        following=attribute_rules.following_of(change),
        unfollowed=known.unfollowed is not None,
        ceiling=known.ceiling,
        refused=known.refused,
        alone=known.alone,
        limited_until=known.limited_until,
        told_failed=known.told_failed,
    )


def is_under_way(view: View, step: volume_plan.Step) -> bool:
    """Whether what the claim's status names is being carried out, is done, or may be either."""
    known = volume_plan.InDoubt | volume_plan.Done | volume_plan.Tag | volume_plan.Gone
    if isinstance(step, known):
        return True
    return view.latest is not None and view.latest.state is ModificationState.MODIFYING


def released(known: Known) -> Next:
    """It was never begun, or nothing came of it: what is wanted by now counts.

    A process before us, or the stock resizer, may have sent it a moment ago without a note.
    """
    now_s, until_s = loop_s(), known.inherited_until_s
    if known.read_at_s is None or known.read_at_s < until_s:
        known.read_at_s = None
        return until_s - now_s if until_s > now_s else True
    known.begun = frozenset()
    return True
