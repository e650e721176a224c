"""The image's recipe, step by step: where no builder is to be had, its steps are checked instead."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from provisioner.node.runtime import programs
from tests.programs_in_code import programs_of_the_node

ROOT = Path(__file__).parents[1]
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


@dataclass(frozen=True)
class Step:
    """One instruction; ``stage`` counts from 0."""

    stage: int
    name: str
    text: str


def steps() -> list[Step]:
    text = (ROOT / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found, stage = [], -1
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        stage += name == "FROM"
        found.append(Step(stage, name, " ".join(rest.split())))
    return found


STEPS = steps()
LAST = max(step.stage for step in STEPS)


def of(name: str, *, stage: int | None = None) -> list[str]:
    return [s.text for s in STEPS if s.name == name and stage in (None, s.stage)]


def copied() -> list[str]:
    """What comes from the checkout."""
    sources = [text.split()[:-1] for text in of("COPY") if not text.startswith("--from")]
    return [source for each in sources for source in each]


def is_sent(path: str) -> bool:
    """Whether a builder is sent a path, by the last rule of .dockerignore that names it."""
    sent = True
    for rule in IGNORED:
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!").removeprefix("**/")
        parents = [path, *(str(parent) for parent in Path(path).parents)]
        names = [*parents, *(Path(parent).name for parent in parents)]
        if any(fnmatch(each, pattern) for each in (names if "**/" in rule else parents)):
            sent = rule.startswith("!")
    return sent


def test_each_source_is_there_and_is_sent_to_the_builder():
    assert len(copied()) >= 6
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert [source for source in copied() if not is_sent(source)] == []


def test_nothing_else_is_sent():
    for path in (".git", ".venv", "tests", "docs", "manifests", "tests/conftest.py"):
        assert not is_sent(path)
    assert not is_sent("provisioner/node/__pycache__/app.pyc")
    assert is_sent("provisioner/node/app.py")


def test_the_base_is_one_pinned_slim_debian_of_a_python_that_we_take():
    [base] = of("ARG")
    name, _, tag = base.removeprefix("BASE=").partition(":")
    version = re.fullmatch(r"(\d+)\.(\d+)\.\d+-slim-[a-z]+", tag)

    assert name == "python"
    assert version is not None, "not pinned"
    assert (int(version[1]), int(version[2])) >= (3, 11)
    assert of("FROM") == ["${BASE} AS build", "${BASE}"]


def test_nobody_is_root_in_it_unless_a_manifest_says_so():
    [user] = of("USER", stage=LAST)

    assert STEPS[-2] == Step(LAST, "USER", user)
    for workload in ("deployment.yaml", "webhook/deployment.yaml"):
        context = security_of(ROOT / "manifests" / workload)
        assert user == f"{context['runAsUser']}:{context['runAsGroup']}" == "65532:65532"
    assert security_of(ROOT / "manifests/node/daemonset.yaml")["runAsUser"] == 0


def security_of(path: Path) -> dict[str, int]:
    workload = next(
        each
        for each in yaml.safe_load_all(path.read_text())
        if each["kind"] in ("Deployment", "DaemonSet")
    )
    found: dict[str, int] = workload["spec"]["template"]["spec"]["securityContext"]
    return found


def installed_by_apt() -> set[str]:
    [run] = of("RUN", stage=LAST)
    [install] = re.findall(r"apt-get install (.*?) &&", run)
    return {word for word in install.split() if not word.startswith("--")}


def test_its_packages_bring_all_programs_that_the_node_plugin_runs():
    found = programs_of_the_node()
    if shutil.which("dpkg") is None:
        pytest.skip("only Debian can tell which package a program is of")
    missing = [each for each in found if shutil.which(each, path=programs.PATH) is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(sorted(missing))}")

    needed, installed = {package_of(each) for each in found}, installed_by_apt()
    assert installed <= needed
    assert [each for each in needed - installed if not is_essential(each)] == []


def is_essential(package: str) -> bool:
    """Whether it is in each Debian, the slim ones too."""
    query = ["dpkg-query", "--show", "--showformat=${Essential}", package]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout == "yes"


def test_the_programs_that_the_code_names_are_those_that_it_can_say_how_to_install():
    assert programs_of_the_node() == programs._PACKAGES.keys()


def package_of(program: str) -> str:
    """The Debian package that a program is of, by its path before /usr was merged too."""
    path = str(shutil.which(program, path=programs.PATH))
    for each in (path, path.removeprefix("/usr"), f"/usr{path}"):
        found = subprocess.run(["dpkg", "-S", each], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.partition(":")[0]
    raise AssertionError(f"{path} is of no package")


def test_its_programs_are_those_that_the_manifests_name():
    scripts = re.findall(
        r'^([\w-]+) = "[\w.]+:main"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    [entry] = map(json.loads, of("ENTRYPOINT", stage=LAST))

    assert entry == ["ebs-provisioner"]
    assert {"ebs-provisioner", "ebs-webhook"} == set(scripts)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build stage installs of ours; the packages that it needs are those of this venv."""
    folder = tmp_path_factory.mktemp("image")
    source, target = folder / "src", folder / "install"
    for each in copied():
        if (ROOT / each).is_dir():
            shutil.copytree(ROOT / each, source / each, ignore=ignored)
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(ROOT / each, source / each)
    [run] = of("RUN", stage=0)
    tools, ours = run.split(" && ")
    assert tools.split()[-1] == "hatchling"  # which the venv has too
    command, *words = shlex.split(ours.replace("--prefix=/install", f"--prefix={target}"))
    assert command == "pip"
    # --ignore-installed, or pip takes this venv's own installation away first, whatever the prefix is.
    here = ("--no-deps", "--no-index", "--ignore-installed", "--quiet")
    argv = [sys.executable, "-m", command, *words, *here]
    subprocess.run(argv, cwd=source, check=True, timeout=120)
    return target


def test_the_venv_keeps_its_own_installation(prefix: Path):
    assert prefix.is_dir()
    own = subprocess.run(
        [sys.executable, "-m", "pip", "show", "--quiet", "ebs-provisioner"], cwd="/", check=False
    )

    assert own.returncode == 0


def ignored(folder: str, names: list[str]) -> set[str]:
    here = Path(folder).relative_to(ROOT)
    return {name for name in names if not is_sent(str(here / name))}


@pytest.mark.parametrize(
    "argv",
    [
        ("ebs-provisioner", "--help"),
        ("ebs-provisioner", "controller", "--help"),
        ("ebs-provisioner", "node", "--help"),
        ("ebs-provisioner", "node", "--node-name=a", "drain", "--help"),
        ("ebs-webhook", "serve", "--help"),
    ],
    ids=" ".join,
)
def test_what_it_installs_runs(prefix: Path, argv: tuple[str, ...]):
    [packages] = prefix.glob("lib/python*/site-packages")
    environment = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    }

    run = subprocess.run(
        [prefix / "bin" / argv[0], *argv[1:]],
        env=environment,
        cwd=prefix,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert "Usage: " in run.stdout


def test_every_package_that_it_needs_is_pinned():
    pins = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    project = (ROOT / "pyproject.toml").read_text()
    wanted = re.findall(r'^    "([\w-]+)[>=!]', project.partition("[project.opt")[0], re.MULTILINE)
    [node] = re.findall(r"^node = \[(.*)\]$", project, re.MULTILINE)
    wanted += re.findall(r'"([\w-]+)', node)

    assert len(wanted) > 10
    assert {each.lower() for each in wanted} <= pins


def test_it_builds_where_there_is_a_builder():
    builder = next((each for each in ("docker", "buildah") if shutil.which(each)), None)
    if builder is None or subprocess.run([builder, "info"], capture_output=True).returncode:  # noqa: PLW1510 -- it may fail
        pytest.skip("there is no builder of images here; its steps are checked above")

    build = subprocess.run(
        [builder, "build", "--quiet", str(ROOT)], capture_output=True, text=True, check=False
    )

    assert build.returncode == 0, build.stderr
