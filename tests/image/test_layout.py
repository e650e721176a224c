"""The archive's format, and its lists of contents."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from image import debian, recipe
from image.build import Built
from image.locking import WHEELS
from image.source import describe
from tests.documents import ROOT
from tests.image.opened import Opened


def test_it_is_an_oci_image_layout(opened: Opened, built: Built):
    [listed] = opened.index["manifests"]

    assert json.loads(opened.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert opened.index["schemaVersion"] == opened.manifest["schemaVersion"] == 2
    assert listed["digest"] == built.archive.digest
    assert listed["mediaType"] == opened.manifest["mediaType"]
    assert listed["platform"] == {
        "architecture": opened.config["architecture"],
        "os": opened.config["os"],
    }


def test_docker_finds_the_same_blobs_by_its_own_manifest(opened: Opened):
    [image] = json.loads(opened.files["manifest.json"])

    def path(descriptor: dict[str, Any]) -> str:
        return f"blobs/{descriptor['digest'].replace(':', '/')}"

    assert image["Config"] == path(opened.manifest["config"])
    assert image["Layers"] == [path(each) for each in opened.manifest["layers"]]
    [tag] = image["RepoTags"]
    [listed] = opened.index["manifests"]
    assert listed["annotations"] == {
        "io.containerd.image.name": f"docker.io/library/{tag}",
        "org.opencontainers.image.ref.name": tag.partition(":")[2],
    }


def test_its_tag_is_one_that_registries_take(opened: Opened):
    [image] = json.loads(opened.files["manifest.json"])

    assert re.fullmatch(r"ebs-provisioner:[\w][\w.-]{0,127}", image["RepoTags"][0])


def test_its_labels_say_what_it_is(opened: Opened):
    labels = opened.config["config"]["Labels"]

    assert labels == opened.manifest["annotations"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == describe(ROOT).version
    assert re.match(r"[0-9a-f]{40}|unknown$", labels["org.opencontainers.image.revision"])


@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
def test_skopeo_copies_it(transport: str, built: Built, tmp_path: Path):
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    archive = tmp_path / "image.tar"
    archive.write_bytes(built.archive.data)

    argv = ["skopeo", "--insecure-policy", "copy", "--quiet"]
    copy = subprocess.run(
        [*argv, f"{transport}:{archive}", f"dir:{tmp_path / 'copy'}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert copy.returncode == 0, copy.stderr
    manifest = (tmp_path / "copy" / "manifest.json").read_bytes()
    assert len(json.loads(manifest)["layers"]) == 5


@pytest.fixture
def spdx(built: Built) -> dict[str, Any]:
    return document(built, ".spdx.json")


@pytest.fixture
def cyclonedx(built: Built) -> dict[str, Any]:
    return document(built, ".cdx.json")


def document(built: Built, ending: str) -> dict[str, Any]:
    [found] = [data for name, data in built.files.items() if name.endswith(ending)]
    read: dict[str, Any] = json.loads(found)
    return read


def locked() -> Iterator[str]:
    """Name and version of each package that the image is made of."""
    yield from re.findall(r"^([\w.-]+==[\w.]+)", WHEELS.read_text(), re.MULTILINE)
    for name in recipe.PACKAGES:
        yield f"{name}=={debian.read_lock().of('amd64', name).version}"


def same(name: str) -> str:
    """Return a name as Python's packaging compares them."""
    return name.lower().replace("_", "-")


def test_both_lists_name_all_packages_that_are_in_it(
    spdx: dict[str, Any], cyclonedx: dict[str, Any]
):
    wanted = {same(each) for each in locked()}
    by_spdx = {same(f"{each['name']}=={each['versionInfo']}") for each in spdx["packages"][1:]}
    by_cyclonedx = {same(f"{each['name']}=={each['version']}") for each in cyclonedx["components"]}

    assert len(wanted) > 60
    assert by_spdx == by_cyclonedx == wanted


def test_the_lists_name_the_image_by_its_digest(
    spdx: dict[str, Any], cyclonedx: dict[str, Any], built: Built
):
    digest = built.archive.digest.removeprefix("sha256:")

    assert spdx["packages"][0]["checksums"][0]["checksumValue"] == digest
    assert cyclonedx["metadata"]["component"]["hashes"][0]["content"] == digest


def test_debians_packages_are_listed_with_their_sources(
    spdx: dict[str, Any], cyclonedx: dict[str, Any]
):
    purls = {each["name"]: each["purl"] for each in cyclonedx["components"]}
    referred = {
        each["name"]: each["externalRefs"][0]["referenceLocator"] for each in spdx["packages"][1:]
    }

    assert purls == referred
    assert purls["libblkid1"].endswith("&distro=debian-12&upstream=util-linux")
    assert purls["util-linux"].endswith("&distro=debian-12")
    for name in recipe.PACKAGES:
        source = debian.read_lock().of("amd64", name).source
        assert ("upstream" in purls[name]) == (source != name), name


def test_each_relation_of_the_spdx_list_is_between_things_that_it_names(spdx: dict[str, Any]):
    known = {"SPDXRef-DOCUMENT", *(each["SPDXID"] for each in spdx["packages"])}
    named = {
        each[end]
        for each in spdx["relationships"]
        for end in ("spdxElementId", "relatedSpdxElement")
    }

    assert named == known
    assert len(spdx["packages"]) + 1 == len(known)


def test_what_scanners_read_of_debian_is_in_the_image(opened: Opened):
    found = {
        path.rpartition("/")[2]: content.decode()
        for path, content in opened.contents.items()
        if path.startswith("var/lib/dpkg/status.d/")
    }

    assert set(found) == set(recipe.PACKAGES)
    for name, text in found.items():
        assert f"Package: {name}\n" in text
        assert f"\nVersion: {debian.read_lock().of('amd64', name).version}\n" in text
    assert b"VERSION_ID=" in opened.contents["usr/lib/os-release"]
