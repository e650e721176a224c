"""What is believed of zones, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.controller.placement.failover_rules import REMEMBERED_S
from provisioner.controller.placement.refused_places import RefusedPlaces
from provisioner.metrics import Metrics
from provisioner.model.errors import Reason
from provisioner.model.zone import Place
from tests.ec2.virtual_time import Clock, in_virtual_time

A, B = Place("us-east-1a"), Place("us-east-1b", "arn:aws:outposts:us-east-1:1:outpost/op-1")
FULL, NOT_OFFERED = Reason.ZONE_OUT_OF_CAPACITY, Reason.TYPE_NOT_IN_ZONE


def shown(metrics: Metrics) -> set[tuple[str, ...]]:
    return {
        (sample.labels["zone"], sample.labels["type"], sample.labels["reason"])
        for family in metrics.zone_refuses.collect()
        for sample in family.samples
        if sample.value == 1
    }


@pytest.mark.parametrize("reason", sorted(REMEMBERED_S))
def test_a_refusal_is_believed_for_its_time_and_no_longer(reason):
    async def story(_: Clock) -> list[tuple[object, object]]:
        metrics = Metrics()
        places = RefusedPlaces(metrics)
        seen: list[tuple[object, object]] = []
        places.note(A, "gp3", reason)
        for wait_s in (0.0, REMEMBERED_S[reason] - 1, 2.0):
            await asyncio.sleep(wait_s)
            seen.append((places.recent("gp3"), shown(metrics)))
        return seen

    *before, after = in_virtual_time(story)

    assert before == [({A: reason}, {("us-east-1a", "gp3", reason)})] * 2
    assert after == ({}, set())


def test_a_refusal_that_comes_again_is_believed_from_then_on_with_its_new_reason():
    async def story(_: Clock) -> tuple[object, object]:
        metrics = Metrics()
        places = RefusedPlaces(metrics)
        places.note(A, "gp3", NOT_OFFERED)
        await asyncio.sleep(REMEMBERED_S[NOT_OFFERED] - 1)
        places.note(A, "gp3", FULL)
        await asyncio.sleep(2)
        return places.recent("gp3"), shown(metrics)

    assert in_virtual_time(story) == ({A: FULL}, {("us-east-1a", "gp3", FULL)})


async def test_types_and_places_are_apart_and_a_volume_ends_it():
    metrics = Metrics()
    places = RefusedPlaces(metrics)
    places.note(A, "gp3", FULL)
    places.note(A, "io2", NOT_OFFERED)
    places.note(B, "gp3", FULL)

    places.made(A, "gp3")
    places.made(A, "st1")

    assert places.recent("gp3") == {B: FULL}
    assert places.recent("io2") == {A: NOT_OFFERED}
    assert shown(metrics) == {("us-east-1a", "io2", NOT_OFFERED), (B.outpost_arn, "gp3", FULL)}
