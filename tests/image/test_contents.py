"""What is in the image, and what is not."""

from __future__ import annotations

import io
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from elftools.elf.elffile import ELFFile

from image import recipe
from image.build import Built
from provisioner.node.runtime import programs
from tests.image.opened import Opened
from tests.programs_in_code import programs_of_the_node

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
PYC_HEADER_FLAGS = slice(4, 8)


def test_all_programs_that_the_node_plugin_runs_are_in_it(opened: Opened):
    found = opened.programs
    missing = [name for name in programs_of_the_node() if name not in found]

    assert missing == []
    for name in programs_of_the_node():
        assert opened.members[found[name]].mode & stat.S_IXOTH, name


def test_the_programs_that_the_code_names_are_those_that_it_can_say_how_to_install():
    assert programs_of_the_node() == programs._PACKAGES.keys()


def test_each_program_is_found_in_the_path_of_the_node_plugin(opened: Opened):
    folders = {f"/{path.rpartition('/')[0]}" for path in opened.programs.values()}

    assert folders <= set(programs.PATH.split(":"))


def test_it_has_no_other_programs_than_the_recipe_names(opened: Opened, architecture: str):
    links = {Path(path).name for path in recipe.links(architecture)}

    assert set(opened.programs) - links == {*recipe.KEPT_PROGRAMS, *recipe.PROGRAMS}


@pytest.mark.parametrize(
    "name", ["sh", "bash", "dash", "perl", "apt", "dpkg", "pip", "pip3", "gcc", "cc", "ld", "su"]
)
def test_it_has_no_shell_no_installer_and_no_compiler(opened: Opened, name: str):
    assert name not in opened.programs
    assert not [path for path in opened.members if re.search(rf"dist-packages/{name}(/|$)", path)]


def test_each_library_that_a_file_needs_is_there(either: Opened):
    there = {Path(path).name for path in either.members}
    missing = {}
    for path, content in either.contents.items():
        if content.startswith(b"\x7fELF"):
            dynamic: Any = ELFFile(io.BytesIO(content)).get_section_by_name(".dynamic")
            tags = dynamic.iter_tags("DT_NEEDED") if dynamic is not None else ()
            missing[path] = [tag.needed for tag in tags if tag.needed not in there]

    assert len(missing) > 100
    assert {path: names for path, names in missing.items() if names} == {}


def test_all_of_it_is_for_one_architecture(either: Opened, request: pytest.FixtureRequest):
    machines = {
        ELFFile(io.BytesIO(content)).get_machine_arch()
        for content in either.contents.values()
        if content.startswith(b"\x7fELF")
    }

    architecture = either.config["architecture"]
    assert machines == {{"amd64": "x64", "arm64": "AArch64"}[architecture]}
    assert f"[{architecture}]" in request.node.name


def test_nothing_gives_rights_to_who_runs_it_and_all_is_owned_by_root(opened: Opened):
    privileged = [
        path for path, each in opened.members.items() if each.mode & (stat.S_ISUID | stat.S_ISGID)
    ]
    writable = [
        path
        for path, each in opened.members.items()
        if each.mode & stat.S_IWOTH and not each.issym() and not each.mode & stat.S_ISVTX
    ]

    assert privileged == writable == []
    assert {(each.uid, each.gid) for each in opened.members.values()} == {(0, 0)}


def test_each_link_points_at_something(either: Opened):
    broken = []
    for path, each in either.members.items():
        if each.issym():
            start = "/" if each.linkname.startswith("/") else f"/{path.rpartition('/')[0]}/"
            target = Path(f"{start}{each.linkname}").as_posix().lstrip("/")
            parts = [part for part in re.sub(r"[^/]+/\.\./", "", target).split("/") if part]
            merged = "/".join(["usr", *parts] if parts[0] in {"lib", "bin", "sbin"} else parts)
            if merged not in either.members and not merged.startswith("proc"):
                broken.append(f"{path} -> {each.linkname}")

    assert broken == []


def test_each_debian_package_brings_its_license(opened: Opened):
    without = []
    for name in recipe.PACKAGES:
        folder = opened.members.get(f"usr/share/doc/{name}")
        owner = folder.linkname if folder is not None and folder.issym() else name
        if f"usr/share/doc/{owner}/copyright" not in opened.contents:
            without.append(name)

    assert without == []
    assert "usr/share/common-licenses/GPL-3" in opened.contents


def test_each_module_has_its_bytecode_which_is_never_compared_with_its_source(opened: Opened):
    sources = [path for path in opened.contents if path.endswith(".py")]
    without = []
    for path in sources:
        folder, _, name = path.rpartition("/")
        found = opened.contents.get(f"{folder}/__pycache__/{name[:-3]}.cpython-311.pyc")
        if found is None:
            without.append(path)
        else:
            # PEP 552: hash-based, and not to be checked.
            assert found[PYC_HEADER_FLAGS] == b"\x01\0\0\0", path

    assert len(sources) > 1000
    assert without == []


def test_our_code_is_in_it_without_the_sandbox(opened: Opened):
    ours = {path.removeprefix(f"{recipe.SITE}/") for path in opened.contents}
    wanted = {
        str(path.relative_to(ROOT))
        for package in ("provisioner", "webhook")
        for path in (ROOT / package).rglob("*.py")
        if "sandbox" not in path.parts
    }

    assert len(wanted) > 200
    assert wanted <= ours
    assert not [path for path in ours if path.startswith("provisioner/sandbox/")]


def test_its_programs_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    # kubectl's plugin and its completion run where kubectl does.
    assert {*recipe.PROGRAMS, "kubectl-ebs", "kubectl_complete-ebs"} == set(project["scripts"])
    for name in recipe.PROGRAMS:
        module, _, function = project["scripts"][name].partition(":")
        assert f"from {module} import {function}\n".encode() in recipe.launcher(name)


def test_nobody_is_root_in_it_unless_a_manifest_says_so(opened: Opened):
    user = opened.config["config"]["User"]

    for workload in ("deployment.yaml", "webhook/deployment.yaml"):
        context = security_of(ROOT / "manifests" / workload)
        assert user == f"{context['runAsUser']}:{context['runAsGroup']}" == "65532:65532"
    assert security_of(ROOT / "manifests/node/daemonset.yaml")["runAsUser"] == 0
    assert opened.config["config"]["Entrypoint"] == ["ebs-provisioner"]


def security_of(path: Path) -> dict[str, int]:
    workload = next(
        each
        for each in yaml.safe_load_all(path.read_text())
        if each["kind"] in ("Deployment", "DaemonSet")
    )
    found: dict[str, int] = workload["spec"]["template"]["spec"]["securityContext"]
    return found


def test_a_pull_is_small(built: Built, opened: Opened):
    layers = [layer["size"] for layer in opened.manifest["layers"]]

    assert len(built.archive.data) < 60 * MIB
    assert layers[-1] < 3 * MIB  # all that a new version of our code alone changes
