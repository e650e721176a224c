from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.sandbox import go_cache


def a_file(path: Path, size: int, age_s: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (10**9 - age_s, 10**9 - age_s))
    return path


def names(work: Path) -> set[str]:
    return {str(each.relative_to(work)) for each in work.rglob("*") if each.is_file()}


COMPILED = "build/00/00-d"
ARCHIVE = "modules/cache/download/k8s.io/api/@v/v1.zip"
CHECKED = "path/pkg/sumdb/latest"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Go's caches after a build."""
    for name in (
        *(COMPILED, ARCHIVE, CHECKED),
        *("modules/k8s.io/api@v1/a.go", "made/kubelet", "tmp/go-build1/x", "stdout"),
        *("k8s.io_kubernetes@v1.36.3/go.mod", "config/go/telemetry/local"),
    ):
        a_file(tmp_path / name, 1_000)
    return tmp_path


def test_what_was_compiled_and_downloaded_is_kept_and_nothing_else(work: Path) -> None:
    go_cache.keep(work)

    assert names(work) == {COMPILED, ARCHIVE, CHECKED}
    assert go_cache.size(work) == 3_000


def test_beyond_the_bound_what_was_not_used_for_longest_is_removed(work: Path) -> None:
    a_file(work / "build/01/01-d", 1_000, age_s=60)
    a_file(work / "build/02/02-d", 1_000, age_s=120)

    go_cache.keep(work, limit_gb=4e-6)

    assert names(work) == {COMPILED, ARCHIVE, CHECKED, "build/01/01-d"}


def test_a_download_is_kept_however_long_ago_it_was_made(work: Path) -> None:
    # Go does not renew its time: the next build would need a network.
    a_file(work / ARCHIVE, 1_000, age_s=10_000)

    go_cache.keep(work, limit_gb=2e-6)

    assert names(work) == {ARCHIVE, CHECKED}


SOURCES = ("modules/k8s.io/api@v1", "modules/k8s.io/client-go@v1")


@pytest.mark.parametrize("tidy", [go_cache.keep, go_cache.remove])
def test_sources_whose_removal_is_interrupted_are_whole_or_gone(
    work: Path, monkeypatch: pytest.MonkeyPatch, tidy: Callable[[Path], object]
) -> None:
    for folder in SOURCES:
        for name in "abc":
            a_file(work / folder / f"{name}.go", 10)

    def killed(folder: Path) -> None:
        next(each for each in folder.rglob("*") if each.is_file()).unlink()
        raise KeyboardInterrupt

    while True:  # killed once in each removal that it makes
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", killed)
            try:
                tidy(work)
                break
            except KeyboardInterrupt:
                left = [work / folder for folder in SOURCES if (work / folder).exists()]
                assert [len(list(each.iterdir())) for each in left] == [3] * len(left)
        go_cache.begin(work)

    assert [folder for folder in SOURCES if (work / folder).exists()] == []
    assert not (work / "old").exists()


def test_a_build_begins_with_modules_of_ours_that_it_writes_itself(work: Path) -> None:
    a_file(work / "old/0/a.go", 10)

    go_cache.begin(work)

    assert names(work) == {COMPILED, ARCHIVE, CHECKED, "modules/k8s.io/api@v1/a.go"}


def test_a_cache_that_is_not_there_has_no_size_and_can_be_kept(tmp_path: Path) -> None:
    go_cache.keep(tmp_path / "none")

    assert go_cache.size(tmp_path / "none") == 0
    assert go_cache.remove(tmp_path / "none") == 0


def test_all_of_it_can_be_removed(work: Path) -> None:
    assert go_cache.remove(work) == 9_000
    assert not work.exists()
