"""Make programs with Go, each from a module of our own that requires the program's.

Not ``go install module@version``: it refuses modules with ``replace`` lines, which etcd and
Kubernetes have. Replacements are not inherited, so Kubernetes' are written out again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.sandbox import compiler
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import (
    Module,
    Program,
    kubernetes_module,
    library_replaces,
    staging_replaces,
)

Tell = Callable[[float], None]
"""Told how much of a step is done, from 0 to 1."""

Step = tuple[Program, ...]
"""What one run of the compiler makes."""

NO_DEBUGGER = "-gcflags=all=-dwarf=false"
"""No tables for a debugger in what is compiled: the linker would drop them (``-s -w``)."""

PACKAGE_BYTES = 20_000
"""What a package costs besides its source, in bytes of source."""

LINK_BYTES = 3_000_000
"""What linking a program costs, in bytes of source."""


def steps_of(programs: Sequence[Program]) -> list[Step]:
    """Put together what one run of the compiler makes: while one is linked it compiles another."""
    steps: list[Step] = []
    for each in programs:
        if each.is_plain:
            for place, step in enumerate(steps):
                if step[0].is_plain and step[0].module == each.module:
                    steps[place] = (*step, each)
                    break
            else:
                steps.append((each,))
        else:
            steps.append((each,))
    return steps


@dataclass(frozen=True, slots=True)
class GoMaker:
    """Makes programs with Go.

    Attributes:
        work: the folder of Go's caches and of our modules.
        compilers: the usable ones, the preferred one first.
    """

    work: Path
    compilers: list[compiler.Compiler]
    _sizes: dict[Step, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def find(cls, work: Path, modules: Sequence[Module]) -> GoMaker:
        """Return a maker that has a compiler for each of these modules, and has seen them all.

        So a release that does not exist is told before minutes were spent on another program.
        """
        environment = compiler.environment(work)
        temporary = Path(environment["GOTMPDIR"])
        shutil.rmtree(temporary, ignore_errors=True)  # of a build that was killed
        temporary.mkdir()
        compilers = compiler.find(environment)
        for module in dict.fromkeys(modules):
            compiler.choose(compilers, module, work)
        return cls(work, compilers)

    def weigh(self, steps: Sequence[Step]) -> list[int]:
        """Download all sources, and return how much each of ``steps`` has to compile and link.

        A package that an earlier step compiles counts there. All downloads come before minutes of
        compiling: without a network nothing is begun.
        """
        earlier: set[tuple[str, str]] = set()
        weights = []
        for step in steps:
            if step[0].documents:
                weights.append(0)
                continue
            found = self._packages(step)
            self._sizes[step] = {
                path: size
                for (path, folder), size in found.items()
                if (path, folder) not in earlier
            }
            earlier |= found.keys()
            weights.append(self._weight(step))
        return weights

    def _weight(self, step: Step) -> int:
        return sum(self._sizes[step].values()) + LINK_BYTES * len(step)

    def make(self, step: Step, target: Path, tell: Tell) -> None:
        """Make the programs of ``step`` in the folder ``target``, each by its name."""
        program = step[0]
        if program.documents:
            self._put_together(program, target / program.name)
            return
        if step not in self._sizes:
            self.weigh([step])
        sizes, whole = self._sizes[step], self._weight(step)
        seen: set[str] = set()

        def count(line: str) -> None:
            if " " not in line:
                seen.add(line)
                tell(min(sum(sizes.get(each, 0) for each in seen) / whole, 0.99))

        go, folder, packages = self._source(step)
        # Several are named by their packages, as Kubernetes' programs are; etcd's is "server".
        output = str(target / program.name) if len(step) == 1 else f"{target}/"
        flags = (NO_DEBUGGER, "-ldflags", f"-s -w {program.module.ldflags}".rstrip(), "-o", output)
        if program.test is None:
            go.follow("build", "-v", *flags, *packages, folder=folder, on_line=count)
            return
        # `go test -c` does not say how far it is; when its packages are built it only links.
        go.follow("build", "-v", *flags[:3], *packages, folder=folder, on_line=count)
        go.run("test", "-c", "-vet=off", *flags, "./test", folder=folder)

    def _source(self, step: Step) -> tuple[compiler.Compiler, Path, list[str]]:
        """Return the compiler, the folder of our module, and the packages to build in it."""
        program = step[0]
        go, go_mods = self._chosen(program.module)
        folder = self.work / program.module.folder
        folder.mkdir(exist_ok=True)
        if not (folder / "go.mod").exists():
            texts = [each.read_text() for each in go_mods]
            (folder / "go.mod").write_text(module_text(program.module, *texts))
        if program.test is not None:
            return go, folder, self._imports(program.test, go, folder)
        if program.main is not None:
            (folder / program.name).mkdir(exist_ok=True)
            shutil.copy(program.main, folder / program.name)
            return go, folder, [f"./{program.name}"]
        return go, folder, [each.package for each in step]

    def _chosen(self, module: Module) -> tuple[compiler.Compiler, list[Path]]:
        """Return the compiler for a module, and the go.mod of each that ours has to know."""
        needed = [module]
        if module.libraries:
            needed.append(kubernetes_module(module.libraries))
        chosen = [compiler.choose(self.compilers, each, self.work) for each in needed]
        newest = max((go for go, _ in chosen), key=lambda go: go.release)
        return newest, [go_mod for _, go_mod in chosen]

    def _packages(self, step: Step) -> dict[tuple[str, str], int]:
        """Return what ``step`` needs, by path and folder, with the size of its sources."""
        go, folder, packages = self._source(step)
        what = r'{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles "\t"}}'
        answer = go.run("list", "-deps", "-f", what, *packages, folder=folder)
        found = {}
        for line in answer.splitlines():
            path, where, *files = line.split("\t")
            sources = [Path(where, each) for each in files if each]
            found[path, where] = PACKAGE_BYTES + sum(each.stat().st_size for each in sources)
        return found

    def _imports(self, test: Path, go: compiler.Compiler, folder: Path) -> list[str]:
        """Put the only source of a test binary beside our go.mod; what it imports."""
        (folder / "test").mkdir(exist_ok=True)
        shutil.copy(test, folder / "test")
        lines = go.run("list", "-f", '{{join .TestImports "\\n"}}', "./test", folder=folder)
        return lines.split()

    def _put_together(self, program: Program, target: Path) -> None:
        module = program.module
        go, _ = compiler.choose(self.compilers, module, self.work)
        which = f"{module.path}@{module.version}"
        answer = go.run("mod", "download", "-json", which, folder=self.work)
        root = Path(json.loads(answer)["Dir"])
        try:
            texts = [(root / each).read_text().strip("\n") for each in program.documents]
        except OSError as problem:
            raise SandboxError(f"{which} cannot be read: {problem}") from problem
        target.write_text("\n---\n".join(texts) + "\n")


def module_text(module: Module, its_go_mod: str, kubernetes_go_mod: str = "") -> str:
    """Return the go.mod of a module of ours that can build ``module``'s programs.

    Args:
        module: whose programs are built.
        its_go_mod: its own go.mod.
        kubernetes_go_mod: that of the Kubernetes whose libraries it is built with; "" for its own.
    """
    releases = re.findall(r"^go (\S+)$", f"{its_go_mod}\n{kubernetes_go_mod}", re.MULTILINE)
    lines = [
        "module ebs-provisioner.invalid/build",
        f"go {max(releases, key=compiler.release_of)}",
        f"require {module.path} {module.version}",
        *(f"require {path} {version}" for path, version in module.beside),
    ]
    if kubernetes_go_mod:
        replaces = library_replaces(kubernetes_go_mod, module)
    else:
        replaces = staging_replaces(its_go_mod, module.version)
    lines += [f"replace {path} => {path} {version}" for path, version in replaces]
    return "\n".join(lines) + "\n"
