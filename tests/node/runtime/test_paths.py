"""Paths of the kubelet: links, what is in the way, and what is removed."""

import os
import socket

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.paths import Paths

pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


@pytest.fixture
def kubelet(tmp_path):
    folder = tmp_path / "kubelet"
    folder.mkdir()
    return folder


@pytest.fixture
def paths(kubelet):
    return Paths(BlockingCalls(), kubelet)


async def test_a_path_that_is_not_there_yet_is_as_it_is(paths, kubelet):
    path = kubelet / "pods" / "a" / "mount"

    assert await paths.real(str(path)) == str(path)


async def test_links_within_the_kubelets_folder_are_followed(paths, kubelet):
    (kubelet / "real").mkdir()
    (kubelet / "pods").symlink_to("real")

    assert await paths.real(f"{kubelet}/pods/mount") == f"{kubelet}/real/mount"


async def test_the_kubelets_folder_itself_may_be_a_link(kubelet, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(kubelet)

    assert await Paths(BlockingCalls(), link).real(f"{link}/mount") == f"{kubelet}/mount"


@pytest.mark.parametrize("to", ["/etc", "../..", "loop"])
async def test_links_out_of_it_are_refused(paths, kubelet, to):
    (kubelet / "loop").symlink_to("/tmp")  # noqa: S108 -- any folder elsewhere
    (kubelet / "pods").symlink_to(to)

    with pytest.raises(NodeError, match="the link that leads out of it") as refused:
        await paths.real(f"{kubelet}/pods/mount")

    assert refused.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize("path", ["", "/../kubelet", "/..", "/../etc/passwd"])
async def test_the_folder_itself_and_what_is_beside_it_are_refused(paths, kubelet, path):
    with pytest.raises(NodeError, match="is not below"):
        await paths.real(f"{kubelet}{path}")


async def test_a_link_at_the_end_is_refused(paths, kubelet):
    (kubelet / "mount").symlink_to(kubelet / "elsewhere")

    with pytest.raises(NodeError, match="is a symbolic link; remove it"):
        await paths.real(f"{kubelet}/mount")


async def test_makes_what_is_not_there_and_takes_what_is(paths, kubelet):
    for _ in range(2):
        await paths.make_directory(f"{kubelet}/a/b")
        await paths.make_file(f"{kubelet}/c/d")

    assert (kubelet / "a/b").is_dir()
    assert (kubelet / "c/d").read_bytes() == b""


async def test_a_file_on_the_way_is_told(paths, kubelet):
    (kubelet / "a").write_text("in the way")

    for make in (paths.make_directory, paths.make_file):
        with pytest.raises(NodeError, match="or one of its parents") as refused:
            await make(f"{kubelet}/a/b")
        assert refused.value.reason is Reason.MOUNT_FAILED


async def test_another_failure_is_told_as_the_kernel_tells_it(paths, kubelet):
    with pytest.raises(NodeError, match="cannot be created: File name too long"):
        await paths.make_directory(f"{kubelet}/{'a' * 300}")


async def test_removes_what_is_empty_only(paths, kubelet):
    (kubelet / "directory").mkdir()
    (kubelet / "file").touch()
    (kubelet / "full").mkdir()
    (kubelet / "full/file").write_text("kept")
    for name in ("directory", "file", "full", "full/file", "gone"):
        await paths.remove("vol-1", f"{kubelet}/{name}")

    assert sorted(os.listdir(kubelet)) == ["full"]  # noqa: PTH208
    assert (kubelet / "full/file").read_text() == "kept"


async def test_leaves_what_is_neither_a_file_nor_a_directory(paths, kubelet, monkeypatch):
    monkeypatch.chdir(kubelet)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    await paths.remove("vol-1", f"{kubelet}/socket")

    assert (kubelet / "socket").is_socket()


async def test_what_is_no_block_device_has_no_number(paths, kubelet):
    assert await paths.device_number(f"{kubelet}") is None
    assert await paths.device_number(f"{kubelet}/gone") is None
