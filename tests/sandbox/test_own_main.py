"""A program of another module, whose main package is a file of ours."""

from __future__ import annotations

from pathlib import Path

from provisioner.sandbox import build
from provisioner.sandbox.compiler import Compiler
from provisioner.sandbox.maker import GoMaker
from provisioner.sandbox.programs import Module, Program

MODULE = Module("example.org/dns", "v1.2.3")

GO = """#!/bin/sh
echo "$*" >> {arguments}
case "$*" in
    *-json*) echo '{{"GoVersion": "1.26.0", "GoMod": "/dev/null"}}';;
    "list -deps"*) printf 'a\\t\\nb\\t\\n';;
    build*) cat dns/main.go >&2; echo a >&2;;
esac
while [ $# -gt 0 ]; do [ "$1" = -o ] && cp dns/main.go "$2"; shift; done
"""


def of(folder: Path, text: str) -> Program:
    folder.mkdir(exist_ok=True)
    source = folder / "main.go"
    source.write_text(text)
    return Program("dns", "", MODULE, main=source)


def test_it_is_built_from_that_file_in_a_module_that_requires_the_others(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text(GO.format(arguments=tmp_path / "arguments"))
    go.chmod(0o755)
    ours = tmp_path / "work" / MODULE.folder / "go.mod"
    ours.parent.mkdir(parents=True)
    ours.write_text("module x")
    compiler = Compiler(str(go), (1, 26, 8), {"PATH": "/bin:/usr/bin"})

    for text in ("package main", "package main // changed"):
        made = tmp_path / "dns"
        GoMaker(tmp_path / "work", [compiler]).make(
            (of(tmp_path / "ours", text),), tmp_path, lambda _: None
        )
        assert made.read_text() == text
    assert (tmp_path / "arguments").read_text().splitlines()[-1].endswith(f"-o {made} ./dns")


def test_another_file_is_another_program(tmp_path: Path) -> None:
    folder = tmp_path / "v1.36.3"
    before = build.home(folder, of(tmp_path / "ours", "package main"))
    after = build.home(folder, of(tmp_path / "ours", "package main // changed"))

    assert before != after
    assert before.name == after.name == "dns"
    assert before.parent.name.startswith("dns-v1.2.3-")
