"""The plain claim's way from a pass to CreateVolume stays plain: what only others need is far."""

from __future__ import annotations

from typing import Any

from tests.builders import UID, a_claim, a_persistent_volume, a_volume
from tests.controller.files_entered import FilesEntered
from tests.controller.provisioning.test_flow import CLAIM, PINNED, World

STORIES = ("controller/", "classes/")
PATH = {
    "controller/provisioning/flow.py",
    "controller/provisioning/plan_rules.py",
    "controller/provisioning/client_token_rules.py",
    "classes/storage_class_rules.py",  # once for each revision of the class
    "controller/placement/flow.py",
    "controller/placement/zone_rules.py",
    "controller/claims/zone_annotations.py",
    "controller/provisioning/creation.py",
    "controller/provisioning/creation_rules.py",
}


async def entered(world: World) -> set[str]:
    """The files of stories and classes that are entered until EC2 is asked for the volume."""
    create, files = world.ec2.create, FilesEntered()

    async def asked(*args: Any, **named: Any) -> Any:
        files.stop()
        return await create(*args, **named)

    world.ec2.create = asked  # type: ignore[method-assign]
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [a_volume()]
    with files.noted():
        await world.provisioner.reconcile(UID)
    return files.of(*STORIES) - files.of("controller/shared/")


async def test_a_plain_claim_enters_no_file_that_only_others_need():
    assert await entered(World(CLAIM)) == PATH


async def test_a_claim_of_the_process_before_us_enters_more():
    world = World(CLAIM)
    world.provisioner.takeover.begin([a_claim()], from_stranger=False)

    assert "controller/ownership/takeover.py" in await entered(world)
