"""Documents in the set of the sandbox's programs: the kinds of VolumeSnapshots."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
import yaml

from provisioner.sandbox import build
from provisioner.sandbox.binaries import ensure_binaries
from provisioner.sandbox.compiler import Compiler
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.maker import GoMaker, Step, Tell, module_text
from provisioner.sandbox.programs import (
    CONTROL_PLANE,
    DEFAULT_KUBERNETES,
    SNAPSHOT_CONTROLLER,
    SNAPSHOT_CRDS,
    SNAPSHOTTER,
    Module,
    program,
)

CRDS = program(SNAPSHOT_CRDS, DEFAULT_KUBERNETES)
SNAPSHOTS = {SNAPSHOT_CONTROLLER, SNAPSHOT_CRDS}


class Cache:
    """A user's cache and a build that only notes what it makes."""

    def __init__(self, root: Path) -> None:
        self.environment = {"PATH": str(root / "bin"), "XDG_CACHE_HOME": str(root)}
        self.root = root / "ebs-provisioner"
        self.bin = root / "bin"
        self.made: list[str] = []

    def make(self, step: Step, folder: Path, tell: Tell) -> None:
        tell(0.5)
        for each in step:
            self.made.append(each.name)
            (folder / each.name).write_text(each.name)

    def ensure(self, programs: tuple[str, ...] = CONTROL_PLANE) -> Path:
        return ensure_binaries(programs=programs, environment=self.environment, make=self.make)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def before_snapshots() -> tuple[str, ...]:
    """The set as a checkout from before there were snapshots has made it."""
    return tuple(name for name in CONTROL_PLANE if name not in SNAPSHOTS)


def test_a_set_that_was_made_before_snapshots_is_completed_and_not_made_again(
    cache: Cache,
) -> None:
    cache.ensure(before_snapshots())
    cache.made.clear()

    folder = cache.ensure()

    assert set(cache.made) == SNAPSHOTS
    assert folder == cache.root / DEFAULT_KUBERNETES
    assert {path.name for path in folder.iterdir()} == set(CONTROL_PLANE)
    home = cache.root / f"{SNAPSHOT_CRDS}-{SNAPSHOTTER}" / SNAPSHOT_CRDS
    assert (folder / SNAPSHOT_CRDS).resolve() == home


def test_two_that_complete_a_set_at_once_make_it_once(cache: Cache, tmp_path: Path) -> None:
    cache.ensure(before_snapshots())
    cache.made.clear()
    start = threading.Barrier(2, timeout=10)
    other = Cache(tmp_path)

    def complete(which: Cache) -> None:
        start.wait()
        which.ensure()

    threads = [threading.Thread(target=complete, args=(each,)) for each in (cache, other)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)

    assert sorted(cache.made + other.made) == sorted(SNAPSHOTS)
    assert build.missing(cache.root / DEFAULT_KUBERNETES, [CRDS]) == []


def test_a_document_needs_no_right_to_be_run_and_gets_none(cache: Cache) -> None:
    folder = cache.ensure()
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}

    assert modes.pop(SNAPSHOT_CRDS) == 0o644
    assert set(modes.values()) == {0o755}


@pytest.mark.parametrize(("there", "needed"), [((), 6), (before_snapshots(), 3)])
def test_what_only_completes_a_set_needs_less_room(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], needed: int
) -> None:
    if there:
        cache.ensure(there)
    nothing_free = type("Usage", (), {"free": 0})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: nothing_free)

    with pytest.raises(SandboxError, match=f"needs {needed} GB for a few minutes"):
        cache.ensure()


def a_go(folder: Path, module: Path) -> Compiler:
    """A compiler that has downloaded one module."""
    path = folder / "go"
    facts = json.dumps({"GoVersion": "1.26.0", "GoMod": "/m.mod", "Dir": str(module)})
    path.write_text(f"#!/bin/sh\necho '{facts}'\necho \"$@\" >> {folder}/arguments\n")
    path.chmod(0o755)
    return Compiler(str(path), (1, 26, 8), {"PATH": "/bin:/usr/bin"})


def test_a_document_is_put_together_from_the_files_of_its_module(tmp_path: Path) -> None:
    module = tmp_path / "module"
    for number, name in enumerate(CRDS.documents):
        (module / name).parent.mkdir(parents=True, exist_ok=True)
        (module / name).write_text(f"---\nkind: {number}\n")

    GoMaker(tmp_path, [a_go(tmp_path, module)]).make((CRDS,), tmp_path, print)

    found = [each for each in yaml.safe_load_all((tmp_path / SNAPSHOT_CRDS).read_text()) if each]
    assert found == [{"kind": number} for number in range(len(CRDS.documents))]
    wanted = f"mod download -json {CRDS.module.path}@{SNAPSHOTTER}"
    assert wanted in (tmp_path / "arguments").read_text().splitlines()


def test_a_module_without_such_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    maker = GoMaker(tmp_path, [a_go(tmp_path, tmp_path)])

    with pytest.raises(SandboxError, match=f"client/v8@{SNAPSHOTTER} cannot be read") as failure:
        maker.make((CRDS,), tmp_path, print)
    assert "\n" not in str(failure.value)
    assert not (tmp_path / SNAPSHOT_CRDS).exists()


def test_what_a_module_replaces_by_a_folder_of_its_own_is_required_as_it_was_released() -> None:
    module = Module("example.org/a", "v8.7.0", beside=(("example.org/a/client", "v8.7.0"),))

    assert module_text(module, "module example.org/a\n\ngo 1.26.0\n").splitlines() == [
        "module ebs-provisioner.invalid/build",
        "go 1.26.0",
        "require example.org/a v8.7.0",
        "require example.org/a/client v8.7.0",
    ]
