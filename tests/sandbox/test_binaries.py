from __future__ import annotations

import time
from pathlib import Path

import pytest

from provisioner.sandbox.binaries import cache_folder, ensure_binaries, find_binaries
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.maker import Step, Tell
from provisioner.sandbox.programs import CONTROL_PLANE, DEFAULT_KUBERNETES, SNAPSHOT_CRDS

Made = list[str]


def a_program(folder: Path, name: str, version: str = "v1.36.1") -> None:
    """Write a script that answers as the program does when it is asked for its version."""
    answers = {
        "kubectl": f'echo \'{{"clientVersion": {{"gitVersion": "{version}"}}}}\'',
        "etcd": "exit 1",
        "kwok": "exit 1",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{answers.get(name, f'echo Kubernetes {version}')}\n")
    path.chmod(0o644 if name == SNAPSHOT_CRDS else 0o755)


def a_set(folder: Path, version: str = "v1.36.1", *, without: str = "") -> Path:
    for name in CONTROL_PLANE:
        if name != without:
            a_program(folder, name, version)
    return folder


class Machine:
    """Folders to find programs in, an empty cache, and a build that only writes a file."""

    def __init__(self, root: Path) -> None:
        self.environment = {"PATH": str(root / "bin"), "XDG_CACHE_HOME": str(root / "cache")}
        self.cache = root / "cache" / "ebs-provisioner"
        self.bin = root / "bin"
        self.made: Made = []

    def make(self, step: Step, folder: Path, tell: Tell) -> None:
        for program in step:
            self.made.append(program.name)
            tell(0.5)
            (folder / program.name).write_text("")

    def ensure(self, version: str | None = None) -> Path:
        return ensure_binaries(version, environment=self.environment, make=self.make)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_whole_set_on_path_is_taken_as_it_is(machine: Machine) -> None:
    a_set(machine.bin)

    assert machine.ensure() == machine.bin
    assert machine.made == []


def test_a_set_in_several_folders_becomes_one_folder_of_links(
    machine: Machine, tmp_path: Path
) -> None:
    a_set(machine.bin, without="kwok")
    a_program(tmp_path / "elsewhere", "kwok")
    machine.environment["PATH"] += f":{tmp_path / 'elsewhere'}"

    folder = machine.ensure()

    assert sorted(path.name for path in folder.iterdir()) == sorted(CONTROL_PLANE)
    assert (folder / "kwok").resolve() == tmp_path / "elsewhere" / "kwok"
    assert machine.ensure() == folder


def test_kubebuilder_assets_come_before_path(machine: Machine, tmp_path: Path) -> None:
    a_set(machine.bin, "v1.35.0")
    machine.environment["KUBEBUILDER_ASSETS"] = str(a_set(tmp_path / "assets"))

    assert machine.ensure() == tmp_path / "assets"


@pytest.mark.parametrize("absent", CONTROL_PLANE)
def test_a_set_that_is_not_whole_does_not_count(machine: Machine, absent: str) -> None:
    a_set(machine.bin, without=absent)

    assert machine.ensure() == machine.cache / DEFAULT_KUBERNETES
    assert machine.made == list(CONTROL_PLANE)


@pytest.mark.parametrize("odd", ["kubectl", "kube-scheduler"])
def test_a_set_of_two_minors_does_not_count(machine: Machine, odd: str) -> None:
    a_set(machine.bin, "v1.36.1")
    a_program(machine.bin, odd, "v1.35.9")

    assert machine.ensure() == machine.cache / DEFAULT_KUBERNETES


@pytest.mark.parametrize("version", ["v1.31.9", "v1.37.0", "v2.36.0"])
def test_a_set_of_a_minor_that_is_not_supported_does_not_count(
    machine: Machine, version: str
) -> None:
    a_set(machine.bin, version)

    assert machine.ensure() == machine.cache / DEFAULT_KUBERNETES


@pytest.mark.parametrize("version", ["v1.32.0", "v1.36.9"])
def test_a_whole_set_of_any_supported_minor_counts(machine: Machine, version: str) -> None:
    a_set(machine.bin, version)

    assert machine.ensure() == machine.bin


def test_a_distribution_suffix_does_not_hide_the_release(machine: Machine) -> None:
    a_set(machine.bin, "v1.32.4-dispatcher")

    assert machine.ensure() == machine.bin


def test_a_program_that_does_not_say_its_version_spoils_the_set(machine: Machine) -> None:
    a_set(machine.bin)
    (machine.bin / "kube-scheduler").write_text("#!/bin/sh\nexit 3\n")

    assert machine.ensure() == machine.cache / DEFAULT_KUBERNETES


def test_a_version_that_was_asked_for_is_built_even_if_another_is_found(machine: Machine) -> None:
    a_set(machine.bin, "v1.36.1")

    assert machine.ensure("v1.35.4") == machine.cache / "v1.35.4"


def test_the_environment_can_ask_for_a_version(machine: Machine) -> None:
    machine.environment["SANDBOX_KUBERNETES"] = "v1.35.4"

    assert machine.ensure() == machine.cache / "v1.35.4"


def test_a_found_set_of_exactly_the_version_that_was_asked_for_counts(machine: Machine) -> None:
    a_set(machine.bin, "v1.35.4")

    assert machine.ensure("v1.35.4") == machine.bin


@pytest.mark.parametrize(
    "text",
    [
        *("1.36.3", "v1.36", "latest", "v1.36.3/../x", "v1.36.3-rc/../../x", "v1.36.3+../x"),
        *("v1.36.3-rc.1/../../../x", "v1.36.3 -X main.x=1", "v1.36.3\n", "v1.36.3-dispatcher"),
    ],
)
def test_what_is_no_release_is_refused_in_one_line(machine: Machine, text: str) -> None:
    with pytest.raises(SandboxError, match="not a release of Kubernetes") as refusal:
        machine.ensure(text)
    assert "\n" not in str(refusal.value)
    assert not machine.cache.exists()


@pytest.mark.parametrize("version", ["v1.31.0", "v1.37.0", "v1.5.0"])
def test_a_version_that_is_not_supported_is_neither_built_nor_found(
    machine: Machine, version: str
) -> None:
    a_set(machine.bin, version)
    machine.environment["SANDBOX_KUBERNETES"] = version

    with pytest.raises(SandboxError) as refusal:
        machine.ensure()

    assert str(refusal.value) == (
        f"Kubernetes {version} is not supported: expected a release of 1.32 to 1.36"
    )
    assert machine.made == []


@pytest.mark.parametrize("version", ["v1.32.0", "v1.36.0-rc.1"])
def test_a_supported_version_is_built(machine: Machine, version: str) -> None:
    assert machine.ensure(version) == machine.cache / version
    assert machine.made == list(CONTROL_PLANE)


def test_the_second_call_builds_nothing_and_is_quick(machine: Machine) -> None:
    first = machine.ensure()
    made = list(machine.made)
    started = time.perf_counter()

    assert machine.ensure() == first
    assert time.perf_counter() - started < 0.1
    assert machine.made == made


def test_what_would_have_to_be_built_first_is_not_found(machine: Machine) -> None:
    assert find_binaries(environment=machine.environment) is None
    built = machine.ensure()

    assert find_binaries(environment=machine.environment) == built
    assert find_binaries(programs=("kubelet",), environment=machine.environment) is None


@pytest.mark.parametrize(
    ("chosen", "folder"),
    [
        ({"XDG_CACHE_HOME": "/big/cache"}, "/big/cache/ebs-provisioner"),
        ({"XDG_CACHE_HOME": "relative/cache"}, "/home/me/.cache/ebs-provisioner"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/ebs-provisioner"),
        ({}, "/home/me/.cache/ebs-provisioner"),
    ],
)
def test_the_cache_is_where_the_xdg_specification_says(chosen: dict[str, str], folder: str) -> None:
    assert cache_folder({"HOME": "/home/me", **chosen}) == Path(folder)
