"""The plain claim's way from a pass to CreateVolume stays plain: what only others need is far."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import provisioner
from tests.builders import UID, a_claim, a_persistent_volume, a_volume
from tests.controller.provisioning.test_flow import CLAIM, PINNED, World

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(provisioner.__file__).parent
PATH = {
    "controller/provisioning/flow.py",
    "controller/provisioning/plan_rules.py",
    "controller/provisioning/client_token_rules.py",
    "classes/storage_class_rules.py",  # once for each revision of the class
    "controller/placement/zone_choice.py",
    "controller/placement/zone_rules.py",
    "controller/claims/zone_annotations.py",
    "controller/provisioning/creation.py",
    "controller/provisioning/creation_rules.py",
}


async def entered(world: World) -> set[str]:
    """The files of stories and classes that are entered until EC2 is asked for the volume."""
    files: set[str] = set()
    create = world.ec2.create

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    async def asked(*args: Any, **named: Any) -> Any:
        sys.setprofile(before)
        return await create(*args, **named)

    world.ec2.create = asked  # type: ignore[method-assign]
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [a_volume()]
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        await world.provisioner.reconcile(UID)
    finally:
        sys.setprofile(before)
    ours = {Path(file).relative_to(ROOT).as_posix() for file in files if ROOT in Path(file).parents}
    shared = "controller/shared/"
    return {f for f in ours if f.startswith(("controller/", "classes/")) and shared not in f}


async def test_a_plain_claim_enters_no_file_that_only_others_need():
    assert await entered(World(CLAIM)) == PATH


async def test_a_claim_of_the_process_before_us_enters_more():
    world = World(CLAIM)
    world.provisioner.takeover.begin([a_claim()], from_stranger=False)

    assert "controller/ownership/takeover.py" in await entered(world)
