"""What the machine is made of and what it says; it is started by hand (docs/reference/e2e.md)."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.vm import __main__ as command


def module(folder: Path, name: str, depends: str = "") -> Path:
    path = folder / "kernel/drivers" / f"{name}.ko"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0")
    return path


def test_a_module_comes_after_those_that_it_depends_on(tmp_path: Path):
    pci = module(tmp_path, "virtio_pci", "virtio_ring,virtio")
    ring = module(tmp_path, "virtio_ring", "virtio")
    virtio = module(tmp_path, "virtio")
    xfs = module(tmp_path, "xfs", "libcrc32c")
    checksum = module(tmp_path, "libcrc32c")

    order = command.in_order(("xfs", "virtio_pci", "virtio_ring"), tmp_path)

    assert order == [checksum, xfs, virtio, ring, pci]


def test_a_module_is_found_whichever_dash_its_file_has_and_not_if_it_is_built_in(tmp_path: Path):
    crypt = module(tmp_path, "dm-crypt", "dm-mod")
    mapper = module(tmp_path, "dm-mod")

    assert command.in_order(("dm_crypt", "ext4"), tmp_path) == [mapper, crypt]


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("1 passed\ntests.vm: status 0\r\n[ 9.1] reboot: Power down\n", 0),
        ("1 failed\ntests.vm: status 1\n", 1),
        ("Kernel panic - not syncing\n", None),
        ("echo tests.vm: status 0\n", None),
    ],
)
def test_only_a_machine_that_came_to_its_end_has_a_status(output: str, status: int | None):
    assert command.status_in(output) == status


def test_packages_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    result = CliRunner().invoke(command.main, ["--packages", str(tmp_path), "tests/node"])

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        (
            "Error: these packages of Debian are needed: qemu-system-x86 linux-image-cloud-amd64 "
            "busybox-static (or --packages FOLDER)"
        )
    ]


def test_who_is_not_root_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = CliRunner().invoke(command.main, ["--packages", str(tmp_path), "tests/node"])

    assert "run it as root" in result.stderr


def test_options_of_pytest_are_handed_on_as_they_are():
    assert " tests/node -k 'ext4 and used'\n" in command.command_of(
        ["tests/node", "-k", "ext4 and used"]
    )
