"""The socket file: left over, taken, gone, wiped; over real unix sockets."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.csi.endpoint import Endpoint, _hidden_name
from provisioner.node.csi.registration import Identity
from provisioner.node.csi.server import service
from provisioner.node.metrics.counters import NodeMetrics
from tests.node.caller import calling

LOOK_S = 0.02


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plugins" / "ebs.csi.aws.com" / "csi.sock"


def made(path: Path, driver: str = "ebs.csi.aws.com") -> Endpoint:
    identity = service("csi.v1.Identity", Identity(driver).rpcs(), NodeMetrics())
    return Endpoint(path, [identity], poll_s=LOOK_S)


@asynccontextmanager
async def opened(path: Path, driver: str = "ebs.csi.aws.com") -> AsyncIterator[Endpoint]:
    endpoint = made(path, driver)
    await endpoint.open()
    try:
        yield endpoint
    finally:
        await endpoint.close(0.0)


async def name_at(path: Path) -> str:
    async with calling(path) as call:
        return str((await call("GetPluginInfo")).name)


def left_over(path: Path) -> None:
    """As a process that was killed leaves it: bound, and nobody listens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    assert path.is_socket()


async def test_it_answers_and_goes_without_a_trace(path: Path):
    async with opened(path):
        assert await name_at(path) == "ebs.csi.aws.com"
        assert path.stat().st_mode & 0o777 == 0o600
        assert [p.name for p in path.parent.iterdir()] == ["csi.sock"]

    assert list(path.parent.iterdir()) == []


async def test_a_socket_file_left_over_is_replaced(path: Path):
    left_over(path)

    async with opened(path):
        assert await name_at(path) == "ebs.csi.aws.com"


async def test_a_hidden_file_left_over_is_replaced_too(path: Path):
    left_over(path.with_name(_hidden_name(path.name)))

    async with opened(path):
        assert [p.name for p in path.parent.iterdir()] == ["csi.sock"]


async def test_plugins_of_two_drivers_that_start_at_once_in_one_folder_answer_as_themselves(
    tmp_path: Path,
):
    drivers = ("ebs.csi.aws.com", "other.example")
    endpoints = [made(tmp_path / f"{driver}-reg.sock", driver) for driver in drivers]
    await asyncio.gather(*(each.open() for each in endpoints))
    try:
        async with asyncio.timeout(10):
            assert [await name_at(each.path) for each in endpoints] == list(drivers)
    finally:
        await asyncio.gather(*(each.close(0.0) for each in endpoints))


async def test_a_socket_on_which_somebody_answers_is_left_to_them(path: Path):
    async with opened(path, "the.first"):
        with pytest.raises(NodeError, match=r"another process answers on .*csi\.sock") as caught:
            await made(path).open()

        assert caught.value.reason is Reason.TARGET_BUSY
        assert await name_at(path) == "the.first"


async def test_a_file_that_is_no_socket_is_left_alone(path: Path):
    path.parent.mkdir(parents=True)
    path.write_text("precious")

    with pytest.raises(NodeError, match="is not a socket"):
        await made(path).open()

    assert path.read_text() == "precious"


async def test_a_path_too_long_for_a_socket_is_told(tmp_path: Path):
    with pytest.raises(NodeError, match="use a shorter --kubelet-dir"):
        await made(tmp_path / ("x" * 100) / "csi.sock").open()


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(NodeError, match=r"cannot listen on .*csi\.sock: "):
        await made(tmp_path / "file" / "csi.sock").open()


async def test_a_path_with_letters_that_a_uri_has_not_is_taken_as_it_is(tmp_path: Path):
    path = tmp_path / "a b%41?#é" / "csi.sock"
    async with opened(path):
        assert path.is_socket()
        assert not (tmp_path / "a bA").exists()


@pytest.mark.parametrize("gone", ["file", "folder", "another's"])
async def test_it_is_told_once_nobody_finds_it_any_more(path: Path, tmp_path: Path, gone: str):
    async with opened(path) as endpoint:
        lost = asyncio.ensure_future(endpoint.lost())
        await asyncio.sleep(3 * LOOK_S)
        assert not lost.done()

        if gone == "folder":
            shutil.rmtree(tmp_path / "plugins")
        else:
            path.unlink()
        if gone == "another's":
            path.touch()

        await asyncio.wait_for(lost, 10)


async def test_the_end_of_an_old_one_leaves_the_new_ones_file(path: Path):
    first = made(path, "the.first")
    await first.open()
    path.unlink()
    async with opened(path, "the.second"):
        await first.close(0.0)

        assert await name_at(path) == "the.second"


def test_a_hidden_name_is_short_and_each_driver_has_its_own():
    names = {_hidden_name(f"{driver}-reg.sock") for driver in ("ebs.csi.aws.com", "other.example")}

    assert len(names) == 2
    assert all(len(each) <= 9 for each in names)
