"""Build programs from their Go modules into a per-user cache, once.

Layout of the cache::

    lock                  held (flock) by the one process that builds
    v1.36.3/              one folder a Kubernetes version: its programs, links to the others
    etcd-v3.6.16/         one folder for each version of another program or document
    go/                   Go's module and build caches and our go.mod files; deleted after success

Each program is linked into ``go/`` and renamed into its folder, so a program that is there is
whole, and an interrupted build goes on at the program where it stopped, with Go's caches warm.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.sandbox import compiler
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import Module, Program, staging_replaces

NEEDED_FREE_GB = 6
"""The caches grow to 4.3 GB, the programs to 0.5 GB (measured 2026-11)."""

NEEDED_FREE_BESIDE_GB = 3
"""Where only programs beside Kubernetes' own are missing; the caches of one grow to about 2 GB."""

Progress = Callable[[str, float], None]
"""Told what happens now, and how much of all the work is done, from 0 to 1."""

Maker = Callable[[Program, Path, Callable[[float], None]], None]
"""Makes one program at a path, telling how much of it is done."""


def missing(folder: Path, programs: Sequence[Program]) -> list[Program]:
    """Return the programs that ``folder`` does not hold, or not in the version that is wanted."""
    return [each for each in programs if not _is_there(folder, each)]


def _is_there(folder: Path, program: Program) -> bool:
    made = home(folder, program)
    return made.exists() and (folder / program.name).resolve() == made.resolve()


def home(folder: Path, program: Program) -> Path:
    """Return where a program of a Kubernetes version's ``folder`` is itself.

    Kubernetes' own are there. The others have versions of their own and a folder for each, so that
    another version is another file, and one file serves several versions of Kubernetes.
    """
    if folder.name == program.version:
        return folder / program.name
    return folder.parent / f"{program.name}-{program.version}" / program.name


def build(
    programs: Sequence[Program], folder: Path, cache: Path, progress: Progress, make: Maker | None
) -> None:
    """Make each program that ``folder`` lacks; wait if another process is already at it.

    ``make`` stands for the Go build in tests.

    Raises:
        SandboxError: no compiler, no network, no room, or a build that failed.
    """
    with alone(cache, lambda: progress("waiting for another process that builds them", 0.0)):
        todo = [each for each in programs if not home(folder, each).exists()]
        if todo:
            _make_all(todo, folder, cache, progress, make)
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing(folder, programs):
            link = folder / f".{each.name}.{os.getpid()}"
            link.unlink(missing_ok=True)  # of one that died here and had our number
            link.symlink_to(os.path.relpath(home(folder, each), folder))
            link.replace(folder / each.name)


def _make_all(
    todo: Sequence[Program], folder: Path, cache: Path, progress: Progress, make: Maker | None
) -> None:
    work = cache / "go"
    work.mkdir(parents=True, exist_ok=True)
    _demand_room(cache, work, _needed_free_gb(todo, folder))
    make = make or GoMaker.find(work, [each.module for each in todo]).make
    for place, each in enumerate(todo):

        def tell(part: float, place: int = place, label: str = each.label) -> None:
            progress(label, (place + part) / len(todo))

        tell(0.0)
        fresh, made = work / f"{each.name}.{os.getpid()}", home(folder, each)
        make(each, fresh, tell)
        fresh.chmod(0o644 if each.documents else 0o755)
        made.parent.mkdir(parents=True, exist_ok=True)
        fresh.rename(made)
    progress("removing the compiler's cache", 1.0)
    shutil.rmtree(work)


@contextlib.contextmanager
def alone(cache: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the cache's lock; the kernel drops it when its holder dies, however that happens."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "lock").open("a")
    except OSError as problem:
        raise SandboxError(f"the cache {cache} cannot be written: {problem.strerror}") from problem
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _needed_free_gb(todo: Sequence[Program], folder: Path) -> int:
    whole = any(home(folder, each).parent == folder or each.test is not None for each in todo)
    return NEEDED_FREE_GB if whole else NEEDED_FREE_BESIDE_GB


def _demand_room(cache: Path, work: Path, needed_gb: int) -> None:
    # What an interrupted build left behind counts: it will not be written again.
    used = sum(entry.stat().st_size for entry in work.rglob("*") if entry.is_file())
    free_gb = (shutil.disk_usage(cache).free + used) / 1e9
    if free_gb < needed_gb:
        raise SandboxError(
            f"building the control plane needs {needed_gb} GB for a few minutes, {cache} has "
            f"{free_gb:.1f} GB free: make room, or set XDG_CACHE_HOME to a larger disk"
        )


@dataclass(frozen=True, slots=True)
class GoMaker:
    """Makes programs with Go, each from a module of our own that requires the program's.

    Not ``go install module@version``: it refuses modules with ``replace`` lines, which etcd and
    Kubernetes have. Replacements are not inherited, so Kubernetes' are written out again.
    """

    work: Path
    compilers: list[compiler.Compiler]

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

    def make(self, program: Program, target: Path, tell: Callable[[float], None]) -> None:
        """Build ``program`` into ``target``, or put it together if it is a document."""
        if program.documents:
            self._put_together(program, target)
            return
        module = program.module
        go, go_mod = compiler.choose(self.compilers, module, self.work)
        folder = self.work / module.folder
        folder.mkdir(exist_ok=True)
        ours = folder / "go.mod"
        if not ours.exists():
            ours.write_text(module_text(module, go_mod.read_text()))
        packages = [program.package]
        if program.test is not None:
            packages = self._imports(program.test, go, folder)
        if program.main is not None:
            (folder / program.name).mkdir(exist_ok=True)
            shutil.copy(program.main, folder / program.name)
            packages = [f"./{program.name}"]
        needed = go.run("list", "-deps", *packages, folder=folder).split()
        seen = 0

        def count(line: str) -> None:
            nonlocal seen
            seen += " " not in line
            tell(min(seen / len(needed), 0.99))

        flags = ("-ldflags", f"-s -w {module.ldflags}", "-o", str(target))
        if program.test is None:
            go.follow("build", "-v", *flags, *packages, folder=folder, on_line=count)
            return
        # `go test -c` does not say how far it is; when its packages are built it only links.
        go.follow("build", "-v", *flags[:2], *packages, folder=folder, on_line=count)
        go.run("test", "-c", "-vet=off", *flags, "./test", folder=folder)

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


def module_text(module: Module, its_go_mod: str) -> str:
    """Return the go.mod of a module of ours that can build ``module``'s programs."""
    release = next(line for line in its_go_mod.splitlines() if line.startswith("go "))
    required = f"require {module.path} {module.version}"
    lines = ["module ebs-provisioner.invalid/build", release, required]
    lines += [f"require {path} {version}" for path, version in module.beside]
    lines += [
        f"replace {path} => {path} {version}"
        for path, version in staging_replaces(its_go_mod, module.version)
    ]
    return "\n".join(lines) + "\n"
