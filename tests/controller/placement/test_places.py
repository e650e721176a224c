"""Where a volume is made, when that is more than the name of a zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from provisioner.ec2.lookups import ZoneNames
from provisioner.model.claim import Claim
from provisioner.model.errors import Ec2Error, Outcome, Reason, StorageError
from provisioner.model.names import PINNED_ZONE
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import OUTPOST_KEYS
from tests.builders import (
    UID,
    ZONE,
    a_claim,
    a_class,
    a_node,
    a_persistent_volume,
    a_term,
    a_volume,
    an_ec2_error,
)
from tests.controller.provisioning.test_flow import CLAIM, OTHER_ZONE, World, annotated

ARN = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"
ON_OUTPOST = dict(zip(OUTPOST_KEYS, ("us-east-1", "aws", "111122223333", "op-1"), strict=True))
PIN = f"{ZONE},{ARN}/{UID}"
AFTER = annotated(CLAIM, "8", **{PINNED_ZONE: PIN})


class Names:
    """The zones of a Region, or why they cannot be told."""

    def __init__(self, *failures: StorageError) -> None:
        self.failures = list(failures)
        self.asked = 0

    async def by_id(self) -> Mapping[str, str]:
        self.asked += 1
        if self.failures:
            raise self.failures.pop()
        return {"use1-az6": ZONE, "use1-az1": OTHER_ZONE}


def a_world(claim: Claim, storage_class: StorageClass, names: Names | None = None) -> World:
    world = World(claim)
    world.provisioner._zones._zone_names = cast("ZoneNames", names or Names())
    world.caches.classes._store._objects["fast"] = storage_class
    return world


def on_an_outpost(claim: Claim) -> World:
    world = a_world(claim, a_class(waits=True))
    world.caches.nodes._store._objects["node-1"] = a_node(labels=ON_OUTPOST)
    return world


def pins_written(world: World) -> list[Any]:
    patches = [
        body["metadata"]["annotations"] for verb, _, body in world.kube.sent if verb == "patch"
    ]
    return [each[PINNED_ZONE] for each in patches if PINNED_ZONE in each]


async def test_a_volume_for_a_node_on_an_outpost_is_pinned_and_made_there():
    world = on_an_outpost(CLAIM)
    world.kube.answers = [AFTER, a_persistent_volume()]
    world.ec2.answers = [a_volume(outpost_arn=ARN)]

    await world.provisioner.reconcile(UID)

    assert pins_written(world) == [PIN]
    (request,) = world.ec2.requests
    assert (request.zone, request.outpost_arn) == (ZONE, ARN)
    _, _, body = world.kube.sent[-1]
    (term,) = body["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert [ARN.rpartition("/")[2]] in [each["values"] for each in term["matchExpressions"]]


async def test_a_process_that_takes_over_asks_for_the_same_outpost():
    world = a_world(AFTER, a_class(waits=True))  # by now the node says nothing of an Outpost
    world.provisioner.takeover.begin([AFTER], from_stranger=False)
    world.kube.answers = [a_persistent_volume()]
    world.ec2.answers = [a_volume(outpost_arn=ARN)]

    await world.provisioner.reconcile(UID)

    (request,) = world.ec2.requests
    assert (request.zone, request.outpost_arn) == (ZONE, ARN)


async def test_a_request_after_a_lost_reply_names_the_same_outpost():
    world = on_an_outpost(CLAIM)
    world.kube.answers = [AFTER, a_persistent_volume()]
    world.ec2.answers = [
        an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN),
        a_volume(outpost_arn=ARN),
    ]
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    world.caches.nodes._store._objects["node-1"] = a_node()

    await world.provisioner.reconcile(UID)

    first, second = world.ec2.requests
    assert first == second
    assert first.outpost_arn == ARN


async def test_a_class_that_names_a_zone_by_its_id_gets_its_volumes_there():
    claim, names = a_claim(), Names()
    world = a_world(claim, a_class(allowed=[a_term(zone_id=["use1-az1"])]), names)
    world.kube.answers = [claim, a_persistent_volume()]
    world.ec2.answers = [a_volume(zone=OTHER_ZONE)]

    await world.provisioner.reconcile(UID)

    assert [request.zone for request in world.ec2.requests] == [OTHER_ZONE]
    assert names.asked == 1


@pytest.mark.parametrize("allowed", [None, [a_term(zone=[ZONE])]])
async def test_ec2_is_not_asked_for_names_that_nobody_needs(allowed):
    claim, names = a_claim(), Names()
    world = a_world(claim, a_class(allowed=allowed), names)
    world.kube.answers = [claim, a_persistent_volume()]
    world.ec2.answers = [a_volume()]

    await world.provisioner.reconcile(UID)

    assert len(world.ec2.requests) == 1
    assert names.asked == 0


async def test_that_zones_may_not_be_described_is_told_and_tried_again():
    refused = Ec2Error(
        Reason.PERMISSION_DENIED, "allow it", action="DescribeAvailabilityZones", retry_after_s=60
    )
    claim = a_claim()
    world = a_world(claim, a_class(allowed=[a_term(zone_id=["use1-az6"])]), Names(refused))
    world.kube.answers = [claim, a_persistent_volume()]
    world.ec2.answers = [a_volume()]
    with pytest.raises(Ec2Error):
        await world.provisioner.reconcile(UID)
    assert world.events.told == ["PermissionDenied: allow it"]
    assert world.ec2.requests == []

    await world.provisioner.reconcile(UID)

    assert [request.zone for request in world.ec2.requests] == [ZONE]
