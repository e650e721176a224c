from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from provisioner.sandbox.binaries import cache_folder, ensure_binaries, find_binaries
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.maker import Step, Tell
from provisioner.sandbox.programs import (
    CONTROL_PLANE,
    DEFAULT_KUBERNETES,
    KUBERNETES_PROGRAMS,
    REAL_NODE,
    RELEASES,
    SNAPSHOT_CRDS,
    minor_of,
)

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

    def ensure(
        self, version: str | None = None, *, programs: Sequence[str] = CONTROL_PLANE
    ) -> Path:
        return ensure_binaries(
            version, programs=programs, environment=self.environment, make=self.make
        )


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


@pytest.mark.parametrize("version", ["v1.32.13", "v1.38.0", "v2.36.0"])
def test_a_set_of_a_minor_that_is_not_supported_does_not_count(
    machine: Machine, version: str
) -> None:
    a_set(machine.bin, version)

    assert machine.ensure() == machine.cache / DEFAULT_KUBERNETES


@pytest.mark.parametrize("version", ["v1.33.0", "v1.37.9"])
def test_a_whole_set_of_any_supported_minor_counts(machine: Machine, version: str) -> None:
    a_set(machine.bin, version)

    assert machine.ensure() == machine.bin


def test_a_distribution_suffix_does_not_hide_the_release(machine: Machine) -> None:
    a_set(machine.bin, "v1.33.4-dispatcher")

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
        *("36", "vv1.36", "1.36.", "latest", "v1.36.3/../x", "v1.36.3-rc/../../x", "v1.36.3+../x"),
        *("v1.36.3-rc.1/../../../x", "v1.36.3 -X main.x=1", "v1.36.3\n", "v1.36.3-dispatcher"),
    ],
)
def test_what_is_no_release_is_refused_in_one_line(machine: Machine, text: str) -> None:
    with pytest.raises(SandboxError, match="not a release of Kubernetes") as refusal:
        machine.ensure(text)
    assert "\n" not in str(refusal.value)
    assert not machine.cache.exists()


@pytest.mark.parametrize("version", ["v1.32.0", "v1.38.0", "v1.5.0", "1.32", "1.38"])
def test_a_version_that_is_not_supported_is_neither_built_nor_found(
    machine: Machine, version: str
) -> None:
    a_set(machine.bin, version)
    machine.environment["SANDBOX_KUBERNETES"] = version

    with pytest.raises(SandboxError) as refusal:
        machine.ensure()

    assert str(refusal.value) == (
        f"Kubernetes {version} is not supported: expected a release of 1.33 to 1.37"
    )
    assert machine.made == []


@pytest.mark.parametrize("version", ["v1.33.0", "v1.36.0-rc.1"])
def test_a_supported_version_is_built(machine: Machine, version: str) -> None:
    assert machine.ensure(version) == machine.cache / version
    assert machine.made == list(CONTROL_PLANE)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        *(("1.35.4", "v1.35.4"), ("v1.34.0", "v1.34.0")),
        *((f"1.{minor}", version) for minor, version in RELEASES.items()),
        ("v1.37", RELEASES[37]),
    ],
)
def test_a_minor_means_the_release_of_the_table(machine: Machine, text: str, version: str) -> None:
    assert machine.ensure(text) == machine.cache / version


def test_each_release_of_the_table_is_one_of_its_minor() -> None:
    assert {minor_of(version): version for version in RELEASES.values()} == RELEASES


def test_kubelet_and_proxy_can_be_older_than_the_control_plane(machine: Machine) -> None:
    machine.environment |= {"SANDBOX_KUBERNETES": "1.37", "SANDBOX_KUBELET": "1.35"}
    programs = (*CONTROL_PLANE, *REAL_NODE)
    assert find_binaries(programs=programs, environment=machine.environment) is None

    folder = machine.ensure(programs=programs)

    homes = {name: (folder / name).resolve().parent.name for name in programs}
    assert sorted(each.name for each in folder.iterdir()) == sorted(programs)
    assert {name: homes[name] for name in KUBERNETES_PROGRAMS} == {
        **dict.fromkeys(KUBERNETES_PROGRAMS, RELEASES[37]),
        **dict.fromkeys(("kubelet", "kube-proxy"), RELEASES[35]),
    }
    assert machine.ensure(programs=programs) == folder
    assert find_binaries(programs=programs, environment=machine.environment) == folder


def test_an_older_kubelet_changes_nothing_where_no_node_runs(machine: Machine) -> None:
    machine.environment["SANDBOX_KUBELET"] = "1.35"

    assert machine.ensure() == machine.cache / DEFAULT_KUBERNETES


def test_a_kubelet_of_the_same_release_needs_no_second_set(machine: Machine) -> None:
    machine.environment |= {"SANDBOX_KUBERNETES": "1.37", "SANDBOX_KUBELET": RELEASES[37]}

    assert machine.ensure(programs=(*CONTROL_PLANE, *REAL_NODE)) == machine.cache / RELEASES[37]


@pytest.mark.parametrize(("kubernetes", "kubelet"), [("v1.35.4", "v1.36.3"), ("v1.37.2", "1.33")])
def test_a_kubelet_that_kubernetes_does_not_allow_is_refused_before_a_build(
    machine: Machine, kubernetes: str, kubelet: str
) -> None:
    machine.environment |= {"SANDBOX_KUBERNETES": kubernetes, "SANDBOX_KUBELET": kubelet}

    with pytest.raises(SandboxError) as refusal:
        machine.ensure(programs=REAL_NODE)

    assert str(refusal.value).endswith(
        f"does not go with an API server {kubernetes}: it may be up to 3 minor versions older, "
        "and not newer"
    )
    assert machine.made == []


def test_the_second_call_builds_nothing(machine: Machine) -> None:
    first = machine.ensure()
    made = list(machine.made)

    assert machine.ensure() == first
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
