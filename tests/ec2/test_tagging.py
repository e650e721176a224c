"""Tags written on volumes that are there."""

from provisioner.ec2.batches import whole
from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import Reason
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request

GONE = "vol-0123456789abcdef0"


async def test_many_volumes_are_tagged_by_one_call_and_keep_what_they_have(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    made = [(await volumes.create(a_request(f"v{n}"))).volume_id for n in range(3)]

    await volumes.tag(made, {"env": "prod", "empty": ""})

    found = whole(await volumes.describe(made, background=True))
    assert {id_: dict(volume.tags) for id_, volume in found.items()} == {
        id_: {"Name": f"v{n}", "env": "prod", "empty": ""} for n, id_ in enumerate(made)
    }
    assert strict_ec2.counts()["CreateTags"] == 1


async def test_a_volume_that_is_gone_does_not_keep_the_others(volumes: Volumes) -> None:
    made = (await volumes.create(a_request("one"))).volume_id

    await volumes.tag([GONE, made], {"env": "prod"})
    await volumes.tag([GONE], {"env": "prod"})

    assert whole(await volumes.describe([made]))[made].tags["env"] == "prod"


async def test_more_tags_than_a_volume_can_have_are_a_clear_no(volumes: Volumes) -> None:
    made = (await volumes.create(a_request("one"))).volume_id

    refused = await volumes.tag([made], {f"k{n}": "v" for n in range(50)})

    assert [(each, why.reason) for each, why in refused.items()] == [(made, Reason.QUOTA_EXCEEDED)]
