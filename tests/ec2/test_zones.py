import asyncio
from collections.abc import AsyncIterator

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.lookups import ZoneNames
from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import Ec2Error, Reason
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import ZONE, a_request
from tests.sandbox.lab import Lab


@pytest.fixture
async def zone_names(calls: Ec2Calls) -> AsyncIterator[ZoneNames]:
    made = ZoneNames(calls)
    yield made
    await made.close()


async def test_the_name_of_a_zone_is_the_one_that_its_volumes_have(
    zone_names: ZoneNames, volumes: Volumes, strict_lab: Lab
) -> None:
    by_id = await zone_names.by_id()

    shown = strict_lab.look((await volumes.create(a_request())).volume_id)
    assert by_id[shown["AvailabilityZoneId"]] == shown["AvailabilityZone"] == ZONE


async def test_ec2_is_asked_once_however_many_ask(
    zone_names: ZoneNames, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(reset_counts=True)

    first, *others = await asyncio.gather(*(zone_names.by_id() for _ in range(20)))

    assert all(each is first for each in [*others, await zone_names.by_id()])
    assert strict_ec2.counts()["DescribeAvailabilityZones"] == 1


async def test_a_refusal_is_not_remembered(zone_names: ZoneNames, strict_ec2: StrictEc2) -> None:
    refused = {"code": "UnauthorizedOperation", "message": "You are not authorized."}
    strict_ec2.control(faults=[{"action": "DescribeAvailabilityZones", "do": "error", **refused}])

    with pytest.raises(Ec2Error) as caught:
        await zone_names.by_id()

    assert caught.value.reason is Reason.PERMISSION_DENIED
    assert "ec2:DescribeAvailabilityZones" in caught.value.message
    assert await zone_names.by_id()
