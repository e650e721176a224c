from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.real_node import fleet, requirements
from provisioner.sandbox.real_node.requirements import (
    CNI_PACKAGE,
    CNI_PLUGINS,
    PROGRAMS,
    all_missing,
    is_static,
    missing,
)

INTERPRETER = 3
LOADED = 1


def elf(*kinds: int) -> bytes:
    """A 64-bit program of nothing but headers."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 32, 64)  # where its program headers are
    struct.pack_into("<HH", header, 54, 56, len(kinds))
    return bytes(header) + b"".join(struct.pack("<I52x", kind) for kind in kinds)


@pytest.fixture(autouse=True)
def cni_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of CNI plugins, with all of them."""
    folder = made(tmp_path / "cni", CNI_PLUGINS)
    monkeypatch.setattr(requirements, "CNI_FOLDERS", (str(tmp_path / "none"), str(folder)))
    return folder


def made(folder: Path, names: Iterable[str]) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(elf(LOADED))
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return made(tmp_path / "bin", PROGRAMS)


def why(programs: Path, user_id: int = 0, system: str = "linux") -> str:
    return missing(str(programs), user_id=user_id, system=system)


def test_elsewhere_than_on_linux_there_is_none(programs: Path) -> None:
    assert why(programs, system="darwin") == "a real node needs Linux"


@pytest.mark.parametrize("release", ["5.12.19-generic", "4.19.0-26-amd64"])
def test_with_an_old_kernel_there_is_none(programs: Path, release: str) -> None:
    told = missing(str(programs), user_id=0, system="linux", release=release)

    assert told == "a real node needs Linux 5.13 or newer"


@pytest.mark.parametrize("release", ["5.13.0", "6.1.0-18-amd64", "10.0", "strange"])
def test_with_a_newer_one_it_depends_on_the_rest(programs: Path, release: str) -> None:
    (programs / "runc").unlink()

    told = missing(str(programs), user_id=0, system="linux", release=release)
    assert told.endswith("apt install runc")


def test_without_root_there_is_none(programs: Path) -> None:
    assert why(programs, user_id=1000).startswith("a real node needs root")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_missing_program_is_named_by_the_package_to_install(programs: Path, name: str) -> None:
    (programs / name).unlink()

    assert why(programs) == f"a real node needs programs: apt install {PROGRAMS[name]}"


def test_the_first_folder_with_all_plugins_is_the_one(cni_folder: Path) -> None:
    assert requirements.cni_plugins() == str(cni_folder)


@pytest.mark.parametrize("name", CNI_PLUGINS)
def test_a_missing_plugin_is_named_by_its_package(
    programs: Path, cni_folder: Path, name: str
) -> None:
    (cni_folder / name).unlink()

    assert requirements.cni_plugins() == ""
    assert why(programs) == f"a real node needs programs: apt install {CNI_PACKAGE}"


def test_without_its_extra_the_node_plugin_cannot_run(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda _: None)

    assert why(programs).endswith("pip install 'ebs-provisioner[node]'")


def test_who_is_not_root_is_told_what_root_has_to_install(programs: Path) -> None:
    (programs / "runc").unlink()

    told = all_missing(str(programs), user_id=1000, system="linux")
    assert told.startswith("a real node needs root: ")
    assert told.endswith("; a real node needs programs: apt install runc")
    assert all_missing(str(programs), user_id=0, system="linux") == why(programs)
    assert all_missing(str(programs), user_id=1000, system="darwin") == "a real node needs Linux"


def test_a_busybox_with_libraries_is_none(programs: Path) -> None:
    # It could not run in an image that holds nothing else.
    (programs / "busybox").write_bytes(elf(LOADED, INTERPRETER))

    assert why(programs) == "a real node needs programs: apt install busybox-static"


@pytest.mark.parametrize(
    ("content", "static"),
    [
        (elf(LOADED), True),
        (elf(), True),
        (elf(INTERPRETER), False),
        (b"#!/bin/sh\n", False),
        (b"", False),
        (elf(LOADED)[:60], False),
        (b"\x7fELF\x01\x01" + bytes(60), False),  # of 32 bits
    ],
)
def test_a_static_program_names_no_interpreter(
    tmp_path: Path, content: bytes, *, static: bool
) -> None:
    (tmp_path / "program").write_bytes(content)

    assert is_static(tmp_path / "program") is static


@pytest.mark.skipif(sys.platform != "linux", reason="programs of Linux")
def test_python_itself_is_not_static() -> None:
    assert not is_static(Path(sys.executable).resolve())


def test_whoever_wants_one_all_the_same_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing", lambda: "a real node needs Linux")

    with pytest.raises(SandboxError, match=r"^a real node needs Linux$"):
        fleet.demand()
