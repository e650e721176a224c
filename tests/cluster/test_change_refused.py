"""A class, or a size, that cannot be: it is told why, and it never keeps the other part from its volume."""

from __future__ import annotations

import pytest

from tests.cluster import calm, growing
from tests.cluster.cluster import Cluster
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()


@together.test
async def test_a_class_that_is_missing_is_waited_for(place: Place):
    _, volume_id = await growing.a_volume(place)

    await growing.ask(place, attributes=f"{place.name}-fast")
    await growing.claim_when(place, "Pending", lambda c: growing.modify_status(c) == "Pending")
    await growing.told(place, "VolumeModifyFailed", f'VAC "{place.name}-fast" does not exist')
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    await growing.changed(place, fast)

    assert await growing.modifies(place, volume_id) == [growing.AS_FAST]


@together.test
@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"type": "gp3", "throughput": "2000"}, "8000 IOPS"),
        ({"type": "st1"}, "125"),
        ({"iops": "4000", "iopsPerGB": "10"}, "keep one"),
        ({"typ": "gp3"}, "typ"),
        ({"type": "gp9"}, "gp9"),
    ],
)
async def test_a_class_that_cannot_be_keeps_no_full_disk_from_growing(
    place: Place, parameters: dict[str, str], word: str
):
    _, volume_id = await growing.a_volume(place)
    broken = await growing.attributes_class(place, "broken", **parameters)

    await growing.ask(place, attributes=broken)
    claim = await growing.claim_when(
        place, "Infeasible", lambda c: growing.modify_status(c) == "Infeasible"
    )
    assert "ModifyVolumeError" in growing.conditions(claim)
    await growing.told(place, "VolumeModifyFailed", word)

    await growing.ask(place, "24Gi")
    claim = await growing.kubelet_grows(place)

    assert growing.capacity(claim) == "24Gi"
    assert growing.modify_status(claim) == "Infeasible"
    assert "ModifyVolumeError" in growing.conditions(claim)
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_the_way_back_from_a_class_that_cannot_be(place: Place):
    _, volume_id = await growing.a_volume(place)
    broken = await growing.attributes_class(place, "broken", type="gp3", throughput="2000")
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    await growing.ask(place, attributes=broken)
    await growing.claim_when(
        place, "Infeasible", lambda c: growing.modify_status(c) == "Infeasible"
    )

    await growing.ask(place, attributes=fast)
    await growing.changed(place, fast)

    assert await growing.modifies(place, volume_id) == [growing.AS_FAST]


@together.test
async def test_a_size_that_cannot_be_keeps_no_class_from_its_volume(place: Place):
    _, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(place, "fast", **growing.FAST)

    await growing.ask(place, "70000Gi", attributes=fast)
    claim = await growing.changed(place, fast)

    claim = await growing.claim_when(
        place, "refused", lambda c: growing.resize_status(c) == "ControllerResizeInfeasible"
    )
    assert growing.capacity(claim) == "20Gi"
    assert growing.AS_FAST in await growing.modifies(place, volume_id)
    await growing.told(place, "VolumeResizeFailed", "65536")
    assert await growing.events(place, "VolumeModifyFailed") == []


@together.test
async def test_what_ec2_refuses_of_a_class_is_left_out_and_the_size_goes_alone(place: Place):
    _, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    await place.cluster.fault(
        "ModifyVolume",
        n=10,
        match={"VolumeId": volume_id, "Iops": "*"},
        code="InvalidParameterCombination",
        message="This volume cannot have so many IOPS.",
        http_status=400,
    )

    await growing.ask(place, "24Gi", attributes=fast)
    claim = await growing.kubelet_grows(place)
    claim = await growing.claim_when(
        place, "Infeasible", lambda c: growing.modify_status(c) == "Infeasible"
    )

    assert growing.capacity(claim) == "24Gi"
    assert "ModifyVolumeError" in growing.conditions(claim)
    await growing.told(place, "VolumeModifyFailed", "cannot have so many IOPS")
    sent = await growing.modifies(place, volume_id)
    assert sent[0] == {"Size": "24", **growing.AS_FAST}
    assert {"Size": "24"} in sent


@together.test
async def test_what_ec2_refuses_of_a_size_is_left_out_and_the_class_goes_alone(place: Place):
    _, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    await place.cluster.fault(
        "ModifyVolume",
        n=10,
        match={"VolumeId": volume_id, "Size": "*"},
        code="InvalidParameterValue",
        message="This volume cannot be so large.",
        http_status=400,
    )

    await growing.ask(place, "24Gi", attributes=fast)
    await growing.changed(place, fast)

    claim = await growing.claim_when(
        place, "refused", lambda c: growing.resize_status(c) == "ControllerResizeInfeasible"
    )
    assert growing.capacity(claim) == "20Gi"
    await growing.told(place, "VolumeResizeFailed", "cannot be so large")
    assert growing.AS_FAST in await growing.modifies(place, volume_id)


@together.test
async def test_a_class_of_another_driver_is_not_obeyed(place: Place):
    _, volume_id = await growing.a_volume(place)
    others = await growing.attributes_class(
        place, "others", driver="efs.csi.aws.com", **growing.FAST
    )

    await growing.ask(place, attributes=others)
    await growing.told(place, "VolumeModifyFailed", "efs.csi.aws.com")
    await growing.ask(place, "24Gi")
    claim = await growing.kubelet_grows(place)

    assert growing.capacity(claim) == "24Gi"
    assert growing.current_class(claim) == ""
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_wish_that_is_taken_back_before_it_could_be_met_is_gone(place: Place):
    _, volume_id = await growing.a_volume(place)
    await growing.ask(place, attributes=f"{place.name}-never")
    await growing.claim_when(place, "Pending", lambda c: growing.modify_status(c) == "Pending")

    path = f"{place.claims}/data"
    await place.api.patch(path, {"spec": {"volumeAttributesClassName": None}})
    claim = await growing.claim_when(
        place, "nothing is left of it", lambda c: growing.modify_status(c) == ""
    )

    assert not growing.conditions(claim).keys() & {"ModifyingVolume", "ModifyVolumeError"}
    assert await growing.modifies(place, volume_id) == []


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster):
    await calm.assert_calm(cluster)
