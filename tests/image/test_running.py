"""The image, run by containerd and runc."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from image.build import Built
from image.source import describe
from tests.documents import ROOT
from tests.image import engine as engines
from tests.image.engine import Engine

_SIZE = 400 * 1024 * 1024  # mkfs.xfs wants 300 MiB
_FILE_SYSTEMS = """
import pathlib, shutil, subprocess, tempfile
from provisioner.node.runtime.programs import PATH

def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": PATH})
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout

device, kind = "DEVICE KIND".split()
where = tempfile.mkdtemp()
run(f"mkfs.{kind}", *(["-F"] if kind != "xfs" else []), device, *(["200M"] if kind != "xfs" else []))
assert run("blkid", "-p", "-s", "TYPE", "-o", "value", device).strip() == kind
if kind != "xfs":
    run("e2fsck", "-f", "-n", device)
    run("resize2fs", device)
run("mount", "-t", kind, device, where)
pathlib.Path(where, "file").write_text("x" * 100000)
if kind == "xfs":
    run("xfs_growfs", where)
run("sync", "-f", where)
run("umount", where)
run("mount", "-t", kind, "-o", "ro", device, where)
print(len(pathlib.Path(where, "file").read_text()), shutil.disk_usage(where).total)
run("umount", where)
"""
_IMPORT_ALL = """
import importlib, os, pkgutil
count = 0
for name in ("provisioner", "webhook"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        importlib.import_module(module.name)
        count += 1
print(os.getuid(), count)
"""


@pytest.fixture(scope="module")
def engine(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engines.require()
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    archive.write_bytes(built.archive.data)
    with Engine.of(archive) as running:
        yield running


@pytest.mark.parametrize("program", ["ebs-provisioner", "ebs-webhook"])
def test_its_programs_tell_their_version(engine: Engine, program: str):
    said = engine.run(f"version-{program}", program, "--version")

    assert said.strip() == f"{program}, version {describe(ROOT).version.partition('-')[0]}"


@pytest.mark.parametrize(
    "command",
    [
        ("ebs-provisioner", "controller"),
        ("ebs-provisioner", "node"),
        ("ebs-provisioner", "class", "check"),
        ("ebs-provisioner", "conformance"),
        ("ebs-webhook", "serve"),
    ],
    ids=" ".join,
)
def test_each_command_is_there(engine: Engine, command: tuple[str, ...]):
    assert "Usage: " in engine.run("-".join((*command, "help")), *command, "--help")


def test_all_our_modules_can_be_imported_by_its_user(engine: Engine):
    user, modules = engine.run("modules", "python3", "-c", _IMPORT_ALL).split()

    assert user == "65532"
    assert int(modules) > 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "disk"
    with file.open("wb") as opened:
        opened.truncate(_SIZE)
    made = subprocess.run(
        ["losetup", "--find", "--show", str(file)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a loop device is needed: {made.stderr.strip()}")
    device = made.stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.parametrize("kind", ["ext3", "ext4", "xfs"])
def test_its_own_programs_make_check_grow_and_mount_a_file_system(
    engine: Engine, disk: str, kind: str
):
    script = _FILE_SYSTEMS.replace("DEVICE KIND", f"{disk} {kind}")

    length, size = engine.run_as_the_node_plugin(script).split()

    assert int(length) == 100_000
    assert int(size) > 0.8 * _SIZE  # of all of the disk: ext was made with 200 MiB and grown
