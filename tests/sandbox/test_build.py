from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from provisioner.sandbox import build, compiler
from provisioner.sandbox.compiler import Compiler
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.maker import Step
from provisioner.sandbox.programs import Module, Program

V1 = "v1.0.0"
PROGRAMS = [
    Program(name, f"example.org/{name}", Module(f"example.org/{name}", V1)) for name in "abc"
]

Tell = Callable[[float], None]


class Maker:
    """Writes a file for each program, until it meets the one that it shall fail at."""

    def __init__(self, fail_at: str = "", failure: BaseException | None = None) -> None:
        self.fail_at = fail_at
        self.failure = failure or KeyboardInterrupt()
        self.made: list[str] = []

    def make(self, step: Step, folder: Path, tell: Tell) -> None:
        for program in step:
            (folder / program.name).write_text("half")
            tell(0.5)
            if program.name == self.fail_at:
                raise self.failure
            (folder / program.name).write_text("whole")
            self.made.append(program.name)


def run(
    cache: Path, maker: Maker, programs: Sequence[Program] = PROGRAMS, version: str = V1
) -> list[tuple[str, float]]:
    told: list[tuple[str, float]] = []
    build.build(
        programs, cache / version, cache, lambda step, done: told.append((step, done)), maker.make
    )
    return told


def test_an_interrupted_build_goes_on_at_the_program_where_it_stopped(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Maker(fail_at="b"))
    assert [path.name for path in (tmp_path / V1).iterdir()] == ["a"]

    second = Maker()
    run(tmp_path, second)

    assert second.made == ["b", "c"]
    assert {path.read_text() for path in (tmp_path / V1).iterdir()} == {"whole"}


def of_its_own(version: str) -> list[Program]:
    """The same programs, but that ``b`` has a version of its own, as etcd and kwok have."""
    own = Program("b", "example.com/b", Module("example.com/b", version))
    return [own if each.name == "b" else each for each in PROGRAMS]


def test_a_program_of_another_version_is_made_anew_and_only_that(tmp_path: Path) -> None:
    run(tmp_path, Maker(), of_its_own("v3.0.0"))
    raised = of_its_own("v3.0.1")
    assert [each.label for each in build.missing(tmp_path / V1, raised)] == ["b v3.0.1"]
    maker = Maker()

    run(tmp_path, maker, raised)

    assert maker.made == ["b"]
    assert (tmp_path / V1 / "b").resolve() == (tmp_path / "b-v3.0.1" / "b").resolve()
    assert build.missing(tmp_path / V1, raised) == []
    assert [each.label for each in build.missing(tmp_path / V1, of_its_own("v3.0.0"))] == [
        "b v3.0.0"
    ]


def test_a_link_that_a_killed_process_of_our_number_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / V1).mkdir()
    (tmp_path / V1 / f".b.{os.getpid()}").symlink_to("nowhere")

    run(tmp_path, Maker(), of_its_own("v3.0.0"))

    assert sorted(path.name for path in (tmp_path / V1).iterdir()) == ["a", "b", "c"]
    assert (tmp_path / V1 / "b").read_text() == "whole"


def test_a_program_of_its_own_version_serves_every_version_of_kubernetes(tmp_path: Path) -> None:
    run(tmp_path, Maker(), of_its_own("v3.0.0"))
    maker = Maker()
    next_version = [
        Program(each.name, each.package, Module(each.module.path, "v1.0.1"))
        for each in PROGRAMS
        if each.name != "b"
    ]

    run(tmp_path, maker, [*next_version, of_its_own("v3.0.0")[1]], "v1.0.1")

    assert maker.made == ["a", "c"]
    assert (tmp_path / "v1.0.1" / "b").read_text() == "whole"


def test_a_release_that_does_not_exist_is_told_before_another_program_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text(
        """#!/bin/sh
case "$*" in
*example.org/a@v1.0.0*) echo "go: example.org/a@v1.0.0: unknown revision v1.0.0" >&2; exit 1 ;;
*-json*) echo '{"GoVersion": "1.26.0", "GoMod": "/m.mod"}' ;;
*) echo built >&2; exit 1 ;;
esac
"""
    )
    go.chmod(0o755)
    monkeypatch.setattr(compiler, "find", lambda _: [Compiler(str(go), (1, 26, 8), {})])
    programs = [of_its_own("v3.0.0")[1], PROGRAMS[0]]
    cache = tmp_path / "cache"

    with pytest.raises(SandboxError, match="unknown revision v1"):
        build.build(programs, cache / V1, cache, lambda _, __: None, None)


def test_programs_can_be_run_when_they_are_there(tmp_path: Path) -> None:
    run(tmp_path, Maker())

    assert {path.stat().st_mode & 0o777 for path in (tmp_path / V1).iterdir()} == {0o755}


def test_progress_only_grows_and_ends_at_one(tmp_path: Path) -> None:
    done = [part for _, part in run(tmp_path, Maker())]

    assert done == sorted(done)
    assert done[-1] == 1.0


def test_a_second_process_waits_for_the_first_and_builds_nothing(tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Maker):
        def make(self, step: Step, folder: Path, tell: Tell) -> None:
            inside.set()
            assert go_on.wait(10)
            super().make(step, folder, tell)

    first, second = Slow(), Maker()
    one = threading.Thread(target=run, args=(tmp_path, first))
    one.start()
    assert inside.wait(10)
    told: list[str] = []

    def tell(step: str, _done: float) -> None:
        told.append(step)
        go_on.set()

    # flock excludes two open files as it excludes two processes.
    build.build(PROGRAMS, tmp_path / V1, tmp_path, tell, second.make)
    one.join()

    assert told == ["waiting for another process that builds them"]
    assert (first.made, second.made) == (["a", "b", "c"], [])


def killed_at(line: str, script: str, folder: Path) -> None:
    """Run a Python script on a folder, and kill it once it has printed this line."""
    root = str(Path(build.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, cwd=root
    ) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == f"{line}\n".encode()
        builder.kill()
        builder.wait()


def test_the_lock_of_a_builder_that_was_killed_is_free(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib; from provisioner.sandbox import build\n"
        "with build.alone(pathlib.Path(sys.argv[1]), lambda: None):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    killed_at("held", script, tmp_path)

    with build.alone(tmp_path, lambda: pytest.fail("it had to wait")):
        pass


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SandboxError, match="cannot be written: Not a directory"):
        build.build(PROGRAMS, tmp_path / V1, tmp_path / "file" / "cache", print, Maker().make)


def test_too_little_room_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "NEEDED_FREE_GB", 10**6)
    maker = Maker()

    with pytest.raises(SandboxError, match="GB free: make room, or set XDG_CACHE_HOME"):
        run(tmp_path, maker)
    assert maker.made == []


def with_free(monkeypatch: pytest.MonkeyPatch, free_gb: float) -> None:
    usage = type(shutil.disk_usage("/"))(10**12, 0, int(free_gb * 1e9))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def an_old_cache(cache: Path, gb: float) -> Path:
    path = cache / "go" / "build" / "old"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(int(gb * 1e9))  # of holes: it takes no room
    return path


@pytest.mark.parametrize(("free_gb", "kept"), [(6.5, True), (4.5, False)])
def test_what_earlier_builds_left_is_removed_where_the_disk_has_no_room_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gb: float, *, kept: bool
) -> None:
    old = an_old_cache(tmp_path, 2)
    with_free(monkeypatch, free_gb)
    maker = Maker()

    run(tmp_path, maker)

    assert maker.made == ["a", "b", "c"]
    assert old.exists() is kept


def test_nothing_is_removed_where_that_would_not_make_room_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = an_old_cache(tmp_path, 2)
    with_free(monkeypatch, 3)

    with pytest.raises(SandboxError, match=r"has at most 5\.0 GB free: make room"):
        run(tmp_path, Maker())
    assert old.exists()


def a_go(folder: Path, *, says: str = "", status: int = 1, release: str = "1.26.8") -> Compiler:
    """A compiler that prints ``says`` on its error output and ends."""
    path = folder / "go"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {status}\n")
    path.chmod(0o755)
    return Compiler(str(path), compiler.release_of(release), {})


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (
            'go: example.org@v1.0.0: Get "https://x/": dial tcp: lookup x: no such host',
            "module proxy cannot be reached",
        ),
        (
            "go: example.org@v1.0.0: module lookup disabled by GOPROXY=off",
            "is there a network\\? GOPROXY and HTTPS_PROXY are honoured",
        ),
        (
            "a\nb\ngo: downloading x v1\nx.go:1: undefined: y",
            "`go list -mod=readonly` failed: x.go",
        ),
        ("write /x: no space left on device", "the disk is full"),
        ("", "ended without a message"),
    ],
)
def test_a_failed_compiler_is_told_in_one_line(tmp_path: Path, says: str, message: str) -> None:
    with pytest.raises(SandboxError, match=message) as failure:
        compiler.choose([a_go(tmp_path, says=says)], PROGRAMS[0].module, tmp_path)
    assert "\n" not in str(failure.value)


def test_a_machine_without_a_compiler_is_told_where_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="put Go on PATH, or `pip install"):
        compiler.choose([], PROGRAMS[0].module, tmp_path)


def a_knowing_go(folder: Path, release: str) -> Compiler:
    path = folder / f"go-{release}"
    answer = '{"GoVersion": "1.26.0", "GoMod": "/m.mod"}'
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return Compiler(str(path), compiler.release_of(release), {})


def test_the_first_compiler_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    old, new = a_knowing_go(tmp_path, "1.25.9"), a_knowing_go(tmp_path, "1.27.3")

    assert compiler.choose([old, new], PROGRAMS[0].module, tmp_path) == (new, Path("/m.mod"))


def test_compilers_that_are_all_too_old_are_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"needs Go 1\.26\.0, found 1\.25\.9"):
        compiler.choose([a_knowing_go(tmp_path, "1.25.9")], PROGRAMS[0].module, tmp_path)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 linux/amd64", (1, 27, 0)),
        ("1.26.0", (1, 26, 0)),
        ("nonsense", (0,)),
    ],
)
def test_releases_of_go_are_read(text: str, release: tuple[int, ...]) -> None:
    assert compiler.release_of(text) == release


FOLDERS = ("GOCACHE", "GOMODCACHE", "GOPATH", "GOTMPDIR", "XDG_CONFIG_HOME")


def test_go_is_told_to_touch_nothing_outside_of_the_cache(tmp_path: Path) -> None:
    environment = compiler.environment(tmp_path)

    assert environment["GOTOOLCHAIN"] == "local"
    assert {Path(environment[name]).parent for name in FOLDERS} == {tmp_path}
    assert len({environment[name] for name in FOLDERS}) == len(FOLDERS)


def test_go_leaves_nothing_in_the_users_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in {"HOME": "home", "TMPDIR": "tmp"}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    for name in ("GOENV", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    work, source = tmp_path / "work", tmp_path / "source"
    (work / "tmp").mkdir(parents=True)
    source.mkdir()
    (source / "go.mod").write_text("module example.org\n\ngo 1.21\n")
    (source / "a.go").write_text("package a\n\nvar A = 1\n")  # imports nothing: a second's work

    # -work: what a compiler that is killed leaves behind.
    go = compiler.find(compiler.environment(work))[0]
    go.run("build", "-work", "-o", str(tmp_path / "a.o"), ".", folder=source)

    assert list((work / "tmp").iterdir()) != []
    assert list((work / "config").iterdir()) != []
    assert [path for name in ("home", "tmp") for path in (tmp_path / name).rglob("*")] == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "/home/me/.config/go/env"),
        ({"XDG_CONFIG_HOME": "/etc/me"}, "/etc/me/go/env"),
        ({"GOENV": "off", "XDG_CONFIG_HOME": "/etc/me"}, "off"),
    ],
)
def test_the_users_own_settings_of_go_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], found: str
) -> None:
    for name in ("GOENV", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **given}.items():
        monkeypatch.setenv(name, value)

    assert compiler.environment(tmp_path)["GOENV"] == found


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "is full: make room, or set XDG_CACHE_HOME to a larger disk"),
        (errno.EDQUOT, "is full: make room, or set XDG_CACHE_HOME to a larger disk"),
        (errno.EROFS, "cannot be written: Read-only file system"),
    ],
)
def test_a_disk_that_fails_during_the_build_is_one_line_and_leaves_only_whole_programs(
    tmp_path: Path, number: int, message: str
) -> None:
    with pytest.raises(SandboxError, match=message) as failure:
        run(tmp_path, Maker("b", OSError(number, os.strerror(number))))

    assert "\n" not in str(failure.value)
    assert [path.read_text() for path in (tmp_path / V1).iterdir()] == ["whole"]


def test_a_builder_that_is_killed_leaves_only_whole_programs(tmp_path: Path) -> None:
    script = """
import pathlib, sys, time
from provisioner.sandbox import build
from provisioner.sandbox.programs import Module, Program

def make(step, folder, tell):
    path = folder / step[0].name
    path.write_text("half")
    if step[0].name == "b":
        print("in b", flush=True)
        time.sleep(60)
    path.write_text("whole")

cache = pathlib.Path(sys.argv[1])
programs = [Program(n, n, Module(f"example.org/{n}", "v1.0.0")) for n in "abc"]
build.build(programs, cache / "v1.0.0", cache, lambda *_: None, make)
"""
    killed_at("in b", script, tmp_path)
    assert [path.name for path in (tmp_path / V1).iterdir()] == ["a"]

    second = Maker()
    run(tmp_path, second)

    assert second.made == ["b", "c"]
    assert {path.read_text() for path in (tmp_path / V1).iterdir()} == {"whole"}
    assert not (tmp_path / "go" / "made").exists()


def test_progress_says_which_of_how_many_programs_are_made(tmp_path: Path) -> None:
    kubernetes = Module("example.org", V1)
    together = [Program(name, f"example.org/{name}", kubernetes) for name in ("x", "y")]

    told = run(tmp_path, Maker(), [PROGRAMS[0], *together])

    assert list(dict.fromkeys(step for step, _ in told))[:2] == [
        "1 of 3: a v1.0.0",
        "2 to 3 of 3: x, y v1.0.0",
    ]


def test_what_the_compiler_keeps_can_be_removed_and_the_programs_stay(tmp_path: Path) -> None:
    run(tmp_path, Maker())
    (tmp_path / "go" / "build").mkdir()
    (tmp_path / "go" / "build" / "x").write_text("1234")

    assert build.clean(tmp_path, lambda: None) == 4

    assert not (tmp_path / "go").exists()
    assert build.missing(tmp_path / V1, PROGRAMS) == []
    assert build.clean(tmp_path, lambda: None) == 0


def test_what_cannot_be_removed_is_not_reported_as_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_old_cache(tmp_path, 1)

    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)

    with pytest.raises(SandboxError, match="cannot be written: Permission denied"):
        build.clean(tmp_path, lambda: None)


def test_a_cut_go_mod_of_a_build_that_was_killed_is_not_used(tmp_path: Path) -> None:
    cut = tmp_path / "go" / PROGRAMS[0].module.folder / "go.mod"
    cut.parent.mkdir(parents=True)
    cut.write_text("module ebs-prov")
    seen: list[bool] = []

    class Looking(Maker):
        def make(self, step: Step, folder: Path, tell: Tell) -> None:
            seen.append(cut.exists())
            super().make(step, folder, tell)

    run(tmp_path, Looking())

    assert seen == [False, False, False]


def with_libraries(release: str) -> list[Program]:
    """The same programs, but that ``b`` is built with that Kubernetes' libraries, as kwok is."""
    own = Program("b", "example.com/b", Module("example.com/b", "v3.0.0", libraries=release))
    return [own if each.name == "b" else each for each in PROGRAMS]


def test_a_program_with_other_libraries_is_made_anew_and_only_that(tmp_path: Path) -> None:
    run(tmp_path, Maker(), of_its_own("v3.0.0"))
    for release in ("v1.36.3", "v1.37.2"):
        maker = Maker()
        run(tmp_path, maker, with_libraries(release))
        assert maker.made == ["b"]

    homes = {build.home(tmp_path / V1, with_libraries(each)[1]) for each in ("v1.36.3", "v1.37.2")}
    assert {each.parent.name for each in homes} == {"b-v3.0.0+v1.36.3", "b-v3.0.0+v1.37.2"}
    assert all(each.exists() for each in homes)


def test_a_proxy_that_cannot_be_reached_is_one_line_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:1")  # nobody listens there

    with pytest.raises(SandboxError, match="Go's module proxy cannot be reached") as failure:
        build.build(PROGRAMS, tmp_path / V1, tmp_path, lambda *_: None, None)

    assert "\n" not in str(failure.value)
    assert not (tmp_path / V1).exists()
