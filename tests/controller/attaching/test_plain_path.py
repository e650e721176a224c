"""A plain attachment's way from its event to AttachVolume stays plain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.controller.attach_world import AttachWorld, in_attach_world
from tests.controller.files_entered import FilesEntered

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = {
    "controller/attaching/flow.py",
    "controller/attaching/rules.py",
    "controller/attaching/state.py",
    "controller/attaching/initialization.py",  # one line: no data is waited for
}


def entered(wish: Callable[[AttachWorld], Any]) -> set[str]:
    """The files of attaching that are entered until EC2 is asked to attach the volume."""

    async def story(world: AttachWorld) -> set[str]:
        attach, files = world.ec2.attach, FilesEntered()

        async def asked(*args: Any, **named: Any) -> Any:
            files.stop()
            return await attach(*args, **named)

        world.ec2.attach = asked  # type: ignore[method-assign]
        with files.noted():
            wish(world)
            await asyncio.sleep(5)
        assert world.cloud.actions() == ["AttachVolume"]
        return files.of("controller/attaching/")

    return in_attach_world(story)


def test_a_plain_attachment_enters_no_file_that_only_others_need():
    assert entered(lambda world: world.wish()) == PATH


def test_a_raw_device_enters_no_other():
    assert entered(lambda world: world.wish(volume_mode="Block")) == PATH
