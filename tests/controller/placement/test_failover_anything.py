"""Whatever EC2 answers, and wherever controllers die: a claim never has two volumes.

EC2 here is the worst that its documentation allows: it looks at its room before it looks at the
client token, the same token in another zone makes a second volume, and a new volume is shown late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.model.names import VOLUME_NAME
from provisioner.model.volume import CreateRequest, Volume
from tests.builders import UID, a_claim, a_persistent_volume, a_volume, an_ec2_error
from tests.controller.full_zones import CHOSEN, A, FullZones
from tests.controller.services import seconds
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.pods import a_pod

AT_ONCE = a_claim()
LONG_S = 4 * 3600.0
MADE, FULL, LOST, LOST_IN_VAIN = "made", "full", "reply lost", "request lost"
DIES_BEFORE, DIES_AFTER = "dies before", "dies after"
ANSWERS = (MADE, FULL, FULL, LOST, LOST_IN_VAIN, DIES_BEFORE, DIES_AFTER)


class _DiedError(BaseException):
    """The process is gone; nothing catches it."""


class Outside:
    """What outlives controllers: the claim, EC2's volumes, and what both will answer."""

    def __init__(
        self, clock: Clock, claim: Claim, answers: list[str], patches: list[str], nodes: list[str]
    ) -> None:
        self.clock = clock
        self.claim = claim
        self.answers = answers
        self.patches = patches
        self.nodes = nodes
        self.shown_after_s = CONSISTENCY_S / 2
        self.volumes: dict[tuple[str, str], tuple[float, Volume]] = {}
        self.is_saved = False

    def make(self, request: CreateRequest) -> Volume:
        key = request.client_token, request.zone
        if key not in self.volumes:
            name = {VOLUME_NAME: CHOSEN.persistent_volume_name}
            made = a_volume(f"vol-{len(self.volumes)}", zone=request.zone, tags=name)
            self.volumes[key] = self.clock() + self.shown_after_s, made
        assert len(self.volumes) == 1, f"two volumes: {sorted(self.volumes)}"
        return self.volumes[key][1]

    def create(self, request: CreateRequest) -> Volume:
        match self.answers.pop(0) if self.answers else MADE:
            case "made":
                return self.make(request)
            case "full":
                raise an_ec2_error(Reason.ZONE_OUT_OF_CAPACITY)
            case "reply lost":
                self.make(request)
                raise an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
            case "request lost":
                raise an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
            case "dies after":
                self.make(request)
        raise _DiedError

    def found(self) -> list[Volume]:
        return [volume for at_s, volume in self.volumes.values() if at_s <= self.clock()]


class Life(FullZones):
    """One controller's life in that world."""

    def __init__(self, outside: Outside, *, waits: bool, is_first: bool) -> None:
        super().__init__(outside.claim, waits=waits)
        self.outside = outside
        self.caches.pods._store.apply(a_pod())
        if not is_first:
            self.provisioner.takeover.begin([outside.claim], from_stranger=False)

    def _annotate(self, claim: Claim, annotations: Mapping[str, str | None]) -> Claim:
        self.outside.claim = changed = super()._annotate(claim, annotations)
        return changed

    async def _patch(self, resource: Any, name: str, body: Any, **given: Any) -> Any:
        fate = self.outside.patches.pop(0) if self.outside.patches else MADE
        if fate == DIES_BEFORE:
            raise _DiedError
        changed = await super()._patch(resource, name, body, **given)
        if fate == DIES_AFTER:
            raise _DiedError
        return changed

    async def _create(self, *_: Any, **__: Any) -> Any:
        self.outside.is_saved = True
        return a_persistent_volume()

    async def _make(self, request: CreateRequest, *, gate: Any) -> Volume:
        gate()
        return self.outside.create(request)

    async def step(self) -> float:
        """One look, and what the scheduler makes of it; seconds until the next."""
        self.ec2.shown = self.outside.found()
        self.ec2.made = {volume.volume_id: volume for volume in self.ec2.shown}
        try:
            wait_s = seconds(await self.provisioner.reconcile(UID))
        except StorageError as error:
            wait_s = error.retry_after_s
        if self.outside.claim.selected_node == "" and self._waits():
            self.choose(self.outside.nodes.pop(0) if self.outside.nodes else "node-a")
        return wait_s or 1.0

    def _waits(self) -> bool:
        found = self.caches.classes.get("fast")
        return found is not None and found.waits_for_consumer


async def lived(outside: Outside, *, waits: bool) -> None:
    """Live until the persistent volume is saved; who dies comes back."""
    life, began_s = Life(outside, waits=waits, is_first=True), outside.clock()
    while not outside.is_saved:
        assert outside.clock() - began_s < LONG_S, "it never ends"
        try:
            await asyncio.sleep(await life.step())
        except _DiedError:
            await asyncio.sleep(1.0)
            life = Life(outside, waits=waits, is_first=False)


@given(
    st.lists(st.sampled_from(ANSWERS), max_size=8),
    st.lists(st.sampled_from((MADE, MADE, DIES_BEFORE, DIES_AFTER)), max_size=8),
    st.lists(st.sampled_from(("node-a", "node-b")), max_size=4),
    st.sampled_from((CHOSEN, AT_ONCE)),
)
@example([DIES_AFTER, FULL, FULL], [], [], CHOSEN)
@example([DIES_AFTER, FULL, FULL], [], [], AT_ONCE)
@example([FULL, LOST, FULL, FULL], [], [], CHOSEN)
@example([FULL, FULL, DIES_AFTER, FULL], [MADE, DIES_AFTER], ["node-b"], CHOSEN)
@settings(deadline=None, max_examples=60)
def test_a_claim_never_has_two_volumes_and_gets_one_in_the_end(answers, patches, nodes, claim):
    async def story(clock: Clock) -> Outside:
        outside = Outside(clock, claim, list(answers), list(patches), list(nodes))
        await lived(outside, waits=claim is CHOSEN)
        return outside

    outside = in_virtual_time(story)

    assert len(outside.volumes) == 1


def test_this_would_find_a_second_volume():
    async def story(clock: Clock) -> str:
        outside = Outside(clock, CHOSEN, [], [], [])
        life = Life(outside, waits=True, is_first=True)
        await life.step()
        [(token, _)] = outside.volumes
        try:
            outside.make(a_request(token, "us-east-1b"))
        except AssertionError as error:
            return str(error)
        return ""

    assert "two volumes" in in_virtual_time(story)


def a_request(token: str, zone: str) -> CreateRequest:
    assert zone != A
    return CreateRequest(client_token=token, zone=zone, size_gib=1, volume_type="gp3")
