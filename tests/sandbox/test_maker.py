"""Programs are made by Go; a script stands for it here, and says what it was asked for."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from provisioner.sandbox import compiler
from provisioner.sandbox.compiler import Compiler
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.maker import (
    LINK_BYTES,
    PACKAGE_BYTES,
    GoMaker,
    module_text,
    steps_of,
)
from provisioner.sandbox.programs import (
    CONTROL_PLANE,
    DEFAULT_KUBERNETES,
    E2E,
    REAL_NODE,
    Module,
    Program,
    kubernetes_module,
    library_replaces,
    program,
    staging_replaces,
)

V1 = "v1.0.0"
A = Program("a", "example.org/cmd/a", Module("example.org", V1))
B = Program("b", "example.org/cmd/b", A.module)
OTHER = Program("other", "example.com/other", Module("example.com/other", "v2.0.0"))


class Go:
    """A compiler that notes its arguments and builds nothing."""

    def __init__(self, folder: Path) -> None:
        self.arguments = folder / "arguments"
        self.sources = folder / "sources"
        self.sources.mkdir()
        (self.sources / "one.go").write_text("x" * 1_000)
        (self.sources / "two.go").write_text("x" * 2_000)
        (folder / "their.mod").write_text("module example.org\n\ngo 1.26.0\n")
        path = folder / "go-script"
        path.write_text(
            f"""#!/bin/sh
echo "$@" >> {self.arguments}
case "$*" in
*unreachable*) echo "dial tcp 127.0.0.1:1: connect: connection refused" >&2; exit 1 ;;
*-json*) echo '{{"GoVersion": "1.26.0", "GoMod": "{folder}/their.mod"}}' ;;
*-deps*) printf 'fmt\\t/go/fmt\\t\\nshared\\t{self.sources}\\tone.go\\ttwo.go\\n' ;;
build*) echo fmt >&2; echo "go: downloading x" >&2; echo shared >&2 ;;
esac
"""
        )
        path.chmod(0o755)
        self.compiler = Compiler(str(path), (1, 26, 8), {"PATH": "/bin:/usr/bin"})


def test_programs_of_one_module_are_made_in_one_run_of_the_compiler() -> None:
    assert steps_of([A, OTHER, B]) == [(A, B), (OTHER,)]


def test_what_is_no_package_of_its_module_is_made_alone() -> None:
    wanted = [program(each, DEFAULT_KUBERNETES) for each in (*CONTROL_PLANE, *REAL_NODE, *E2E)]

    steps = steps_of(wanted)

    assert sorted(each.name for step in steps for each in step) == sorted(
        each.name for each in wanted
    )
    assert [len(step) for step in steps if not step[0].is_plain] == [1, 1, 1]
    assert len(max(steps, key=len)) == len(
        [each for each in wanted if each.module.path == "k8s.io/kubernetes" and each.is_plain]
    )


def test_go_builds_a_program_and_tells_how_far_it_is_by_the_size_of_sources(
    tmp_path: Path,
) -> None:
    go = Go(tmp_path)
    told: list[float] = []

    GoMaker(tmp_path, [go.compiler]).make((A,), tmp_path / "made", told.append)

    whole = 2 * PACKAGE_BYTES + 3_000 + LINK_BYTES
    first, last = PACKAGE_BYTES, 2 * PACKAGE_BYTES + 3_000
    assert told == [first / whole, last / whole]
    assert f"-o {tmp_path}/made/a example.org/cmd/a" in go.arguments.read_text()


def test_several_programs_are_built_into_one_folder(tmp_path: Path) -> None:
    go = Go(tmp_path)

    GoMaker(tmp_path, [go.compiler]).make((A, B), tmp_path / "made", lambda _: None)

    last = go.arguments.read_text().splitlines()[-1]
    assert last.endswith(f"-o {tmp_path}/made/ example.org/cmd/a example.org/cmd/b")


def test_a_package_that_two_steps_need_counts_once(tmp_path: Path) -> None:
    maker = GoMaker(tmp_path, [Go(tmp_path).compiler])

    first, second = maker.weigh([(A, B), (OTHER,)])

    assert first == 2 * PACKAGE_BYTES + 3_000 + 2 * LINK_BYTES
    assert second == LINK_BYTES


def test_a_network_that_fails_is_met_before_anything_is_compiled(tmp_path: Path) -> None:
    go = Go(tmp_path)
    away = Program("away", "unreachable.example", Module("unreachable.example", "v1.0.0"))

    with pytest.raises(SandboxError, match="module proxy cannot be reached"):
        GoMaker(tmp_path, [go.compiler]).weigh([(A,), (away,)])

    assert not [line for line in go.arguments.read_text().splitlines() if line.startswith("build")]


def test_a_resumed_build_removes_what_a_killed_compiler_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "tmp" / "go-build123"
    left.mkdir(parents=True)
    monkeypatch.setattr(compiler, "find", lambda _: [Go(tmp_path).compiler])

    GoMaker.find(tmp_path, [A.module])

    assert list((tmp_path / "tmp").iterdir()) == []


GO_MOD = """\
module k8s.io/kubernetes

go 1.26.0

require (
	github.com/example/thing v0.0.0-20250101000000-abcdef
	k8s.io/api v0.0.0
	k8s.io/client-go v0.0.0 // indirect
	k8s.io/utils v1.2.3
)
"""


def test_only_requirements_at_exactly_v0_0_0_are_replaced() -> None:
    assert staging_replaces(GO_MOD, "v1.36.3") == (
        ("k8s.io/api", "v0.36.3"),
        ("k8s.io/client-go", "v0.36.3"),
    )


def test_our_module_requires_theirs_and_repeats_its_replacements() -> None:
    text = module_text(kubernetes_module("v1.36.3"), GO_MOD)

    assert text.splitlines() == [
        "module ebs-provisioner.invalid/build",
        "go 1.26.0",
        "require k8s.io/kubernetes v1.36.3",
        "replace k8s.io/api => k8s.io/api v0.36.3",
        "replace k8s.io/client-go => k8s.io/client-go v0.36.3",
    ]


WITH_LIBRARIES = Module("k8s.io/utils", "v1.2.3", libraries="v1.36.3")


def test_another_program_is_built_with_the_libraries_of_kubernetes_in_its_versions() -> None:
    kwok = Module("sigs.k8s.io/kwok", "v0.8.0", libraries="v1.36.3")
    its_own = "module sigs.k8s.io/kwok\n\ngo 1.25.0\n\nrequire k8s.io/api v0.35.0\n"

    assert module_text(kwok, its_own, GO_MOD).splitlines() == [
        "module ebs-provisioner.invalid/build",
        "go 1.26.0",
        "require sigs.k8s.io/kwok v0.8.0",
        "replace github.com/example/thing => github.com/example/thing v0.0.0-20250101000000-abcdef",
        "replace k8s.io/api => k8s.io/api v0.36.3",
        "replace k8s.io/client-go => k8s.io/client-go v0.36.3",
        "replace k8s.io/utils => k8s.io/utils v1.2.3",
    ]


def test_a_program_keeps_its_own_version_whatever_kubernetes_requires() -> None:
    replaced = dict(library_replaces(GO_MOD, WITH_LIBRARIES))

    assert "k8s.io/utils" not in replaced
    assert set(replaced) == {"github.com/example/thing", "k8s.io/api", "k8s.io/client-go"}


def test_a_module_with_other_libraries_has_a_folder_of_its_own() -> None:
    plain = Module("k8s.io/utils", "v1.2.3")

    assert WITH_LIBRARIES.folder != plain.folder


def a_release(proxy: Path, path: str, version: str, text: str, requires: str = "") -> None:
    """Put a module with one file on a proxy, as Go's module proxy serves it."""
    folder = proxy / path / "@v"
    folder.mkdir(parents=True, exist_ok=True)
    go_mod = f"module {path}\n\ngo 1.21\n\n{requires}"
    (folder / f"{version}.info").write_text(json.dumps({"Version": version}))
    (folder / f"{version}.mod").write_text(go_mod)
    with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
        archive.writestr(f"{path}@{version}/go.mod", go_mod)
        archive.writestr(f"{path}@{version}/a.go", text)


def test_a_library_that_two_programs_require_in_two_versions_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a real compiler, as it decides what is the same; the library imports nothing.
    proxy, library = tmp_path / "proxy", "example.org/library"
    for version in ("v1.1.0", "v1.2.0", "v1.3.0"):
        a_release(proxy, library, version, "package library\n\nvar A = 1\n")
    user = f'package main\n\nimport _ "{library}"\n\nfunc main() {{}}\n'
    a_release(proxy, "example.org/x", V1, user, f"require {library} v1.2.0\n")
    a_release(proxy, "example.org/y", V1, user, f"require {library} v1.3.0\n")
    a_release(proxy, "k8s.io/kubernetes", "v1.36.3", "package k\n", f"require {library} v1.1.0\n")
    for variable, value in (("GOPROXY", proxy.as_uri()), ("GOSUMDB", "off")):
        monkeypatch.setenv(variable, value)
    work = tmp_path / "work"
    work.mkdir()
    modules = [Module(f"example.org/{name}", V1, libraries="v1.36.3") for name in "xy"]
    maker = GoMaker.find(work, modules)
    compiled: list[list[str]] = []

    for module in modules:
        go, folder, _ = maker._source((Program(module.path[-1], module.path, module),))
        said: list[str] = []
        go.follow("build", "-v", library, folder=folder, on_line=said.append)
        compiled.append([line for line in said if " " not in line])

    assert compiled == [[library], []]
