import asyncio

import pytest

from provisioner.node.inotify import Watch

pytestmark = pytest.mark.usefixtures("no_leaked_tasks")
LONG_S = 30.0


async def told(watch, timeout_s=LONG_S):
    """Whether it told before the time was over."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    await watch.changed(timeout_s)
    return loop.time() < until_s


@pytest.mark.parametrize("how", ["file", "folder", "link", "moved", "mode"])
async def test_what_comes_in_a_folder_is_told(tmp_path, how):
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "folder"
    folder.mkdir()
    elsewhere.touch()
    (folder / "old").touch()
    with Watch() as watch:
        watch.follow([folder])
        match how:
            case "file":
                (folder / "a").touch()
            case "folder":
                (folder / "a").mkdir()
            case "link":
                (folder / "a").symlink_to("nowhere")
            case "moved":
                elsewhere.rename(folder / "a")
            case "mode":
                (folder / "old").chmod(0o600)

        assert await told(watch)


async def test_what_came_between_following_and_waiting_is_told(tmp_path):
    with Watch() as watch:
        watch.follow([tmp_path])
        (tmp_path / "a").touch()
        await asyncio.sleep(0)

        assert await told(watch)


async def test_a_folder_that_is_made_later_is_followed_from_then_on(tmp_path):
    later = tmp_path / "later"
    with Watch() as watch:
        watch.follow([tmp_path, later])
        later.mkdir()
        assert await told(watch)
        watch.follow([tmp_path, later])
        (later / "a").touch()

        assert await told(watch)


async def test_without_an_event_it_waits_for_its_time_only(tmp_path):
    with Watch() as watch:
        watch.follow([tmp_path])

        assert not await told(watch, 0.01)


async def test_very_many_events_are_told_too(tmp_path):
    with Watch() as watch:
        watch.follow([tmp_path])
        for name in range(2000):
            (tmp_path / str(name)).touch()

        assert await told(watch)
