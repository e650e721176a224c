"""Kubernetes' tests of a storage driver, as a program that is built of a file of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.sandbox import build
from provisioner.sandbox.compiler import Compiler
from provisioner.sandbox.maker import LINK_BYTES, PACKAGE_BYTES, GoMaker
from provisioner.sandbox.programs import (
    DEFAULT_KUBERNETES,
    E2E,
    STORAGE_SUITE,
    Program,
    kubernetes_module,
    program,
)

FACTS = '{"GoVersion": "1.26.0", "GoMod": "/dev/null"}'


class Go:
    """A compiler that notes its arguments, and writes what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.arguments = folder / "arguments"
        path = folder / "go"
        path.write_text(
            f"""#!/bin/sh
            echo "$*" >> {self.arguments}
            case "$*" in
                *-json*) echo '{FACTS}';;
                *TestImports*) ls test; echo example.org/one; echo example.org/two;;
                "list -deps"*) printf 'a\\t\\nb\\t\\n';;
                build*) echo a >&2; echo b >&2;;
            esac
            while [ $# -gt 0 ]; do [ "$1" = -o ] && echo "$*" > "$2"; shift; done
            """
        )
        path.chmod(0o755)
        self.compiler = Compiler(str(path), (1, 26, 8), {"PATH": "/bin:/usr/bin"})


@pytest.fixture
def go(tmp_path: Path) -> Go:
    (tmp_path / "work" / "k8s.io_kubernetes@v1.36.3").mkdir(parents=True)
    (tmp_path / "work" / "k8s.io_kubernetes@v1.36.3" / "go.mod").write_text("module x")
    return Go(tmp_path)


def suite(source: Path) -> Program:
    source.write_text("package suite")
    return Program(STORAGE_SUITE, "", kubernetes_module("v1.36.3"), test=source)


def test_its_packages_are_built_first_because_that_tells_how_far_it_is(
    go: Go, tmp_path: Path
) -> None:
    told: list[float] = []
    source = suite(tmp_path / "suite_test.go")

    GoMaker(tmp_path / "work", [go.compiler]).make((source,), tmp_path, told.append)

    *_, built, tested = go.arguments.read_text().splitlines()
    assert built.startswith("build -v -gcflags=all=-dwarf=false -ldflags")
    assert built.endswith("suite_test.go example.org/one example.org/two")
    assert tested.startswith("test -c -vet=off -gcflags=all=-dwarf=false -ldflags")
    assert tested.endswith("./test")
    done = PACKAGE_BYTES / (2 * PACKAGE_BYTES + LINK_BYTES)
    assert told == [done, 2 * done]
    assert (tmp_path / STORAGE_SUITE).exists()


def test_another_source_is_another_program(tmp_path: Path) -> None:
    source = tmp_path / "suite_test.go"
    folder = tmp_path / "v1.36.3"
    before = build.home(folder, suite(source))
    source.write_text("package suite // changed")
    after = build.home(
        folder, Program(STORAGE_SUITE, "", kubernetes_module("v1.36.3"), test=source)
    )

    assert before != after
    assert {before.parent.parent, after.parent.parent} == {tmp_path}
    assert before.name == after.name == STORAGE_SUITE


def test_all_that_runs_it_is_of_one_release_of_kubernetes() -> None:
    programs = [program(name, DEFAULT_KUBERNETES) for name in E2E]

    assert {each.module for each in programs} == {kubernetes_module(DEFAULT_KUBERNETES)}
    source = programs[-1].test
    assert source is not None
    assert "k8s.io/kubernetes/test/e2e/storage/external" in source.read_text()
