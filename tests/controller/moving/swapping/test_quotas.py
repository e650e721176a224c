"""A claim is deleted only if the quotas of its namespace let it be created again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving import phase_rules
from provisioner.controller.moving.patience_rules import is_refused
from provisioner.controller.moving.swapping.flow import Swapping
from provisioner.model.decision import AGAIN
from provisioner.model.document import Document
from provisioner.model.errors import StorageError
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.volume_move import Phase, VolumeMove
from tests.controller.move_record import (
    OLD_PV,
    FakeRecord,
    a_pv,
)
from tests.controller.moving.swapping.made import a_swapping

GOLD = "gold.storageclass.storage.k8s.io/requests.storage"


def a_quota(hard: str, used: str) -> ResourceQuota:
    body = {
        "metadata": {"name": "team"},
        "status": {"hard": {GOLD: hard}, "used": {GOLD: used}},
    }
    return msgspec.convert(body, ResourceQuota)


def to_gold(name: str, phase: str = "Creating", **status: Any) -> VolumeMove:
    """A move of a claim to another class."""
    body = {
        "metadata": {"name": f"{name}-to-gold", "namespace": "shop", "uid": f"{name}-move"},
        "spec": {"claimName": name, "to": {"storageClassName": "gold"}},
        "status": {
            "phase": phase,
            "source": {"claimUID": f"{name}-uid", "persistentVolume": OLD_PV, "volumeID": "vol-1"},
            "plan": {"keepsVolume": True},
        }
        | status,
    }
    return msgspec.convert(body, VolumeMove)


def of_60_gib(name: str, volume: str = OLD_PV) -> Document:
    meta = {"name": name, "namespace": "shop", "uid": f"{name}-uid", "resourceVersion": "7"}
    resources = {"requests": {"storage": "60Gi"}}
    spec = {"volumeName": volume, "storageClassName": "slow", "resources": resources}
    return msgspec.convert({"metadata": meta, "spec": spec}, Document)


def in_gold(name: str) -> Document:
    claim = of_60_gib(name)
    return structs.replace(claim, spec={**claim.spec, "storageClassName": "gold"})


def beginning(hard: str, used: str = "0") -> tuple[Swapping, FakeRecord]:
    swapping, record = a_swapping(a_pv("Bound", "Retain"))
    record.known_quotas = [a_quota(hard, used)]
    record.other_claims = {name: of_60_gib(name) for name in ("data", "logs")}
    return swapping, record


async def test_a_claim_is_not_deleted_for_whose_class_a_quota_has_no_room_any_more():
    """There was room when it was planned."""
    swapping, record = beginning("100Gi", used="50Gi")

    with pytest.raises(StorageError) as refused:
        await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))

    assert record.written == []
    assert refused.value.message == (
        f"ResourceQuota team does not let the claim be created again ({GOLD}: 50Gi of 100Gi are "
        "used): raise it first, or abort the move"
    )
    assert is_refused(refused.value)

    record.known_quotas = [a_quota("110Gi", "50Gi")]
    await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))
    assert [each["phase"] for each in record.written] == [Phase.SWAPPING]


async def test_the_first_of_moves_that_go_together_does_not_swap_if_a_quota_has_no_room_for_all():
    swapping, record = beginning("100Gi")
    swapping._companions.led = [to_gold("logs")]  # type: ignore[attr-defined]

    with pytest.raises(StorageError, match="the 2 claims that are moved at the same time"):
        await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))

    assert record.written == []
    record.known_quotas = [a_quota("120Gi", "0")]
    await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))
    assert [each["phase"] for each in record.written] == [Phase.SWAPPING]


@pytest.mark.parametrize(
    ("before", "claim", "may"),
    [
        (of_60_gib("logs"), of_60_gib("logs"), False),
        (in_gold("logs"), None, False),
        (of_60_gib("logs"), of_60_gib("logs", "pvc-logs-move"), True),
    ],
    ids=["to-go", "gone", "back"],
)
async def test_a_move_leaves_room_for_the_claims_that_others_have_deleted(
    before: Document, claim: Document | None, *, may: bool
):
    swapping, record = beginning("100Gi", used="60Gi" if may else "0")
    recorded = phase_rules.record(before)
    swapping._caches.moves.others = [  # type: ignore[attr-defined]
        to_gold("logs", "Swapping", claim=recorded)
    ]
    del record.other_claims["logs"]
    if claim is not None:
        record.other_claims["logs"] = claim
    record.known_quotas = [a_quota("120Gi" if may else "100Gi", "60Gi" if may else "0")]

    if may:
        await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))
    else:
        with pytest.raises(StorageError, match="the claim and that of another move be created"):
            await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))


@pytest.mark.parametrize("phase", ["Swapping", "Cleaning"])
async def test_the_room_of_a_group_that_swaps_is_left_to_those_of_it_that_have_not_begun(
    phase: str,
):
    """They have promised to swap, so that they could not be aborted."""
    swapping, record = beginning("120Gi", used="0" if phase == "Swapping" else "60Gi")
    record.other_claims["more"] = of_60_gib("more")
    claim = phase_rules.record(of_60_gib("data"))
    first, last = to_gold("data", phase, claim=claim), to_gold("logs", ready=True)
    last = structs.replace(last, spec=structs.replace(last.spec, moved_with=["data"]))
    swapping._caches.moves.others = [first]  # type: ignore[attr-defined]
    swapping._companions.promised = [last]  # type: ignore[attr-defined]

    with pytest.raises(StorageError, match=r"claim and (those of 2 others|that of another move) b"):
        await swapping.begin(to_gold("more"), a_pv("Bound", "Retain"))

    assert await swapping.begin(last, a_pv("Bound", "Retain")) == AGAIN


async def test_of_groups_that_have_begun_to_swap_none_waits_for_what_the_others_will_take():
    """The quota was lowered since; and what cannot be aborted is not told to be."""
    swapping, record = beginning("60Gi")
    mine = to_gold("logs", ready=True)
    mine = structs.replace(mine, spec=structs.replace(mine.spec, moved_with=["data"]))
    swapping._caches.moves.others = [to_gold("data", "Cleaning")]  # type: ignore[attr-defined]
    swapping._companions.promised = [mine, to_gold("more", ready=True)]  # type: ignore[attr-defined]

    assert await swapping.begin(mine, a_pv("Bound", "Retain")) == AGAIN
    record.known_quotas = [a_quota("50Gi", "0")]
    with pytest.raises(StorageError, match=r"raise it first$"):
        await swapping.begin(mine, a_pv("Bound", "Retain"))


async def test_a_move_leaves_no_room_for_those_of_another_namespace():
    """Quotas are those of one."""
    swapping, record = beginning("60Gi")
    del record.other_claims["logs"]
    other = to_gold("logs", "Swapping", claim=phase_rules.record(of_60_gib("logs")))
    meta = structs.replace(other.metadata, namespace="office")
    others = [structs.replace(other, metadata=meta)]
    swapping._caches.moves.others = others  # type: ignore[attr-defined]

    assert await swapping.begin(to_gold("data"), a_pv("Bound", "Retain")) == AGAIN


async def test_of_two_that_begin_to_swap_at_the_same_time_the_second_sees_what_the_first_takes():
    swapping, record = beginning("100Gi")
    moves = swapping._caches.moves.others  # type: ignore[attr-defined]

    async def quotas(_: VolumeMove) -> list[ResourceQuota]:
        await asyncio.sleep(0)
        return record.known_quotas

    async def advance(move: VolumeMove, phase: Phase, **fields: Any) -> VolumeMove:
        await asyncio.sleep(0)
        moves.append(to_gold(move.spec.claim_name, phase, claim=fields["claim"]))
        return move

    record.quotas = quotas  # type: ignore[method-assign]
    record.advance = advance  # type: ignore[assignment,method-assign]
    begun = [swapping.begin(to_gold(n), a_pv("Bound", "Retain")) for n in ("data", "logs")]
    first, second = await asyncio.gather(*begun, return_exceptions=True)

    assert first == AGAIN
    assert isinstance(second, StorageError)
    assert [move.spec.claim_name for move in moves] == ["data"]


async def test_a_claim_that_ends_after_it_was_read_has_its_room_left_to_it():
    """The quota has counted its end when it is read again; a cache may not show it for long."""
    swapping, record = beginning("100Gi", used="60Gi")
    record.other_claims["logs"] = in_gold("logs")
    recorded = phase_rules.record(in_gold("logs"))
    other = to_gold("logs", "Swapping", claim=recorded)
    swapping._caches.moves.others = [other]  # type: ignore[attr-defined]

    async def claim(move: VolumeMove) -> Document | None:
        if move.spec.claim_name == "logs":
            record.known_quotas = [a_quota("100Gi", "0")]
            return record.other_claims.pop("logs", None)
        return of_60_gib("data")

    record.claim = claim  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(StorageError, match="the claim and that of another move"):
            await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))


async def test_a_cache_that_still_shows_a_deleted_claim_does_not_give_its_room_away():
    swapping, record = beginning("100Gi", used="0")
    recorded = phase_rules.record(in_gold("logs"))
    other = to_gold("logs", "Swapping", claim=recorded)
    swapping._caches.moves.others = [other]  # type: ignore[attr-defined]
    del record.other_claims["logs"]

    async def known_claim(_: VolumeMove) -> Document:
        return in_gold("logs")

    record.known_claim = known_claim  # type: ignore[assignment,method-assign]
    with pytest.raises(StorageError, match="the claim and that of another move"):
        await swapping.begin(to_gold("data"), a_pv("Bound", "Retain"))


async def test_a_claim_of_whose_growth_no_quota_says_anything_looks_at_no_other_move():
    swapping, record = beginning("0")
    limited = {"hard": {"requests.storage": "60Gi"}, "used": {"requests.storage": "60Gi"}}
    record.known_quotas = [msgspec.convert({"metadata": {}, "status": limited}, ResourceQuota)]
    swapping._caches.moves = None  # type: ignore[assignment]

    assert await swapping.begin(to_gold("data"), a_pv("Bound", "Retain")) == AGAIN


async def test_a_claim_that_takes_no_more_than_before_does_not_wait_for_others_that_swap():
    """Its own room is there, as little as is left."""
    swapping, record = beginning("60Gi", used="60Gi")
    swapping._caches.moves.others = [to_gold("logs", "Swapping")]  # type: ignore[attr-defined]
    resources = {"requests": {"storage": "60Gi"}}
    spec = {"volumeName": OLD_PV, "storageClassName": "gold", "resources": resources}
    record.other_claims["data"] = structs.replace(of_60_gib("data"), spec=spec)

    assert await swapping.begin(to_gold("data"), a_pv("Bound", "Retain")) == AGAIN
