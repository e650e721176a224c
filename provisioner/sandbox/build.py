"""Build programs from their Go modules into a per-user cache, once.

Layout of the cache::

    lock                  held (flock) by the one process that builds
    v1.36.3/              one folder a Kubernetes version: its programs, links to the others
    etcd-v3.6.16/         one folder for each version of another program or document
    kwok-v0.8.0+v1.36.3/  the same, and whose versions of libraries it is built with
    go/                   Go's caches, kept in bounds after success (``go_cache``)

Each program is linked into ``go/`` and renamed into its folder, so a program that is there is
whole, and an interrupted build goes on at the package where it stopped, as Go's caches have the
others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from provisioner.sandbox import go_cache
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.maker import GoMaker, Step, Tell, steps_of
from provisioner.sandbox.programs import Program

NEEDED_FREE_GB = 6
"""The caches grow to 4.3 GB, the programs to 0.5 GB (measured 2026-11)."""

NEEDED_FREE_BESIDE_GB = 3
"""Where only programs beside Kubernetes' own are missing; the caches of one grow to about 2 GB."""

Progress = Callable[[str, float], None]
"""Told what happens now, and how much of all the work is done, from 0 to 1."""

Maker = Callable[[Step, Path, Tell], None]
"""Makes programs in a folder, by their names, telling how much of them is done."""


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
        try:
            todo = [each for each in programs if not home(folder, each).exists()]
            if todo:
                _make_all(todo, folder, cache, progress, make)
            _link(programs, folder)
        except OSError as problem:
            raise SandboxError(_why_not_written(cache, problem)) from problem


def _link(programs: Sequence[Program], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing(folder, programs):
        link = folder / f".{each.name}.{os.getpid()}"
        link.unlink(missing_ok=True)  # of one that died here and had our number
        link.symlink_to(os.path.relpath(home(folder, each), folder))
        link.replace(folder / each.name)


def _why_not_written(cache: Path, problem: OSError) -> str:
    if problem.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"the disk of {cache} is full: make room, or set XDG_CACHE_HOME to a larger disk"
    return f"the cache {cache} cannot be written: {problem.strerror or problem}"


def _make_all(
    todo: Sequence[Program], folder: Path, cache: Path, progress: Progress, make: Maker | None
) -> None:
    work = cache / "go"
    _demand_room(cache, work, _needed_free_gb(todo, folder))
    work.mkdir(parents=True, exist_ok=True)
    go_cache.begin(work)
    steps = steps_of(todo)
    weights = [1] * len(steps)
    if make is None:
        maker = GoMaker.find(work, [each.module for each in todo])
        progress("downloading the sources", 0.0)
        make, weights = maker.make, maker.weigh(steps)
    fresh = work / "made"
    fresh.mkdir()
    for place, step in enumerate(steps):
        label = _label(steps, place)

        def tell(part: float, place: int = place, label: str = label) -> None:
            done = sum(weights[:place]) + part * weights[place]
            progress(label, done / (sum(weights) or 1))

        tell(0.0)
        make(step, fresh, tell)
        for each in step:
            _put(fresh / each.name, home(folder, each), 0o644 if each.documents else 0o755)
    progress("tidying the compiler's cache up", 1.0)
    go_cache.keep(work)


def _put(fresh: Path, made: Path, mode: int) -> None:
    fresh.chmod(mode)
    made.parent.mkdir(parents=True, exist_ok=True)
    fresh.rename(made)


def _label(steps: Sequence[Step], place: int) -> str:
    """Return what a person reads during a step, like ``2 to 4 of 9: a, b, c v1.36.3``."""
    step, total = steps[place], sum(map(len, steps))
    first = sum(map(len, steps[:place])) + 1
    number = str(first) if len(step) == 1 else f"{first} to {first + len(step) - 1}"
    names = ", ".join(each.name for each in step)
    return f"{number} of {total}: {names} {step[0].module.version}"


def clean(cache: Path, on_wait: Callable[[], None]) -> int:
    """Remove what the compiler keeps between builds, not the programs; how many bytes it had.

    Raises:
        SandboxError: the cache cannot be written; what could not be removed is still there.
    """
    with alone(cache, on_wait):
        try:
            return go_cache.remove(cache / "go")
        except OSError as problem:
            raise SandboxError(_why_not_written(cache, problem)) from problem


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
    # How much of the compiler's cache this build needs is not known: where there is no room for
    # both, the cache goes.
    free_gb = shutil.disk_usage(cache).free / 1e9
    if free_gb >= needed_gb:
        return
    most_gb = free_gb + go_cache.size(work) / 1e9
    if most_gb < needed_gb:
        raise SandboxError(
            f"building the control plane needs {needed_gb} GB for a few minutes, {cache} has at "
            f"most {most_gb:.1f} GB free: make room, or set XDG_CACHE_HOME to a larger disk"
        )
    go_cache.remove(work)
