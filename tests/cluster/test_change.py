"""A VolumeAttributesClass changes type, IOPS, throughput and tags, alone and beside a new size."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster import growing
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, opened
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background, "--modify-annotations") as running:
        yield running


async def tells(place: Place, volume_id: str) -> dict[str, object]:
    """What a class can change, as EC2 shows it."""
    volume = await place.cluster.volume(volume_id)
    assert volume is not None
    return {key: volume.get(key) for key in ("VolumeType", "Iops", "Throughput", "Size")}


@together.test
async def test_a_class_changes_iops_throughput_and_tags_by_one_modification(place: Place):
    pv, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(
        place, "fast", **growing.FAST, tagSpecification_1="team=a", tagSpecification_2="tier=fast"
    )

    await growing.ask(place, attributes=fast)
    await growing.changed(place, fast)

    assert await tells(place, volume_id) == {
        "VolumeType": "gp3",
        "Iops": 5_000,
        "Throughput": 300,
        "Size": 20,
    }
    tags = await growing.tags_of(place, volume_id)
    assert (tags["team"], tags["tier"]) == ("a", "fast")
    assert await growing.modifies(place, volume_id) == [growing.AS_FAST]
    await growing.told(place, "VolumeModify", f"modifying volume data with vac {fast}")
    await growing.told(place, "VolumeModifySuccessful", f"with vac {fast} successfully")
    assert await growing.size_of(place, pv) == "20Gi"


@together.test
async def test_keys_are_read_in_either_case(place: Place):
    _, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(place, "fast", Type="GP3", IOPS="5000", Throughput="300")

    await growing.ask(place, attributes=fast)
    await growing.changed(place, fast)

    assert await growing.modifies(place, volume_id) == [growing.AS_FAST]


@together.test
async def test_another_type(place: Place):
    _, volume_id = await growing.a_volume(place)
    io2 = await growing.attributes_class(place, "io2", type="io2", iops="1000")

    await growing.ask(place, attributes=io2)
    await growing.changed(place, io2)

    told = await tells(place, volume_id)
    assert (told["VolumeType"], told["Iops"]) == ("io2", 1_000)
    assert await growing.modifies(place, volume_id) == [{"VolumeType": "io2", "Iops": "1000"}]


@together.test
async def test_tags_alone_cost_no_modification(place: Place):
    _, volume_id = await growing.a_volume(place)
    first = await growing.attributes_class(
        place, "first", tagSpecification_1="team=a", tagSpecification_2="old=yes"
    )
    second = await growing.attributes_class(
        place, "second", tagSpecification_1="team=b", tagDeletion_1="old"
    )

    await growing.ask(place, attributes=first)
    await growing.changed(place, first)
    before = await growing.tags_of(place, volume_id)
    await growing.ask(place, attributes=second)
    await growing.changed(place, second)

    after = await growing.tags_of(place, volume_id)
    assert (before["team"], before["old"]) == ("a", "yes")
    assert after["team"] == "b"
    assert "old" not in after
    assert await growing.modifies(place, volume_id) == []


@together.test
async def test_what_ec2_has_already_is_not_asked_for(place: Place):
    _, volume_id = await growing.a_volume(place)
    same = await growing.attributes_class(place, "same", type="gp3", iops="3000", throughput="125")

    await growing.ask(place, attributes=same)
    await growing.changed(place, same)

    assert await growing.modifies(place, volume_id) == []


@together.test
async def test_size_and_class_at_once_are_one_modification(place: Place):
    _, volume_id = await growing.a_volume(place, volumeMode="Block")
    fast = await growing.attributes_class(place, "fast", **growing.FAST)

    await growing.ask(place, "24Gi", attributes=fast)
    claim = await growing.changed(place, fast)

    claim = await growing.has_size(place, "24Gi")
    assert growing.conditions(claim) == {}
    assert await growing.modifies(place, volume_id) == [{"Size": "24", **growing.AS_FAST}]


@together.test
async def test_a_claim_born_with_a_class_has_it_from_the_start(place: Place):
    fast = await growing.attributes_class(
        place, "fast", **growing.FAST, tagSpecification_1="team=a"
    )

    _, volume_id = await growing.a_volume(place, volumeAttributesClassName=fast)
    await growing.changed(place, fast)

    told = await tells(place, volume_id)
    assert (told["Iops"], told["Throughput"]) == (5_000, 300)
    assert (await growing.tags_of(place, volume_id))["team"] == "a"
    assert await growing.modifies(place, volume_id) == []


@together.test
async def test_the_old_annotations_change_a_volume_too(place: Place):
    _, volume_id = await growing.a_volume(place)
    wanted = {f"ebs.csi.aws.com/{key}": growing.FAST[key] for key in ("iops", "throughput")}

    await place.api.patch(f"{place.claims}/data", {"metadata": {"annotations": wanted}})
    await growing.volume_when(place, "5,000 IOPS", volume_id, lambda v: v["Iops"] == 5_000)

    assert await growing.modifies(place, volume_id) == [growing.AS_FAST]


@together.test
async def test_gp2_to_gp3_keeps_the_iops_that_the_volume_had(place: Place):
    await place.storage_class("grows", parameters={"type": "gp2"}, allowVolumeExpansion=True)
    _, volume_id = await growing.a_volume(place, resources={"requests": {"storage": "2000Gi"}})
    gp3 = await growing.attributes_class(place, "gp3", type="gp3")

    await growing.ask(place, attributes=gp3)
    await growing.changed(place, gp3)

    told = await tells(place, volume_id)
    assert told["VolumeType"] == "gp3"
    assert isinstance(told["Iops"], int)
    assert told["Iops"] >= 6_000


@together.test
@pytest.mark.parametrize("how", ["reset", "html", "error", "hang"])
async def test_a_lost_reply_costs_no_second_modification(place: Place, how: str):
    _, volume_id = await growing.a_volume(place, volumeMode="Block")
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    match = {"VolumeId": volume_id}
    await place.cluster.fault("ModifyVolume", how, when="after", match=match)

    await growing.ask(place, "24Gi", attributes=fast)
    await growing.changed(place, fast)
    await growing.has_size(place, "24Gi")

    assert await growing.modifies(place, volume_id) == [{"Size": "24", **growing.AS_FAST}]


@together.test
async def test_lost_replies_to_tagging_do_not_matter(place: Place):
    _, volume_id = await growing.a_volume(place)
    tagged = await growing.attributes_class(
        place, "tagged", tagSpecification_1="team=a", tagDeletion_1="gone"
    )
    match = {"ResourceId": volume_id}
    for action in ("CreateTags", "DeleteTags"):
        await place.cluster.fault(action, "reset", when="after", match=match)

    await growing.ask(place, attributes=tagged)
    await growing.changed(place, tagged)

    assert (await growing.tags_of(place, volume_id))["team"] == "a"


@together.test
async def test_iops_that_only_the_new_size_allows_are_asked_for_with_it(place: Place):
    _, volume_id = await growing.a_volume(place, volumeMode="Block")
    faster = await growing.attributes_class(place, "faster", type="gp3", iops="12000")

    await growing.ask(place, "30Gi", attributes=faster)
    await growing.changed(place, faster)
    await growing.has_size(place, "30Gi")

    assert await growing.modifies(place, volume_id) == [{"Size": "30", "Iops": "12000"}]


@together.test
async def test_more_iops_than_a_size_allows_are_lowered_and_told(place: Place):
    _, volume_id = await growing.a_volume(place)
    greedy = await growing.attributes_class(place, "greedy", type="gp3", iops="900000")

    await growing.ask(place, attributes=greedy)
    await growing.changed(place, greedy)

    await growing.told(place, "", "IopsCapped", "900000", "10000")
    assert await growing.modifies(place, volume_id) == [{"Iops": "10000"}]
