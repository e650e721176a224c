from __future__ import annotations

import os
from pathlib import Path

import pytest

from provisioner.sandbox.real_node import layers, syscalls

root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@root
def test_the_trial_leaves_neither_a_mount_nor_a_file(tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()

    assert layers.snapshotter(tmp_path) in layers.SNAPSHOTTERS

    assert Path("/proc/self/mountinfo").read_text() == before
    assert [*tmp_path.iterdir()] == []


def test_where_the_kernel_takes_overlays_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted: list[tuple[str, ...]] = []
    monkeypatch.setattr(syscalls, "unshare", lambda _: None)
    monkeypatch.setattr(syscalls, "mount", lambda *args: mounted.append(args))

    assert layers.snapshotter(tmp_path) == "overlayfs"

    assert [kind for _, _, kind, *_ in mounted] == ["", "overlay"]


@pytest.mark.parametrize("refused", ["unshare", "mount"])
def test_where_it_refuses_images_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(syscalls, "unshare", lambda _: None)
    monkeypatch.setattr(syscalls, refused, refuse)

    assert layers.snapshotter(tmp_path) == "native"
